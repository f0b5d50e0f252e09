//! Starts and ends the export.

use std::collections::HashMap;
use std::env;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use metrics::Recorder;
use metrics_util::layers::FanoutBuilder;
use opentelemetry::metrics::MeterProvider;
use opentelemetry::{KeyValue, global};
use opentelemetry_http::HttpClient;
use opentelemetry_otlp::{MetricExporter, Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::trace::SdkTracerProvider;
use posthaste_core::readable::Readable;

use super::bridge::Bridge;
use super::client::CollectorClient;
use super::sampler::ShareOfRecorded;
use crate::config::OtelConfig;

/// How long a request to the collector may take, unless `OTEL_EXPORTER_OTLP_TIMEOUT` says otherwise.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the end of the process may be delayed by what is still to be sent.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// What is sent while the process runs.
#[derive(Debug)]
pub struct Export {
    traces: Option<SdkTracerProvider>,
    metrics: Option<SdkMeterProvider>,
}

/// What is to be sent, by the settings and OpenTelemetry's variables.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    traces: bool,
    metrics: bool,
}

impl Wanted {
    fn new(config: &OtelConfig, variable: impl Fn(&str) -> Option<String>) -> Self {
        let is = |name: &str, value: &str| variable(name).is_some_and(|found| found.eq_ignore_ascii_case(value));
        if is("OTEL_SDK_DISABLED", "true") {
            return Self::default();
        }
        let has_endpoint = |signal: &str| {
            config.endpoint.is_some()
                || variable("OTEL_EXPORTER_OTLP_ENDPOINT").is_some()
                || variable(&format!("OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")).is_some()
        };
        let wanted = |signal: &str| has_endpoint(signal) && !is(&format!("OTEL_{signal}_EXPORTER"), "none");
        Self {
            traces: config.traces && wanted("TRACES"),
            metrics: config.metrics && wanted("METRICS"),
        }
    }
}

/// A variable that is set, and to more than nothing.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.trim().is_empty())
}

fn request_timeout() -> Duration {
    let given = variable("OTEL_EXPORTER_OTLP_TIMEOUT").and_then(|millis| millis.trim().parse().ok());
    given.map_or(REQUEST_TIMEOUT, Duration::from_millis)
}

/// Begins to send what is wanted. To be called on the runtime.
///
/// # Errors
/// If the collector's address cannot be one.
pub fn start(config: &OtelConfig) -> anyhow::Result<Export> {
    let wanted = Wanted::new(config, variable);
    let mut export = Export {
        traces: None,
        metrics: None,
    };
    if wanted == Wanted::default() {
        return Ok(export);
    }
    if let Some(other) = variable("OTEL_EXPORTER_OTLP_PROTOCOL").filter(|protocol| protocol != "http/protobuf") {
        tracing::warn!(
            "OTEL_EXPORTER_OTLP_PROTOCOL={other}: traces and metrics are sent as http/protobuf, usually to port 4318"
        );
    }
    let resource = resource(config);
    if wanted.traces {
        let exporter = configured(SpanExporter::builder().with_http(), config, "traces");
        let exporter = exporter.build().map_err(|_| no_address(config, "traces"))?;
        let mut provider = SdkTracerProvider::builder()
            .with_resource(resource.clone())
            .with_batch_exporter(exporter);
        if let Some(ratio) = config.sample_ratio {
            provider = provider.with_sampler(Box::new(ShareOfRecorded(ratio)) as Box<_>);
        }
        let provider = provider.build();
        global::set_tracer_provider(provider.clone());
        export.traces = Some(provider);
    }
    if wanted.metrics {
        let exporter = configured(MetricExporter::builder().with_http(), config, "metrics");
        let exporter = exporter.build().map_err(|_| no_address(config, "metrics"))?;
        let provider = SdkMeterProvider::builder()
            .with_resource(resource)
            .with_periodic_exporter(exporter)
            .build();
        export.metrics = Some(provider);
    }
    tracing::info!(
        traces = wanted.traces,
        metrics = wanted.metrics,
        "sending OpenTelemetry data by OTLP"
    );
    Ok(export)
}

/// The settings that both exporters share. An endpoint of the settings is the collector's; what the variables say is read by
/// the exporters.
fn configured<B: WithExportConfig + WithHttpConfig>(exporter: B, config: &OtelConfig, signal: &'static str) -> B {
    let client: Arc<dyn HttpClient> = Arc::new(CollectorClient::new(signal, request_timeout()));
    let headers: HashMap<String, String> = config.headers.clone().into_iter().collect();
    let exporter = exporter
        .with_protocol(Protocol::HttpBinary)
        .with_shared_http_client(client)
        .with_headers(headers);
    match &config.endpoint {
        Some(endpoint) => exporter.with_endpoint(format!("{}/v1/{signal}", endpoint.trim_end_matches('/'))),
        None => exporter,
    }
}

/// Says which setting is wrong, but not what it is: an address may hold a password.
fn no_address(config: &OtelConfig, signal: &str) -> anyhow::Error {
    let setting = match config.endpoint {
        Some(_) => "otel.endpoint".to_owned(),
        None => format!("OTEL_EXPORTER_OTLP_ENDPOINT or _{}_ENDPOINT", signal.to_uppercase()),
    };
    anyhow!("{setting}: must be an address such as http://127.0.0.1:4318")
}

/// What the relay is called: by its settings, by the variables that OpenTelemetry reads, or `posthaste`.
fn resource(config: &OtelConfig) -> Resource {
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder().with_attribute(version);
    let named = variable("OTEL_SERVICE_NAME").is_some()
        || variable("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|given| given.contains("service.name="));
    match &config.service_name {
        Some(name) => resource.with_service_name(name.clone()).build(),
        None if named => resource.build(),
        None => resource.with_service_name("posthaste").build(),
    }
}

impl Export {
    /// Makes this the recorder of all metrics, beside the one that sends them.
    pub fn install<R: Recorder + Sync + Send + 'static>(&self, recorder: R) -> anyhow::Result<()> {
        let installed = match self.bridge() {
            Some(bridge) => {
                let both = FanoutBuilder::default().add_recorder(recorder).add_recorder(bridge);
                metrics::set_global_recorder(both.build()).map_err(|error| error.to_string())
            }
            None => metrics::set_global_recorder(recorder).map_err(|error| error.to_string()),
        };
        installed.map_err(anyhow::Error::msg)
    }

    /// Records all metrics to be sent, and for nothing else.
    pub fn install_alone(&self) {
        if let Some(bridge) = self.bridge()
            && let Err(error) = metrics::set_global_recorder(bridge)
        {
            tracing::warn!(%error, "metrics cannot be recorded");
        }
    }

    fn bridge(&self) -> Option<Bridge> {
        Some(Bridge::new(self.metrics.as_ref()?.meter("posthaste")))
    }

    /// Sends what is left, but not for long.
    pub async fn stop(self) {
        if self.traces.is_none() && self.metrics.is_none() {
            return;
        }
        let (done, ended) = tokio::sync::oneshot::channel();
        // Not on the runtime, which would wait for it when it ends.
        std::thread::spawn(move || {
            if let Some(traces) = self.traces {
                drop(traces.shutdown_with_timeout(FLUSH_TIMEOUT));
            }
            if let Some(metrics) = self.metrics {
                drop(metrics.shutdown_with_timeout(FLUSH_TIMEOUT));
            }
            // The process may have ended without it.
            let _ = done.send(());
        });
        if tokio::time::timeout(FLUSH_TIMEOUT, ended).await.is_err() {
            tracing::warn!(
                "the last traces and metrics were not taken within {}",
                Readable(FLUSH_TIMEOUT)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(config: &OtelConfig, variables: &[(&str, &str)]) -> (bool, bool) {
        let found = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let Wanted { traces, metrics } = Wanted::new(config, found);
        (traces, metrics)
    }

    #[test]
    fn what_is_sent_follows_from_settings_and_variables() {
        let none = OtelConfig::default();
        let set = OtelConfig {
            endpoint: Some("http://127.0.0.1:4318".to_owned()),
            ..OtelConfig::default()
        };
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
        assert_eq!(wanted(&none, &[]), (false, false));
        assert_eq!(wanted(&set, &[]), (true, true));
        assert_eq!(wanted(&none, &[endpoint]), (true, true));
        assert_eq!(
            wanted(&none, &[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://a")]),
            (true, false)
        );
        assert_eq!(wanted(&set, &[("OTEL_SDK_DISABLED", "TRUE")]), (false, false));
        assert_eq!(
            wanted(&none, &[endpoint, ("OTEL_METRICS_EXPORTER", "none")]),
            (true, false)
        );
        let no_traces = OtelConfig { traces: false, ..set };
        assert_eq!(wanted(&no_traces, &[]), (false, true));
    }
}
