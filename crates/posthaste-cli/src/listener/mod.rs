//! The address where Prometheus finds the figures, and probes find out whether the relay does its work.
//!
//! It is read-only, and on the loopback unless it was asked for otherwise: whoever can reach it can read it.

mod probes;
mod server;

use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::Json;
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use posthaste_core::metric::MetricKind;
use posthaste_relay::METRICS;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

pub use probes::Probes;

use crate::config::MetricsConfig;
use crate::otel::Export;

/// How often what was measured is drained into its buckets; without that an unread histogram would grow forever.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

const PATHS: [&str; 4] = ["/metrics", "/healthz", "/readyz", "/status.json"];

/// Takes the address that is set, if one is.
pub async fn listen(config: &MetricsConfig) -> anyhow::Result<Option<TcpListener>> {
    let Some(listen) = config.listen else { return Ok(None) };
    let listener = TcpListener::bind(listen).await.with_context(|| {
        format!("metrics.listen = \"{listen}\": cannot listen there; choose a free port, or end what has this one")
    })?;
    Ok(Some(listener))
}

/// Serves figures and probes if an address is set, until the handle is dropped.
pub async fn serve(
    config: &MetricsConfig,
    probes: Probes,
    export: &Export,
) -> anyhow::Result<Option<AbortOnDropHandle<()>>> {
    let Some(listener) = listen(config).await? else {
        export.install_alone();
        posthaste_relay::describe_metrics();
        return Ok(None);
    };
    let recorder = METRICS
        .iter()
        .try_fold(PrometheusBuilder::new(), |builder, metric| match metric.kind {
            MetricKind::Histogram { buckets } => {
                builder.set_buckets_for_metric(Matcher::Full(metric.name.to_owned()), buckets)
            }
            _ => Ok(builder),
        })
        .context("metrics cannot be recorded")?
        .build_recorder();
    let figures = recorder.handle();
    export.install(recorder).context("metrics cannot be recorded")?;
    posthaste_relay::describe_metrics();
    tracing::info!("metrics at http://{}/metrics", listener.local_addr()?);
    let serving = server::serve(listener, router(figures.clone(), probes));
    Ok(Some(AbortOnDropHandle::new(tokio::spawn(async move {
        let upkeep = async {
            loop {
                tokio::time::sleep(UPKEEP_INTERVAL).await;
                figures.run_upkeep();
            }
        };
        tokio::join!(serving, upkeep);
    }))))
}

fn router(figures: PrometheusHandle, probes: Probes) -> Router {
    let metrics = async move || {
        let format = [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
        (format, figures.render())
    };
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(async |State(probes): State<Probes>| probes.alive()))
        .route("/readyz", get(async |State(probes): State<Probes>| probes.ready()))
        .route(
            "/status.json",
            get(async |State(probes): State<Probes>| probes.status()),
        )
        .fallback(async || (StatusCode::NOT_FOUND, hint("there is nothing here")))
        .method_not_allowed_fallback(async || (StatusCode::METHOD_NOT_ALLOWED, hint("this can only be read")))
        .with_state(probes)
}

/// What is wrong with a request, and what there is.
fn hint(error: &str) -> Json<serde_json::Value> {
    Json(json!({ "error": error, "paths": PATHS }))
}
