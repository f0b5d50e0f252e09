//! The way to the collector: requests of the exporters' own threads, made on the runtime.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use axum::body::Bytes;
use axum::http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{HttpClient, HttpError};
use posthaste_core::readable::Readable;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// How much of an answer is read.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Sends what one exporter has, and says once if it does not get through.
///
/// Each signal has its own: many collectors take traces or metrics, and refuse the other.
pub(super) struct CollectorClient {
    /// `traces` or `metrics`.
    signal: &'static str,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    runtime: Handle,
    timeout: Duration,
    is_failing: AtomicBool,
}

impl CollectorClient {
    /// To be made on the runtime.
    pub(super) fn new(signal: &'static str, timeout: Duration) -> Self {
        let connector = HttpsConnectorBuilder::new()
            .with_webpki_roots()
            .https_or_http()
            .enable_http1()
            .build();
        Self {
            signal,
            client: Client::builder(TokioExecutor::new()).build(connector),
            runtime: Handle::current(),
            timeout,
            is_failing: AtomicBool::new(false),
        }
    }

    fn tell(&self, collector: &str, answer: &anyhow::Result<Response<Bytes>>) {
        let signal = self.signal;
        let is_taken = answer.as_ref().is_ok_and(|answer| answer.status().is_success());
        let was_failing = self.is_failing.swap(!is_taken, Ordering::Relaxed);
        match answer {
            Ok(_) if is_taken && was_failing => {
                tracing::info!(collector, "the OpenTelemetry collector takes {signal} again");
            }
            Ok(answer) if !is_taken && !was_failing => tracing::warn!(
                collector,
                error = format!("it answered {}", answer.status()),
                "the OpenTelemetry collector refuses {signal}; they are dropped until it takes them, and messages are \
                 delivered all the same"
            ),
            Err(error) if !was_failing => tracing::warn!(
                collector,
                error = format!("{error:#}"),
                "the OpenTelemetry collector cannot be reached or does not answer; {signal} are dropped until it takes \
                 them, and messages are delivered all the same"
            ),
            _ => {}
        }
    }
}

/// An address as a log may show it: a user, a password and a query are secrets.
fn without_secrets(uri: &Uri) -> String {
    let scheme = uri.scheme_str().unwrap_or("http");
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{}", uri.path())
}

#[async_trait::async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let collector = without_secrets(request.uri());
        let (client, limit) = (self.client.clone(), self.timeout);
        // The exporters' threads have no runtime of their own.
        let sending = self.runtime.spawn(async move {
            match timeout(limit, exchange(&client, request)).await {
                Ok(answer) => answer,
                Err(_) => bail!("no answer within {}", Readable(limit)),
            }
        });
        let answer = match sending.await {
            Ok(answer) => answer,
            // The process ends, which says nothing of the collector.
            Err(ended) => return Err(ended.into()),
        };
        self.tell(&collector, &answer);
        answer.map_err(Into::into)
    }
}

async fn exchange(
    client: &Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    request: Request<Bytes>,
) -> anyhow::Result<Response<Bytes>> {
    let answer = client.request(request.map(Full::new)).await?;
    let (head, body) = answer.into_parts();
    let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await;
    let body = body
        .map_err(|error| anyhow::anyhow!(error))
        .context("its answer cannot be read")?;
    Ok(Response::from_parts(head, body.to_bytes()))
}

impl fmt::Debug for CollectorClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectorClient").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_secrets() {
        for (given, shown) in [
            ("http://127.0.0.1:4318/v1/traces", "http://127.0.0.1:4318/v1/traces"),
            ("https://me:s3cret@collector/x?api-key=s3cret", "https://collector/x"),
            ("http://s3cret@[::1]:4318/v1/metrics", "http://[::1]:4318/v1/metrics"),
        ] {
            assert_eq!(without_secrets(&given.parse().unwrap()), shown);
        }
    }
}
