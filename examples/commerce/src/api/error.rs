use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

/// Why a request was not carried out. Nothing of it was committed.
#[derive(Debug)]
pub struct Refused {
    status: StatusCode,
    reason: String,
}

impl Refused {
    pub fn not_found(what: impl Into<String>) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            reason: what.into(),
        }
    }

    pub fn conflict(reason: impl Into<String>) -> Self {
        Self {
            status: StatusCode::CONFLICT,
            reason: reason.into(),
        }
    }
}

/// Whatever else fails is the service's own trouble.
impl<E: Into<anyhow::Error>> From<E> for Refused {
    fn from(error: E) -> Self {
        let error = error.into();
        tracing::error!("{error:#}");
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            reason: "the shop has a problem; try again".to_owned(),
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.status, self.reason).into_response()
    }
}
