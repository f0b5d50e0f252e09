//! Requests to one address.

use std::error::Error as _;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use posthaste_core::publisher::PublishError;
use tokio::time::timeout;

use super::answer::Answer;
use super::connector::{Route, connector};
use super::options::HttpOptions;
use super::redaction::Redaction;
use super::secret::Secret;
use super::url::HttpUrl;
use crate::options::InvalidOption;

/// Connections to one receiver, kept open between requests.
#[derive(Clone, Debug)]
pub(super) struct Client {
    url: HttpUrl,
    authorization: Option<HeaderValue>,
    /// For what follows the head of an answer.
    body_timeout: Duration,
    http: Connections,
    /// Never reuses one.
    fresh: Connections,
    redaction: Redaction,
    /// Those that say where requests go.
    settings: &'static str,
}

type Connections = HttpClient<HttpsConnector<Route>, Full<Bytes>>;

/// Below what receivers and load balancers usually allow, so that a request seldom meets a closed connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The most of an answer's body that is read. Discord repeats the notification.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// For what follows the head of an answer.
const MAX_BODY_TIMEOUT: Duration = Duration::from_secs(2);

impl Client {
    pub(super) fn new(options: &HttpOptions) -> Result<Self, InvalidOption> {
        let connector = connector(&options.tls, options.proxy.as_ref())?;
        let http = HttpClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(connector.clone());
        let fresh = HttpClient::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build(connector);
        let bearer = |token: &Secret| -> Result<HeaderValue, InvalidOption> {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", token.reveal()))
                .map_err(|_| InvalidOption::new("bearer_token", "***", "has characters that no header can have"))?;
            value.set_sensitive(true);
            Ok(value)
        };
        Ok(Self {
            url: options.url.clone(),
            authorization: options.bearer_token.as_ref().map(bearer).transpose()?,
            body_timeout: MAX_BODY_TIMEOUT.min(options.effective_answer_within() / 4),
            http,
            fresh,
            redaction: Redaction::new(options),
            settings: match options.proxy {
                Some(_) => "the publisher's url, its proxy",
                None => "the publisher's url",
            },
        })
    }

    pub(super) fn url(&self) -> &HttpUrl {
        &self.url
    }

    pub(super) fn redaction(&self) -> &Redaction {
        &self.redaction
    }

    /// Posts a body with these headers to the address, or to a variant of it.
    pub(super) async fn post(&self, to: &str, headers: HeaderMap, body: Bytes) -> Result<Answer, PublishError> {
        self.send(Method::POST, to, headers, body).await
    }

    /// Asks for the address. Discord shows the webhook; others answer something.
    pub(super) async fn get(&self) -> Result<Answer, PublishError> {
        self.send(Method::GET, self.url.reveal(), HeaderMap::new(), Bytes::new())
            .await
    }

    async fn send(&self, method: Method, to: &str, headers: HeaderMap, body: Bytes) -> Result<Answer, PublishError> {
        let agent = concat!("posthaste/", env!("CARGO_PKG_VERSION"));
        let is_empty = body.is_empty();
        let mut request = Request::builder()
            .method(method)
            .uri(to)
            .header(header::USER_AGENT, agent)
            .body(Full::new(body))
            .map_err(|error| self.unavailable(&error.to_string()))?;
        if is_empty && request.method() == Method::POST {
            // Some receivers insist on it, and it is left out by itself.
            request
                .headers_mut()
                .insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        if let Some(authorization) = &self.authorization {
            request
                .headers_mut()
                .insert(header::AUTHORIZATION, authorization.clone());
        }
        // Those of the settings come last and replace others.
        request.headers_mut().extend(headers);
        // A receiver may close a connection just as it is used again, so a request that it hung up on has a second try.
        let answered = match self.http.request(request.clone()).await {
            Err(first) if !first.is_connect() => match self.fresh.request(request).await {
                Err(second) if second.is_connect() => Err(first),
                answered => answered,
            },
            answered => answered,
        };
        let (head, body) = answered.map_err(|error| self.failed(error))?.into_parts();
        if head.status.is_success() {
            // Nothing more has to be known. The rest is read for the sake of the connection, which is kept.
            tokio::spawn(timeout(self.body_timeout, read(body)));
            return Ok(Answer::new(head.status, &head.headers, &[]));
        }
        // The status has decided already; what cannot be read of the rest, or in time, changes nothing.
        let text = timeout(self.body_timeout, read(body)).await.unwrap_or_default();
        Ok(Answer::new(head.status, &head.headers, &text))
    }

    fn failed(&self, error: hyper_util::client::legacy::Error) -> PublishError {
        // The innermost cause is the telling one: `connection refused`, `certificate expired`.
        let mut cause = error.source();
        let mut text = error.to_string();
        while let Some(inner) = cause {
            text = inner.to_string();
            cause = inner.source();
        }
        let what = if error.is_connect() {
            "cannot be reached"
        } else {
            "hung up"
        };
        let failure = self.unavailable(&format!("{what}: {}", self.redaction.apply(&text)));
        failure.caused_by(error)
    }

    pub(super) fn unavailable(&self, what: &str) -> PublishError {
        PublishError::transport(format!(
            "HTTP receiver {}: {what}; check {} and the network; it is tried again until it works",
            self.url.host(),
            self.settings,
        ))
    }
}

/// A body, as far as it is of interest.
async fn read(mut body: impl BodyExt<Data = Bytes> + Unpin) -> Vec<u8> {
    let mut read = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Some(data) = frame.data_ref() {
            read.extend_from_slice(data);
        }
        if read.len() > MAX_ANSWER_BYTES {
            break;
        }
    }
    read
}
