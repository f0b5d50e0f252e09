//! The variables by which Kubernetes tells every pod of its services.
//!
//! A Service called `posthaste-relay` has some that look like misspelt settings: `POSTHASTE_RELAY_SERVICE_HOST`.

/// Whether a variable, without our prefix, is such a one.
pub(super) fn is_one(key: &str, value: &str) -> bool {
    if key.contains(super::load::ENV_SEPARATOR) {
        return false;
    }
    if let Some((service, of_service)) = key.split_once("_SERVICE_") {
        return !service.is_empty()
            && (matches!(of_service, "HOST" | "PORT") || has_more(of_service.strip_prefix("PORT_")));
    }
    match key.split_once("_PORT_") {
        Some((_, of_port)) => is_of_port(of_port),
        // A number would be what somebody who wants to set a port writes.
        None => key.ends_with("_PORT") && is_address(value),
    }
}

fn has_more(rest: Option<&str>) -> bool {
    rest.is_some_and(|rest| !rest.is_empty())
}

/// `9090_TCP`, `9090_TCP_ADDR` …
fn is_of_port(of_port: &str) -> bool {
    let mut parts = of_port.split('_');
    parts.next().is_some_and(|number| number.parse::<u16>().is_ok())
        && matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"))
        && matches!(parts.next(), None | Some("PROTO" | "PORT" | "ADDR"))
        && parts.next().is_none()
}

fn is_address(value: &str) -> bool {
    ["tcp://", "udp://", "sctp://"]
        .iter()
        .any(|scheme| value.starts_with(scheme))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kubernetes_sets_for_a_service_is_told_from_settings() {
        for (key, value) in [
            ("RELAY_SERVICE_HOST", "10.0.0.11"),
            ("RELAY_SERVICE_PORT", "9090"),
            ("RELAY_SERVICE_PORT_METRICS", "9090"),
            ("RELAY_SERVICE_PORT_HTTP_METRICS", "9090"),
            ("RELAY_PORT", "tcp://10.0.0.11:9090"),
            ("RELAY_PORT_9090_TCP", "tcp://10.0.0.11:9090"),
            ("RELAY_PORT_9090_TCP_PROTO", "tcp"),
            ("RELAY_PORT_9090_TCP_PORT", "9090"),
            ("RELAY_PORT_9090_TCP_ADDR", "10.0.0.11"),
            ("RELAY_PORT_53_UDP_ADDR", "10.0.0.11"),
            ("METRICS_EU_SERVICE_HOST", "10.0.0.11"),
        ] {
            assert!(is_one(key, value), "{key}={value}");
        }
        for (key, value) in [
            ("RELAY_BATCHSIZE", "100"),
            ("RELAY_LEASE", "30s"),
            ("RELAY_SERVICE", "a"),
            ("RELAY_SERVICE_PORT_", "9090"),
            ("RELAY__SERVICE_HOST", "10.0.0.11"),
            ("METRICS_PORT", "9464"),
            ("METRICS_PORT_9464", "tcp"),
            ("METRICS_PORT_HTTP_TCP", "tcp"),
            ("METRICS_PORT_9464_TCP_HOST", "tcp"),
        ] {
            assert!(!is_one(key, value), "{key}={value}");
        }
    }
}
