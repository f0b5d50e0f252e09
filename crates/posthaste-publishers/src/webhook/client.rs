//! HTTP to one webhook.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use posthaste_core::publisher::PublishError;
use tokio::time::{Instant, timeout_at};

use super::answer::Answer;
use super::url::WebhookUrl;

/// Connections to one webhook, kept open between notifications.
#[derive(Clone, Debug)]
pub(super) struct Client {
    url: WebhookUrl,
    http: HttpClient<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Below what receivers and the boxes on the way usually allow, so that a notification seldom meets a closed one.
const IDLE_FOR: Duration = Duration::from_secs(30);

/// Most of an answer that is read. Discord repeats the notification.
const LONGEST_ANSWER: usize = 64 * 1024;

/// For what follows the head of an answer.
const REST_WITHIN: Duration = Duration::from_secs(2);

impl Client {
    pub(super) fn new(url: WebhookUrl) -> Self {
        let http = HttpClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_FOR)
            .build(connector());
        Self { url, http }
    }

    pub(super) fn url(&self) -> &WebhookUrl {
        &self.url
    }

    /// Posts a notification.
    pub(super) async fn post(&self, body: Bytes, deadline: Instant) -> Result<Answer, PublishError> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(self.url.confirmed())
            .header(header::CONTENT_TYPE, "application/json");
        self.send(request, body, deadline).await
    }

    /// Asks about the webhook. Discord shows it; others answer something.
    pub(super) async fn get(&self, deadline: Instant) -> Result<Answer, PublishError> {
        let request = Request::builder().method(Method::GET).uri(self.url.reveal());
        self.send(request, Bytes::new(), deadline).await
    }

    async fn send(
        &self,
        request: http::request::Builder,
        body: Bytes,
        deadline: Instant,
    ) -> Result<Answer, PublishError> {
        let agent = concat!("posthaste/", env!("CARGO_PKG_VERSION"));
        let request = request
            .header(header::USER_AGENT, agent)
            .body(Full::new(body))
            .map_err(|error| self.away(&error.to_string()))?;
        let Ok(response) = timeout_at(deadline, self.http.request(request)).await else {
            return Err(self.away("gave no answer in time"));
        };
        let response = response.map_err(|error| {
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
            self.away(&format!("{what}: {}", self.url.blot(&text)))
        })?;
        let (head, mut body) = response.into_parts();
        let mut read = Vec::new();
        // The status has decided already; what cannot be read of the rest, or in time, changes nothing.
        let rest = async {
            while let Some(Ok(frame)) = body.frame().await {
                if let Some(data) = frame.data_ref() {
                    read.extend_from_slice(data);
                }
                if read.len() > LONGEST_ANSWER {
                    break;
                }
            }
        };
        let _ = timeout_at(deadline.min(Instant::now() + REST_WITHIN), rest).await;
        Ok(Answer::new(head.status, &head.headers, &read))
    }

    pub(super) fn away(&self, what: &str) -> PublishError {
        PublishError::transport(format!(
            "webhook at {}: {what}; check publisher.url and the way there; it is tried again until it works",
            self.url.host()
        ))
    }
}

/// Trusts whom the system trusts, and where the system has no list of its own, as in small containers, whom browsers
/// trust.
fn connector() -> HttpsConnector<HttpConnector> {
    let mut http = HttpConnector::new();
    http.set_connect_timeout(Some(CONNECT_WITHIN));
    http.enforce_http(false);
    let ring = rustls::crypto::ring::default_provider;
    let trusting = || -> io::Result<_> {
        let builder = HttpsConnectorBuilder::new();
        match builder.with_provider_and_native_roots(ring()) {
            Ok(builder) => Ok(builder),
            Err(_) => HttpsConnectorBuilder::new()
                .with_provider_and_webpki_roots(ring())
                .map_err(io::Error::other),
        }
    };
    let builder = trusting().expect("ring has the protocol versions that rustls defaults to");
    builder.https_or_http().enable_http1().wrap_connector(http)
}
