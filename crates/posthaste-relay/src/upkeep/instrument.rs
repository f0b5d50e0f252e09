//! Logs and metrics of the message road, in one place: stores and publishers have none.

mod catalogue;
mod describe;
mod refused;
mod register;
mod road;
mod table;
mod topics;
mod verdicts;

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use metrics::{counter, gauge};
use posthaste_core::envelope::Envelope;
use posthaste_core::readable::Readable;
use posthaste_core::store::OutboxStats;
use posthaste_core::{Message, MessageId};

pub use catalogue::METRICS;
pub use describe::describe_metrics;
pub(crate) use refused::{busy, claimed_after_all, refused, taken_after_all, unclaimable, unrecoverable};
pub(crate) use register::register;
pub(crate) use road::{Latency, abandoned, claim_answered, published, settle_answered};
pub(crate) use table::{purged, topic_counted, upkeep_owner};
pub(crate) use verdicts::{delivered, settled, swept, tried_in_place};

use crate::guard::gate::Stop;

pub(crate) fn claimed(namespace: &str, messages: usize, reclaimed: bool) {
    counter!("outbox_claimed_count", "namespace" => namespace.to_owned()).increment(messages as u64);
    if reclaimed {
        counter!("outbox_reclaimed_count", "namespace" => namespace.to_owned()).increment(messages as u64);
    }
}

/// A claim took so long that its leases had to be renewed before anything could be done.
pub(crate) fn slow_claim(namespace: &str, took: Duration) {
    tracing::warn!(
        namespace,
        took = %Readable(took),
        "a claim took more than a third of its lease; the database is slow, or the lease too short"
    );
    counter!("outbox_slow_claim_count", "namespace" => namespace.to_owned()).increment(1);
}

/// Headers that the envelope does not carry. Each name is said once: its producer writes it into every message.
pub(crate) fn left_out(message: &Message) {
    /// Names are the producer's, so there may be any number of them.
    const MAX_NAMES: usize = 100;
    static SAID: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
    if message.headers.is_empty() {
        return;
    }
    for name in Envelope::new(message, DateTime::UNIX_EPOCH).left_out() {
        let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() < MAX_NAMES && said.insert(name.to_owned()) {
            tracing::warn!(
                id = %message.id,
                header = name,
                "the header `{name}` is left out of the event: it has the name of an attribute of the envelope, repeats \
                 another header, or cannot be carried; rename it where the row is written"
            );
        }
    }
}

/// The circuit opened in the middle of a batch, or the broker throttles.
pub(crate) fn stopped(namespace: &str, stop: &Stop, not_attempted: usize) {
    let id = stop.at;
    if let Some((left, cause)) = &stop.throttled {
        let until = (Utc::now() + *left).to_rfc3339_opts(SecondsFormat::Secs, true);
        tracing::warn!(
            namespace,
            error = cause,
            "throttled at message id={id}, for another {} until {until}; {not_attempted} messages not attempted",
            Readable(*left)
        );
    } else {
        tracing::warn!(
            namespace,
            "circuit opened at message id={id}, {not_attempted} messages not attempted"
        );
    }
    counter!("outbox_circuit_refused_count", "namespace" => namespace.to_owned()).increment(not_attempted as u64);
}

/// Messages are pending again because their workers were not heard of for so long.
pub(crate) fn recovered(namespace: &str, pending: &[MessageId], stalled_after: Duration) {
    if pending.is_empty() {
        return;
    }
    let messages = pending.len();
    tracing::warn!(
        namespace,
        messages,
        "took back {messages} messages of workers that were not heard of for {}",
        Readable(stalled_after)
    );
    counter!("outbox_stalled_recovered_count", "namespace" => namespace.to_owned()).increment(messages as u64);
}

/// As many as a claim may bring in vain are not handed over.
pub(crate) fn crowded(namespace: &str, messages: u32) {
    tracing::error!(
        namespace,
        messages,
        "messages whose verdicts the database refuses, or whose destination is unavailable, fill a whole claim; others wait \
         behind them until that is fixed"
    );
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observed::observe;

    /// Proves B16.
    #[test]
    fn dead_messages_are_counted() {
        let stats = OutboxStats {
            dead: 7,
            ..OutboxStats::default()
        };
        let (counted, _) = observe(|| super::counted("default", &stats));
        assert_eq!(counted["outbox_dead_count"], 7);
    }

    #[test]
    fn stalled_messages_are_a_warning_that_says_how_many_and_none_are_nothing() {
        let (counted, log) = observe(|| recovered("default", &[], Duration::from_mins(5)));
        assert_eq!((counted.len(), log.as_str()), (0, ""));
        let ids = [(); 3].map(|()| MessageId::new());
        let (counted, log) = observe(|| recovered("default", &ids, Duration::from_mins(5)));
        assert_eq!(counted["outbox_stalled_recovered_count"], 3);
        assert!(log.contains("WARN") && log.contains("took back 3 messages"), "{log}");
    }

    #[test]
    fn a_header_that_is_left_out_is_said_once() {
        let message = Message::new("t", "x").header("ID", "42").header("fine", "1");
        let (_, log) = observe(|| left_out(&message));
        assert!(log.contains("WARN") && log.contains("`ID` is left out"), "{log}");
        let (_, log) = observe(|| left_out(&message));
        assert_eq!(log, "");
    }

    /// Proves C17.
    #[test]
    fn a_batch_that_the_circuit_stopped_is_told_once() {
        let id = MessageId::new();
        let stop = Stop {
            at: id,
            throttled: None,
        };
        let (counted, log) = observe(|| stopped("default", &stop, 17));
        assert_eq!(counted["outbox_circuit_refused_count"], 17);
        let told = format!("circuit opened at message id={id}, 17 messages not attempted");
        assert!(log.contains("WARN") && log.contains(&told), "{log}");
    }

    #[test]
    fn a_batch_that_stopped_because_the_broker_throttles_says_for_how_long() {
        let stop = Stop {
            at: MessageId::new(),
            throttled: Some((Duration::from_secs(90), "too many requests".to_owned())),
        };
        let (counted, log) = observe(|| stopped("default", &stop, 7));
        assert_eq!(counted["outbox_circuit_refused_count"], 7);
        assert!(log.contains("throttled") && log.contains("too many requests"), "{log}");
        assert!(log.contains("1m 30s") && !log.contains("circuit opened"), "{log}");
    }
}
