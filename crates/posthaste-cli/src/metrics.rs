//! The address where Prometheus finds the figures, and probes find out whether the relay does its work.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::Json;
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use posthaste_core::breaker::CircuitState;
use posthaste_relay::Health;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::config::MetricsConfig;
use crate::http;
use crate::otel::Export;

/// Seconds from enqueue to delivery, from a wake-up in the same process to an outage over lunch.
const LATENCY_BUCKETS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0, 3600.0];

/// How often what was measured is drained into its buckets; without that an unread histogram would grow forever.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// What the probes look at.
#[derive(Clone, Debug, Default)]
pub struct Probes(Arc<OnceLock<Health>>);

impl Probes {
    /// The database was reached, and this relay begins.
    pub fn watch(&self, relay: Health) {
        // There is one relay in a process.
        let _ = self.0.set(relay);
    }

    fn answer(&self) -> Answer {
        let relay = self.0.get();
        let circuit = relay.and_then(Health::circuit);
        let problem = match &circuit {
            None => Some("the relay has not started: it waits for its database, and the log says why".to_owned()),
            Some(_) => relay.and_then(Health::problem),
        };
        Answer {
            ready: problem.is_none(),
            relay: if circuit.is_some() { "running" } else { "starting" },
            problem,
            circuit: circuit.as_ref().map(|(state, _)| *state),
            circuit_reason: circuit.and_then(|(_, reason)| reason),
            unavailable: relay.map(Health::unavailable).unwrap_or_default(),
        }
    }
}

/// The answer to a probe.
#[derive(Debug, Serialize)]
struct Answer {
    ready: bool,
    relay: &'static str,
    /// Why it is not ready.
    problem: Option<String>,
    circuit: Option<CircuitState>,
    circuit_reason: Option<String>,
    /// The destinations that are unavailable while others are not, each with the reason.
    unavailable: BTreeMap<String, String>,
}

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
    let recorder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full("outbox_process_latency".to_owned()), &LATENCY_BUCKETS)
        .context("metrics cannot be recorded")?
        .build_recorder();
    let figures = recorder.handle();
    export.install(recorder).context("metrics cannot be recorded")?;
    posthaste_relay::describe_metrics();
    tracing::info!("metrics at http://{}/metrics", listener.local_addr()?);
    let serving = http::serve(listener, router(figures.clone(), probes));
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
    // A relay that loses one of its tasks ends, and its process with it. A database that is unavailable is waited for,
    // and a restart would not bring it back: whoever answers is alive.
    let alive = async |State(probes): State<Probes>| Json(probes.answer());
    let ready = async |State(probes): State<Probes>| {
        let answer = probes.answer();
        let status = if answer.ready {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        (status, Json(answer))
    };
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .with_state(probes)
}
