//! Where traces and metrics are sent by OTLP.

use std::collections::BTreeMap;
use std::fmt;

use axum::http::{HeaderName, HeaderValue, Uri};
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

/// What headers say is a secret, and an address may hold one.
impl fmt::Debug for OtelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtelConfig")
            .field("endpoint", &self.endpoint.as_ref().map(|_| "(hidden)"))
            .field("traces", &self.traces)
            .field("metrics", &self.metrics)
            .field("headers", &self.headers.keys())
            .finish_non_exhaustive()
    }
}

impl OtelConfig {
    /// What is wrong, and where.
    pub(super) fn problem(&self) -> Option<(String, &'static str)> {
        if let Some(reason) = self.endpoint.as_ref().and_then(|url| endpoint_problem(url)) {
            return Some(("otel.endpoint".to_owned(), reason));
        }
        if self.sample_ratio.is_some_and(|ratio| !(0.0..=1.0).contains(&ratio)) {
            return Some(("otel.sample_ratio".to_owned(), "must be from 0 to 1"));
        }
        // The exporters leave out what cannot be sent, without a word.
        self.headers.iter().find_map(|(name, value)| {
            let reason = if HeaderName::try_from(name).is_err() {
                "is no name of an HTTP header; use letters, digits and -"
            } else if HeaderValue::try_from(value).is_err() {
                "cannot be sent in an HTTP header; remove line breaks and other control characters"
            } else {
                return None;
            };
            Some((format!("otel.headers.{}", name.escape_debug()), reason))
        })
    }
}

fn endpoint_problem(url: &str) -> Option<&'static str> {
    let is_http = url.starts_with("http://") || url.starts_with("https://");
    let uri = url.parse::<Uri>().ok().filter(|_| is_http);
    let Some((uri, authority)) = uri.as_ref().and_then(|uri| Some((uri, uri.authority()?))) else {
        return Some("must be an address such as http://127.0.0.1:4318");
    };
    if authority.as_str().contains('@') || uri.query().is_some() {
        return Some("must have no user, password or query; send a key with otel.headers, such as authorization");
    }
    None
}

/// How a collector is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum OtelProtocol {
    /// Protobuf in HTTP requests, usually on port 4318.
    #[default]
    #[serde(rename = "http/protobuf")]
    HttpProtobuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(config: &OtelConfig) -> String {
        config
            .problem()
            .map(|(field, reason)| format!("{field} {reason}"))
            .unwrap_or_default()
    }

    #[test]
    fn a_header_that_would_not_be_sent_is_refused() {
        let with = |name: &str, value: &str| {
            problem(&OtelConfig {
                headers: [(name.to_owned(), value.to_owned())].into(),
                ..OtelConfig::default()
            })
        };
        assert_eq!(with("X-Api-Key", "Bearer s3cret=="), "");
        assert!(with("x key", "s3cret").starts_with("otel.headers.x key is no name"));
        assert!(with("", "s3cret").starts_with("otel.headers. is no name"));
        let value = with("x-key", "s3cret\n");
        assert!(value.starts_with("otel.headers.x-key cannot be sent"), "{value}");
        assert!(!value.contains("s3cret"), "{value}");
    }

    #[test]
    fn an_endpoint_is_an_address_without_secrets() {
        let with = |endpoint: &str| {
            let config = OtelConfig {
                endpoint: Some(endpoint.to_owned()),
                ..OtelConfig::default()
            };
            assert!(!format!("{config:?}").contains("s3cret"));
            problem(&config)
        };
        assert_eq!(with("http://127.0.0.1:4318"), "");
        assert_eq!(with("https://collector.example/otlp/"), "");
        for endpoint in ["collector:4317", "http://", "http://a b:1", "grpc://collector:4317"] {
            assert!(with(endpoint).contains("must be an address"), "{endpoint}");
        }
        for endpoint in ["http://me:s3cret@collector:4318", "http://collector:4318?key=s3cret"] {
            let said = with(endpoint);
            assert!(said.contains("otel.headers") && !said.contains("s3cret"), "{said}");
        }
    }
}
