//! How long the steps of the road take, and how many messages go together. Told per batch, not per message.

use std::time::Duration;

use chrono::{DateTime, Utc};
use metrics::{Histogram, counter, histogram};

use super::catalogue::ABANDONED;

/// The database answered a claim.
pub(crate) fn claim_answered(namespace: &str, took: Duration, messages: usize) {
    histogram!("outbox_claim_seconds", "namespace" => namespace.to_owned()).record(took);
    if messages > 0 {
        batch("outbox_claim_messages", namespace, messages);
    }
}

/// The publisher is done with a batch.
pub(crate) fn published(namespace: &str, took: Duration, messages: usize) {
    histogram!("outbox_publish_seconds", "namespace" => namespace.to_owned()).record(took);
    batch("outbox_publish_messages", namespace, messages);
}

/// The database wrote what became of messages.
pub(crate) fn settle_answered(namespace: &str, took: Duration, messages: usize) {
    histogram!("outbox_settle_seconds", "namespace" => namespace.to_owned()).record(took);
    batch("outbox_settle_messages", namespace, messages);
}

#[expect(clippy::cast_precision_loss, reason = "histograms are of floats")]
fn batch(name: &'static str, namespace: &str, messages: usize) {
    histogram!(name, "namespace" => namespace.to_owned()).record(messages as f64);
}

/// How long messages take from their enqueue to the acknowledgement of their delivery.
pub(crate) struct Latency {
    histogram: Histogram,
    /// Every so many messages are looked at.
    every: usize,
}

/// In a batch of more than this one message in [`SAMPLE`] is looked at: to read the clock for each would take longer than all
/// else that is done about it.
const ALL_OF: usize = 64;
const SAMPLE: usize = 16;

impl Latency {
    /// Of a batch with so many messages.
    pub(crate) fn new(namespace: &str, messages: usize) -> Self {
        Self {
            histogram: histogram!("outbox_process_latency", "namespace" => namespace.to_owned()),
            every: if messages > ALL_OF { SAMPLE } else { 1 },
        }
    }

    /// A message was acknowledged in this moment. When it was enqueued is said by another machine's clock, which may be
    /// ahead of ours.
    pub(crate) fn acknowledged(&self, place: usize, created_at: DateTime<Utc>) {
        if place.is_multiple_of(self.every) {
            self.histogram
                .record((Utc::now() - created_at).as_seconds_f64().max(0.0));
        }
    }
}

/// A relay that stops has no answer for messages, or could not write it: they go out again after their lease.
pub(crate) fn abandoned(namespace: &str, messages: u32) {
    counter!("outbox_repeated_count", "namespace" => namespace.to_owned(), "reason" => ABANDONED)
        .increment(u64::from(messages));
}

#[cfg(test)]
mod tests {
    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    use super::*;
    use crate::observed::observe;

    /// Proves E7.
    #[test]
    fn latency_counts_from_the_enqueue_to_now_and_is_never_negative() {
        let recorder = DebuggingRecorder::new();
        let snapshotter = recorder.snapshotter();
        metrics::with_local_recorder(&recorder, || {
            let latency = Latency::new("default", 2);
            latency.acknowledged(0, Utc::now() - Duration::from_secs(90));
            latency.acknowledged(1, Utc::now() + Duration::from_secs(90));
        });
        let (_, _, _, value) = snapshotter.snapshot().into_vec().remove(0);
        let DebugValue::Histogram(seen) = value else {
            panic!("{value:?}")
        };
        assert!((90.0..91.0).contains(&seen[0].into_inner()), "{seen:?}");
        assert!(seen[1].into_inner().abs() < f64::EPSILON, "{seen:?}");
    }

    #[test]
    fn a_claim_that_found_nothing_is_timed_and_is_no_batch() {
        let (counted, _) = observe(|| claim_answered("default", Duration::from_millis(3), 0));
        assert_eq!(counted["outbox_claim_seconds"], 1);
        assert!(!counted.contains_key("outbox_claim_messages"), "{counted:?}");
        let (counted, _) = observe(|| claim_answered("default", Duration::from_millis(3), 7));
        assert_eq!(counted["outbox_claim_messages"], 1);
    }
}
