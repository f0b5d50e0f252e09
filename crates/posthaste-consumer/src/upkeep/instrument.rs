//! Logs and metrics of the way of an event, in one place.

mod catalogue;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use metrics::{Label, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use posthaste_core::StoreError;
use posthaste_core::envelope::ReceivedEvent;
use posthaste_core::metric::{MetricKind, MetricUnit};
use posthaste_core::readable::Readable;

pub use catalogue::METRICS;
use catalogue::{TOPIC, TYPE};

use crate::handling::HandlerError;
use crate::report::Totals;
use crate::source::{Lane, Record};

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

/// Shows what is known before anything has happened: a counter that first appears with the event that moves it shows no
/// increase, so that an alert on one misses the event.
pub(crate) fn register<'a>(topics: &[String], types: impl Iterator<Item = &'a str>) {
    let types: Vec<_> = types.map(str::to_owned).collect();
    for metric in METRICS {
        let label_sets: Vec<Vec<Label>> = match metric.labels {
            [] => vec![Vec::new()],
            [label] => {
                let values = match label {
                    label if *label == TYPE => types.clone(),
                    label if *label == TOPIC => topics.to_vec(),
                    label => label.values.iter().map(|value| (*value).to_owned()).collect(),
                };
                values
                    .into_iter()
                    .map(|value| vec![Label::new(label.name, value)])
                    .collect()
            }
            // Those of partitions are shown once there are partitions.
            _ => Vec::new(),
        };
        for labels in label_sets {
            match metric.kind {
                MetricKind::Counter => counter!(metric.name, labels).increment(0),
                MetricKind::Gauge { initial: Some(value) } => gauge!(metric.name, labels).set(value),
                MetricKind::Histogram { .. } => drop(histogram!(metric.name, labels)),
                _ => {}
            }
        }
    }
}

fn count(total: &AtomicU64) {
    total.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn handled(totals: &Totals, event: &ReceivedEvent, took: Duration) {
    count(&totals.handled);
    counter!("consumer_handled_count", "type" => event.event_type.clone()).increment(1);
    histogram!("consumer_handle_latency", "type" => event.event_type.clone()).record(took.as_secs_f64());
}

pub(crate) fn duplicate(totals: &Totals, event: &ReceivedEvent, action: &str) {
    tracing::debug!(
        r#type = event.event_type,
        id = event.id,
        action,
        "event was handled before; skipped"
    );
    count(&totals.duplicates);
    counter!("consumer_duplicate_count", "type" => event.event_type.clone()).increment(1);
}

pub(crate) fn skipped(totals: &Totals, record: &impl Record, event: &ReceivedEvent) {
    tracing::debug!(
        r#type = event.event_type,
        id = event.id,
        "no handler is registered; skipped"
    );
    count(&totals.skipped);
    counter!("consumer_skipped_count", "topic" => record.topic().to_owned()).increment(1);
}

pub(crate) fn tombstone(totals: &Totals, record: &impl Record) {
    let (topic, partition, offset) = (record.topic(), record.partition(), record.offset());
    tracing::debug!(topic, partition, offset, "the record has no value; skipped");
    count(&totals.skipped);
    counter!("consumer_skipped_count", "topic" => topic.to_owned()).increment(1);
}

pub(crate) fn failed(
    totals: &Totals,
    record: &impl Record,
    event: &ReceivedEvent,
    attempt: u32,
    error: &HandlerError,
    wait: Duration,
) {
    let (topic, partition, offset) = (record.topic(), record.partition(), record.offset());
    let (kind, id) = (&event.event_type, &event.id);
    // A first failure is often the last; a failed retry seldom comes alone.
    if attempt == 1 {
        tracing::debug!(topic, partition, offset, r#type = kind, id, attempt, %error, wait = %Readable(wait), "handler failed");
    } else {
        tracing::warn!(topic, partition, offset, r#type = kind, id, attempt, %error, wait = %Readable(wait), "retry failed");
    }
    count(&totals.retried);
    counter!("consumer_retry_count", "type" => event.event_type.clone()).increment(1);
}

/// `before` says how many commits of the same event failed before this one.
pub(crate) fn commit_failed(record: &impl Record, event: &ReceivedEvent, before: u32, error: &StoreError) {
    counter!("consumer_commit_failed_count", "type" => event.event_type.clone()).increment(1);
    // The first is an outage's, as far as anybody can tell.
    if before == 1 {
        tracing::error!(
            topic = record.topic(),
            partition = record.partition(),
            offset = record.offset(),
            r#type = event.event_type,
            id = event.id,
            %error,
            "the transaction of a handler could not be committed, again; from now on that counts as a failed attempt; if the \
             handler does other things for long, see idle_in_transaction_session_timeout of the server"
        );
    }
}

pub(crate) fn dead_lettering(record: &impl Record, destination: &str, error: &str, attempts: u32) {
    tracing::warn!(
        topic = destination,
        partition = record.partition(),
        offset = record.offset(),
        attempts,
        error,
        "sending to the dead-letter topic"
    );
}

pub(crate) fn stubbed(record: &impl Record, destination: &str) {
    tracing::error!(
        topic = destination,
        partition = record.partition(),
        offset = record.offset(),
        bytes = record.size(),
        "the record is too large for its dead-letter topic, where a stub says where it is; copy it before its topic's \
         retention is over, and raise max.message.bytes of the dead-letter topic (`posthaste topics apply`)"
    );
}

pub(crate) fn dead_lettered(totals: &Totals, record: &impl Record) {
    count(&totals.dead_letters);
    counter!("consumer_dead_letter_count", "topic" => record.topic().to_owned()).increment(1);
}

#[expect(clippy::cast_precision_loss, reason = "gauges are floats")]
pub(crate) fn lag(Lane { topic, partition }: &Lane, events: i64) {
    gauge!("consumer_lag", "topic" => topic.clone(), "partition" => partition.to_string()).set(events as f64);
}

/// How long a record of a partition has been in hand.
pub(crate) fn in_hand(Lane { topic, partition }: &Lane, since: Duration) {
    gauge!("consumer_partition_seconds", "topic" => topic.clone(), "partition" => partition.to_string())
        .set(since.as_secs_f64());
}

#[expect(clippy::cast_precision_loss, reason = "gauges are floats")]
pub(crate) fn waiting(events: usize, paused_partitions: usize) {
    gauge!("consumer_queued_count").set(events as f64);
    gauge!("consumer_paused_partitions").set(paused_partitions as f64);
}

pub(crate) fn purged(records: u64) {
    counter!("consumer_inbox_purged_count").increment(records);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    use super::*;

    #[test]
    fn what_is_counted_is_there_before_anything_has_happened() {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        metrics::with_local_recorder(&recorder, || register(&["orders".to_owned()], ["sold"].into_iter()));
        let shown: BTreeMap<_, _> = snapshotter
            .snapshot()
            .into_vec()
            .into_iter()
            .map(|(key, _, _, value)| (key.key().name().to_owned(), value))
            .collect();
        for metric in METRICS.iter().filter(|metric| !metric.has_label("partition")) {
            let first = match metric.kind {
                MetricKind::Gauge { initial } => DebugValue::Gauge(initial.unwrap_or_default().into()),
                MetricKind::Histogram { .. } => DebugValue::Histogram(Vec::new()),
                _ => DebugValue::Counter(0),
            };
            assert_eq!(shown.get(metric.name), Some(&first), "{metric:?} in {shown:?}");
        }
        assert!(shown.len() > 10 && !shown.contains_key("consumer_lag"));
    }
}
