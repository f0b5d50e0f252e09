//! Where traces and metrics are sent by OTLP.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

/// Where traces and metrics are sent by OTLP. What is not set here is taken from OpenTelemetry's own variables.
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OtelConfig {
    /// The collector, such as `http://127.0.0.1:4318`; `/v1/traces` and `/v1/metrics` are added. Defaults to
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`, and without that nothing is sent.
    pub endpoint: Option<String>,
    /// How it is spoken to. Defaults to `http/protobuf`, the only one there is.
    pub protocol: OtelProtocol,
    /// Whether a span for each attempt to send a message is sent. Defaults to true.
    pub traces: bool,
    /// Whether metrics are sent. Defaults to true.
    pub metrics: bool,
    /// What the relay is called there. Defaults to `OTEL_SERVICE_NAME`, else to `posthaste`.
    pub service_name: Option<String>,
    /// Sent with each request, such as an API key. Defaults to `OTEL_EXPORTER_OTLP_HEADERS`.
    pub headers: BTreeMap<String, String>,
    /// The share of recorded traces in which the relay records its spans, from 0 to 1. Defaults to what `OTEL_TRACES_SAMPLER`
    /// says, else to all of them.
    pub sample_ratio: Option<f64>,
}

impl Default for OtelConfig {
    fn default() -> Self {
        Self {
            endpoint: None,
            protocol: OtelProtocol::default(),
            traces: true,
            metrics: true,
            service_name: None,
            headers: BTreeMap::new(),
            sample_ratio: None,
        }
    }
}

/// What headers say is a secret.
impl fmt::Debug for OtelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtelConfig")
            .field("endpoint", &self.endpoint)
            .field("traces", &self.traces)
            .field("metrics", &self.metrics)
            .field("headers", &self.headers.keys())
            .finish_non_exhaustive()
    }
}

impl OtelConfig {
    /// What is wrong, and where.
    pub(super) fn problem(&self) -> Option<(&'static str, &'static str)> {
        let is_address = |url: &String| url.starts_with("http://") || url.starts_with("https://");
        if self.endpoint.as_ref().is_some_and(|url| !is_address(url)) {
            return Some(("otel.endpoint", "must be an address such as http://127.0.0.1:4318"));
        }
        if self.sample_ratio.is_some_and(|ratio| !(0.0..=1.0).contains(&ratio)) {
            return Some(("otel.sample_ratio", "must be from 0 to 1"));
        }
        None
    }
}

/// How a collector is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum OtelProtocol {
    /// Protobuf in HTTP requests, usually on port 4318.
    #[default]
    #[serde(rename = "http/protobuf")]
    HttpProtobuf,
}
