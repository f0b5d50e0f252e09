//! Figures from the start on: a counter that first appears with the event that moves it shows no increase, so that an alert
//! on one misses the event.

use metrics::{Label, counter, gauge, histogram};
use posthaste_core::metric::{Metric, MetricKind, MetricLabel};
use posthaste_core::store::Scope;

use super::catalogue::{EXHAUSTED, METRICS, NAMESPACE, TOPIC};
use super::topics::{self, UNKNOWN};

/// Shows a relay's figures before anything has happened, as far as their labels are known. Topics that the scope does not
/// name are known once a message of theirs was settled; failed calls of the database are shown by what makes the calls.
pub(crate) fn register(scope: &Scope) {
    topics::of_scope(scope);
    for metric in METRICS {
        show(metric, &scope.namespace, &scope.topics);
    }
    counter!(
        "outbox_dlq_count",
        "namespace" => scope.namespace.clone(), "topic" => UNKNOWN, "reason" => EXHAUSTED
    )
    .increment(0);
}

/// Shows a metric for every combination of the values of its labels; for none if they are not known.
fn show(metric: &Metric, namespace: &str, topics: &[String]) {
    let values = |label: &MetricLabel| -> Vec<String> {
        match label {
            label if *label == NAMESPACE => vec![namespace.to_owned()],
            label if *label == TOPIC => topics.to_vec(),
            label => label.values.iter().map(|value| (*value).to_owned()).collect(),
        }
    };
    let mut label_sets: Vec<Vec<Label>> = vec![Vec::new()];
    for label in metric.labels {
        let with = |set: Vec<Label>| {
            let values = values(label).into_iter();
            values.map(move |value| [&set[..], &[Label::new(label.name, value)]].concat())
        };
        label_sets = label_sets.into_iter().flat_map(with).collect();
    }
    for labels in label_sets {
        match metric.kind {
            // Several relays of one process may share a counter, which goes on where it is.
            MetricKind::Counter => counter!(metric.name, labels).increment(0),
            MetricKind::Gauge { initial: Some(value) } => gauge!(metric.name, labels).set(value),
            MetricKind::Histogram { .. } => drop(histogram!(metric.name, labels)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::observe;

    /// What is not there before somebody has looked, or has failed at something.
    fn is_found_out_later(metric: &Metric) -> bool {
        matches!(metric.kind, MetricKind::Gauge { initial: None })
            || metric.labels.iter().any(|label| {
                let known = *label == NAMESPACE || *label == TOPIC || !label.values.is_empty();
                !known
            })
    }

    #[test]
    fn what_is_counted_is_there_before_anything_has_happened() {
        let scope = Scope {
            topics: vec!["orders".to_owned()],
            ..Scope::default()
        };
        let (counted, _) = observe(|| register(&scope));
        for metric in METRICS.iter().filter(|metric| !is_found_out_later(metric)) {
            let first = match metric.kind {
                MetricKind::Gauge { initial: Some(1.0) } => 1,
                _ => 0,
            };
            assert_eq!(counted.get(metric.name), Some(&first), "{metric:?} in {counted:?}");
        }
        assert!(counted.len() > 30 && !counted.contains_key("outbox_pending_count"));
    }

    #[test]
    fn topics_that_nobody_named_are_unknown_at_first() {
        let (counted, _) = observe(|| register(&Scope::default()));
        assert!(!counted.contains_key("outbox_processed_count"), "{counted:?}");
    }

    #[test]
    fn every_metric_stands_once_in_the_catalogue_in_the_words_of_prometheus() {
        let mut names: Vec<_> = METRICS.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
        let is_word = |word: &str| word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
        for metric in METRICS {
            assert!(is_word(metric.name), "{metric:?}");
            assert!(metric.labels.iter().all(|label| is_word(label.name)), "{metric:?}");
            assert!(metric.description.ends_with('.'), "{metric:?}");
            if let MetricKind::Histogram { buckets } = metric.kind {
                assert!(buckets.windows(2).all(|pair| pair[0] < pair[1]), "{metric:?}");
            }
        }
    }
}
