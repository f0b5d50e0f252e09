//! Logs and metrics of the message road, in one place: stores and publishers have none.

use std::collections::{BTreeMap, HashSet};

use chrono::Utc;
use metrics::{counter, gauge, histogram};
use posthaste_core::MessageId;
use posthaste_core::lifecycle::{Settlement, Verdict};
use posthaste_core::publisher::Outcome;
use posthaste_core::store::OutboxStats;

use crate::engine::Reported;

/// Describes every metric to the installed recorder. Call it once, after installing one.
pub fn describe_metrics() {
    use metrics::{Unit, describe_counter, describe_gauge, describe_histogram};
    describe_counter!("outbox_claimed_count", Unit::Count, "Messages claimed.");
    describe_counter!(
        "outbox_reclaimed_count",
        Unit::Count,
        "Messages claimed again after their worker vanished."
    );
    describe_counter!("outbox_processed_count", Unit::Count, "Messages delivered.");
    describe_counter!("outbox_failure_count", Unit::Count, "Delivery attempts that failed.");
    describe_counter!("outbox_dlq_count", Unit::Count, "Messages that became dead.");
    describe_counter!(
        "outbox_integrity_failure_count",
        Unit::Count,
        "Messages whose bytes did not match their hash."
    );
    describe_counter!(
        "outbox_lease_lost_count",
        Unit::Count,
        "Messages whose lease was lost before they were settled."
    );
    describe_counter!("outbox_store_error_count", Unit::Count, "Failed calls of the database.");
    describe_counter!(
        "outbox_purged_count",
        Unit::Count,
        "Rows removed after their retention."
    );
    describe_histogram!(
        "outbox_process_latency",
        Unit::Seconds,
        "From enqueue to acknowledged delivery."
    );
    describe_gauge!("outbox_pending_count", Unit::Count, "Messages waiting to be claimed.");
    describe_gauge!(
        "outbox_waiting_count",
        Unit::Count,
        "Pending messages that are not due yet."
    );
    describe_gauge!("outbox_processing_count", Unit::Count, "Messages under a lease.");
    describe_gauge!(
        "outbox_dead_count",
        Unit::Count,
        "Dead messages that wait for an operator."
    );
    describe_gauge!(
        "outbox_oldest_age_seconds",
        Unit::Seconds,
        "Age of the oldest undelivered message."
    );
}

pub(crate) fn claimed(namespace: &str, messages: usize, reclaimed: bool) {
    counter!("outbox_claimed_count", "namespace" => namespace.to_owned()).increment(messages as u64);
    if reclaimed {
        tracing::warn!(messages, "took over messages of a worker that vanished");
        counter!("outbox_reclaimed_count", "namespace" => namespace.to_owned()).increment(messages as u64);
    }
}

pub(crate) fn swept(died: &[MessageId]) {
    for id in died {
        tracing::error!(%id, "message is dead: it used all its attempts, the last one without an answer");
    }
    if !died.is_empty() {
        counter!("outbox_dlq_count", "reason" => "exhausted").increment(died.len() as u64);
    }
}

/// What happened to the messages of one topic.
#[derive(Default)]
struct Tally {
    delivered: u64,
    failed: u64,
    dead: u64,
    corrupt: u64,
}

pub(crate) fn settled(namespace: &str, reported: &[Reported], settlements: &[Settlement], lost: &HashSet<MessageId>) {
    let mut topics: BTreeMap<&str, Tally> = BTreeMap::new();
    let now = Utc::now();
    let latency = histogram!("outbox_process_latency", "namespace" => namespace.to_owned());
    for (Reported { claimed, outcome, .. }, settlement) in reported.iter().zip(settlements) {
        let message = &claimed.message;
        let tally = topics.entry(&message.topic).or_default();
        if matches!(outcome, Outcome::Failed(_)) {
            tally.failed += 1;
        }
        if matches!(outcome, Outcome::Corrupt { .. }) {
            tally.corrupt += 1;
        }
        if lost.contains(&settlement.id) {
            tracing::warn!(
                id = %message.id, topic = message.topic, key = message.ordering_key, ?outcome,
                "lost the lease before the outcome could be written; another worker delivers it again"
            );
            counter!("outbox_lease_lost_count", "namespace" => namespace.to_owned()).increment(1);
            continue;
        }
        match &settlement.verdict {
            Verdict::Delivered => {
                tally.delivered += 1;
                latency.record((now - claimed.created_at).as_seconds_f64().max(0.0));
            }
            Verdict::Retry { delay, error } => tracing::debug!(
                id = %message.id, topic = message.topic, key = message.ordering_key,
                attempt = claimed.attempts, ?delay, error, "delivery failed and will be tried again"
            ),
            Verdict::Dead { error } => {
                tally.dead += 1;
                tracing::error!(
                    id = %message.id, topic = message.topic, key = message.ordering_key,
                    attempts = claimed.attempts, error, "message is dead; replay or discard it"
                );
            }
            Verdict::Released => {}
        }
    }
    for (topic, tally) in topics {
        for (name, count) in [
            ("outbox_processed_count", tally.delivered),
            ("outbox_failure_count", tally.failed),
            ("outbox_dlq_count", tally.dead),
            ("outbox_integrity_failure_count", tally.corrupt),
        ] {
            if count > 0 {
                counter!(name, "namespace" => namespace.to_owned(), "topic" => topic.to_owned()).increment(count);
            }
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "gauges are floats; counts beyond 2^52 rows are out of reach"
)]
pub(crate) fn counted(namespace: &str, stats: &OutboxStats) {
    for (name, value) in [
        ("outbox_pending_count", stats.pending as f64),
        ("outbox_waiting_count", stats.waiting as f64),
        ("outbox_processing_count", stats.processing as f64),
        ("outbox_dead_count", stats.dead as f64),
        ("outbox_oldest_age_seconds", stats.oldest_seconds),
    ] {
        gauge!(name, "namespace" => namespace.to_owned()).set(value);
    }
}

pub(crate) fn purged(rows: u64) {
    counter!("outbox_purged_count").increment(rows);
}
