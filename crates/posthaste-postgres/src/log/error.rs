//! What an error means for the one who reads the log.

use posthaste_core::StoreError;
use posthaste_core::store::StoreErrorKind;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

use crate::error::{by_sqlstate, store_error};

/// What kept the reader from doing something.
#[derive(Debug)]
pub(super) enum LogError {
    /// The database said so, or cannot be heard.
    Sql(sqlx::Error),
    /// Going on could lose rows, so it does not.
    Unsafe(StoreError),
    /// Another relay has the seat of this reader.
    Fenced,
}

pub(super) type LogResult<T> = Result<T, LogError>;

impl LogError {
    pub(super) fn refuse(message: String, remedy: &'static str) -> Self {
        Self::Unsafe(StoreError {
            kind: StoreErrorKind::Other,
            message,
            remedy: Some(remedy),
            source: None,
        })
    }

    /// Whether the connection is gone, and with it the lock.
    pub(super) fn ends_connection(&self) -> bool {
        match self {
            Self::Sql(sqlx::Error::Database(error)) => error
                .try_downcast_ref::<PgDatabaseError>()
                .is_some_and(|error| matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic)),
            Self::Sql(error) => matches!(
                error,
                sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed
            ),
            // Its lock is another one's to take.
            Self::Fenced => true,
            Self::Unsafe(_) => false,
        }
    }

    /// Whether the server, the database or the role has as many connections as it may.
    pub(super) fn is_refused_connection(&self) -> bool {
        self.sqlstate().is_some_and(|code| code == "53300")
    }

    /// Whether the database understood a write and would refuse it again: a constraint, a trigger, a length, a right.
    pub(super) fn is_refusal(&self) -> bool {
        let passes = |code: &str| by_sqlstate(code).0.is_transient();
        !self.ends_connection() && !self.is_cancelled() && self.sqlstate().is_some_and(|code| !passes(&code))
    }

    /// Whether the statement was cancelled, as by `statement_timeout`.
    pub(super) fn is_cancelled(&self) -> bool {
        self.sqlstate().is_some_and(|code| code == "57014")
    }

    /// Whether another transaction's lock was in the way. So it may be if the statement was cancelled, but that may be
    /// for any reason.
    pub(super) fn is_contention(&self) -> bool {
        let is_lock = |code: &str| code != "57014" && by_sqlstate(code).0 == StoreErrorKind::Contention;
        !self.ends_connection() && self.sqlstate().is_some_and(|code| is_lock(&code))
    }

    /// Whether a refusal is of the statement, whatever its rows.
    pub(super) fn concerns_all_rows(&self) -> bool {
        self.sqlstate().is_some_and(|code| code.starts_with("42"))
    }

    /// Whether named statements of one session were met in another, as behind a pooler that shares them out.
    pub(super) fn is_shared_session(&self) -> bool {
        self.sqlstate().is_some_and(|code| code == "42P05" || code == "26000")
    }

    fn sqlstate(&self) -> Option<String> {
        match self {
            Self::Sql(sqlx::Error::Database(error)) => error.code().map(String::from),
            Self::Sql(_) | Self::Unsafe(_) | Self::Fenced => None,
        }
    }
}

impl From<sqlx::Error> for LogError {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<LogError> for StoreError {
    fn from(error: LogError) -> Self {
        match error {
            LogError::Sql(error) => store_error(error),
            LogError::Unsafe(error) => error,
            LogError::Fenced => StoreError {
                kind: StoreErrorKind::Contention,
                message: "another relay reads this shard of the log now".to_owned(),
                remedy: None,
                source: None,
            },
        }
    }
}
