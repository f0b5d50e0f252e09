//! The way to the collector: requests of the exporters' own threads, made on the runtime.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use axum::body::Bytes;
use axum::http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry_http::{HttpClient, HttpError};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// How much of an answer is read.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Sends what exporters have, and says once if it does not get through.
pub(super) struct CollectorClient {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    runtime: Handle,
    timeout: Duration,
    is_failing: AtomicBool,
}

impl CollectorClient {
    /// To be made on the runtime.
    pub(super) fn new(timeout: Duration) -> Self {
        let connector = HttpsConnectorBuilder::new()
            .with_webpki_roots()
            .https_or_http()
            .enable_http1()
            .build();
        Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            runtime: Handle::current(),
            timeout,
            is_failing: AtomicBool::new(false),
        }
    }

    fn tell(&self, collector: &str, sent: Result<(), String>) {
        match sent {
            Ok(()) => {
                if self.is_failing.swap(false, Ordering::Relaxed) {
                    tracing::info!(collector, "the OpenTelemetry collector takes traces and metrics again");
                }
            }
            Err(error) => {
                if !self.is_failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        collector,
                        error,
                        "the OpenTelemetry collector cannot be reached or refuses what is sent; traces and metrics are \
                         dropped until it takes them, and messages are delivered all the same"
                    );
                }
            }
        }
    }
}

#[async_trait::async_trait]
impl HttpClient for CollectorClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let collector = request.uri().to_string();
        let (client, limit) = (self.client.clone(), self.timeout);
        // The exporters' threads have no runtime of their own.
        let sending = self.runtime.spawn(async move {
            match timeout(limit, exchange(&client, request)).await {
                Ok(answer) => answer,
                Err(_) => bail!("no answer within {limit:?}"),
            }
        });
        let answer = sending.await.map_err(anyhow::Error::from).flatten();
        match &answer {
            Ok(answer) if answer.status().is_success() => self.tell(&collector, Ok(())),
            Ok(answer) => self.tell(&collector, Err(format!("it answered {}", answer.status()))),
            Err(error) => self.tell(&collector, Err(format!("{error:#}"))),
        }
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
