//! The page about metrics, held against the catalogue of the consumer's.

use std::collections::BTreeMap;

use posthaste_consumer::METRICS;
use posthaste_core::metric::MetricKind;

#[test]
fn the_page_has_every_metric_of_a_consumer_with_its_type_and_labels_and_no_other() {
    let page = include_str!("../../../../docs/metrics.md");
    let (_, about_consumers) = page.split_once("\n## Consumer\n").unwrap();
    let rows: BTreeMap<&str, (&str, Vec<&str>)> = about_consumers
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.split(" | ");
            let (name, kind, labels) = (cells.next()?, cells.next()?, cells.next()?);
            let labels = labels.split('`').skip(1).step_by(2).collect();
            Some((name.trim_end_matches('`'), (kind, labels)))
        })
        .collect();
    let catalogue: BTreeMap<_, _> = METRICS
        .iter()
        .map(|metric| {
            let kind = match metric.kind {
                MetricKind::Counter => "counter",
                MetricKind::Histogram { .. } => "histogram",
                _ => "gauge",
            };
            let labels = metric.labels.iter().map(|label| label.name).collect();
            (metric.name, (kind, labels))
        })
        .collect();
    assert_eq!(rows, catalogue);
}
