//! The address under which Prometheus finds the figures.

use anyhow::Context;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

use crate::config::MetricsConfig;

/// Seconds from enqueue to delivery, from a wake-up in the same process to an outage over lunch.
const LATENCY_BUCKETS: [f64; 12] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0, 3600.0];

/// Serves the figures if an address is set.
pub fn serve(config: &MetricsConfig) -> anyhow::Result<()> {
    let Some(listen) = config.listen else { return Ok(()) };
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full("outbox_process_latency".to_owned()), &LATENCY_BUCKETS)
        .and_then(|builder| builder.with_http_listener(listen).install())
        .with_context(|| format!("metrics.listen = \"{listen}\": cannot listen there; choose a free port"))?;
    posthaste_relay::describe_metrics();
    tracing::info!("metrics at http://{listen}/metrics");
    Ok(())
}
