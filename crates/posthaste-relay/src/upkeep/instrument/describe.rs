//! Says to a recorder what each metric means.

use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
use posthaste_core::metric::{MetricKind, MetricUnit};

use super::catalogue::METRICS;

/// Describes every metric to the installed recorder. Call it once, after installing one.
pub fn describe_metrics() {
    for metric in METRICS {
        let unit = match metric.unit {
            MetricUnit::Seconds => Unit::Seconds,
            MetricUnit::Bytes => Unit::Bytes,
            _ => Unit::Count,
        };
        match metric.kind {
            MetricKind::Counter => describe_counter!(metric.name, unit, metric.description),
            MetricKind::Histogram { .. } => describe_histogram!(metric.name, unit, metric.description),
            _ => describe_gauge!(metric.name, unit, metric.description),
        }
    }
}
