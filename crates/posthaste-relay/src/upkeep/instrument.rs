//! Logs and metrics of the message road, in one place: stores and publishers have none.

mod describe;
mod refused;
mod register;

use std::collections::{BTreeMap, HashSet};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use metrics::{counter, gauge, histogram};
use posthaste_core::envelope::Envelope;
use posthaste_core::lifecycle::Verdict;
use posthaste_core::publisher::Outcome;
use posthaste_core::store::OutboxStats;
use posthaste_core::{Message, MessageId};

pub use describe::describe_metrics;
pub(crate) use refused::{busy, claimed_after_all, refused, taken_after_all, unclaimable, unrecoverable};
pub(crate) use register::register;

use self::register::BY_TOPIC;
use crate::guard::gate::Stop;
use crate::reported::Reported;

pub(crate) fn claimed(namespace: &str, messages: usize, reclaimed: bool) {
    counter!("outbox_claimed_count", "namespace" => namespace.to_owned()).increment(messages as u64);
    if reclaimed {
        tracing::warn!(messages, "took over messages of a worker that vanished");
        counter!("outbox_reclaimed_count", "namespace" => namespace.to_owned()).increment(messages as u64);
    }
}

/// A claim took so long that its leases had to be renewed before anything could be done.
pub(crate) fn slow_claim(namespace: &str, took: Duration) {
    tracing::warn!(
        namespace,
        ?took,
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
                "the header {name:?} is left out of the event: it has the name of an attribute of the envelope, repeats \
                 another header, or cannot be carried; rename it where the row is written"
            );
        }
    }
}

/// The circuit opened in the middle of a batch, or the broker asked for patience.
pub(crate) fn stopped(namespace: &str, stop: &Stop, not_attempted: usize) {
    let id = stop.at;
    if let Some((left, cause)) = &stop.throttled {
        let until = (Utc::now() + *left).to_rfc3339_opts(SecondsFormat::Secs, true);
        tracing::warn!(
            namespace,
            error = cause,
            "throttled at message id={id}, for another {left:?} until {until}; {not_attempted} messages not attempted"
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
        "took back {messages} messages of workers that were not heard of for {stalled_after:?}"
    );
    counter!("outbox_stalled_recovered_count", "namespace" => namespace.to_owned()).increment(messages as u64);
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

pub(crate) fn settled(namespace: &str, reported: &[Reported], lost: &HashSet<MessageId>) {
    let mut topics: BTreeMap<&str, Tally> = BTreeMap::new();
    let now = Utc::now();
    let latency = histogram!("outbox_process_latency", "namespace" => namespace.to_owned());
    for reported in reported {
        let Reported {
            ticket,
            outcome,
            verdict,
        } = reported;
        let tally = topics.entry(&ticket.topic).or_default();
        if matches!(outcome, Outcome::Failed(_)) {
            tally.failed += 1;
        }
        if matches!(outcome, Outcome::Corrupt { .. }) {
            tally.corrupt += 1;
        }
        if lost.contains(&ticket.id) {
            tracing::warn!(
                id = %ticket.id, topic = ticket.topic, key = ticket.key, ?outcome,
                "lost the lease before the outcome could be written; another worker delivers it again"
            );
            counter!("outbox_lease_lost_count", "namespace" => namespace.to_owned()).increment(1);
            continue;
        }
        match verdict {
            Verdict::Delivered => {
                tally.delivered += 1;
                latency.record((now - ticket.created_at).as_seconds_f64().max(0.0));
            }
            Verdict::Dead { .. } => tally.dead += 1,
            Verdict::Retry { .. } | Verdict::Postponed { .. } | Verdict::Released => {}
        }
        tell(reported);
    }
    for (topic, tally) in topics {
        let counts = [tally.delivered, tally.failed, tally.dead, tally.corrupt];
        // Also what did not happen: from now on the topic is known, and its first failure is an increase.
        for (name, count) in BY_TOPIC.into_iter().zip(counts) {
            counter!(name, "namespace" => namespace.to_owned(), "topic" => topic.to_owned()).increment(count);
        }
    }
}

/// As many as a claim may bring in vain are not handed over.
pub(crate) fn crowded(namespace: &str, messages: u32) {
    tracing::error!(
        namespace,
        messages,
        "messages whose verdicts the database refuses, or whose destination is away, fill a whole claim; others wait behind \
         them until that is mended"
    );
}

/// A message that is tried again in place failed, or was held back behind one that did.
pub(crate) fn tried_in_place(namespace: &str, reported: &Reported) {
    if matches!(reported.outcome, Outcome::Failed(_)) {
        let topic = reported.ticket.topic.clone();
        counter!("outbox_failure_count", "namespace" => namespace.to_owned(), "topic" => topic).increment(1);
    }
    tell(reported);
}

/// Says in the log what became of a message, unless all is well.
fn tell(Reported { ticket, verdict, .. }: &Reported) {
    let (attempt, most) = (ticket.attempts, ticket.max_attempts);
    match verdict {
        Verdict::Retry { delay, error } if attempt > 1 => tracing::warn!(
            id = %ticket.id, topic = ticket.topic, key = ticket.key, attempt, ?delay, error,
            "attempt {attempt} of {most} failed and the message will be tried again"
        ),
        Verdict::Retry { delay, error } => tracing::debug!(
            id = %ticket.id, topic = ticket.topic, key = ticket.key, attempt, ?delay, error,
            "attempt {attempt} of {most} failed and the message will be tried again"
        ),
        // The circuit has said so once, for all of them.
        Verdict::Postponed { delay, error } => tracing::debug!(
            id = %ticket.id, topic = ticket.topic, key = ticket.key, ?delay, error,
            "the broker is away; the attempt does not count"
        ),
        Verdict::Dead { error } => tracing::error!(
            id = %ticket.id, topic = ticket.topic, key = ticket.key, attempts = attempt, error,
            "message is dead; replay or discard it"
        ),
        Verdict::Delivered | Verdict::Released => {}
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

#[cfg(test)]
mod tests {
    use posthaste_core::lifecycle::LeaseToken;
    use posthaste_core::store::ClaimedMessage;
    use posthaste_core::{Message, PublishError, RetryPolicy};

    use super::*;
    use crate::observed::observe;
    use crate::reported::Ticket;

    fn reported(outcome: Outcome, verdict: Verdict) -> Reported {
        let claimed = ClaimedMessage {
            message: Message::new("orders", "x").key("42"),
            fault: None,
            created_at: Utc::now(),
            attempts: 3,
            hash: None,
            version: None,
            max_attempts: Some(7),
        };
        let ticket = Ticket::new(&claimed, LeaseToken::new(), &RetryPolicy::default());
        Reported {
            ticket,
            outcome,
            verdict,
        }
    }

    fn settle(outcome: Outcome, verdict: Verdict, lost: bool) -> (BTreeMap<String, u64>, String) {
        let reported = [reported(outcome, verdict)];
        let lost = lost.then_some(reported[0].ticket.id).into_iter().collect();
        observe(|| settled("default", &reported, &lost))
    }

    /// Proves B16.
    #[test]
    fn a_death_is_counted_and_logged_as_an_error_with_its_cause() {
        let failed = Outcome::Failed(PublishError::permanent("too large"));
        let (counted, log) = settle(
            failed,
            Verdict::Dead {
                error: "too large".into(),
            },
            false,
        );
        assert_eq!((counted["outbox_dlq_count"], counted["outbox_failure_count"]), (1, 1));
        assert!(
            log.contains("ERROR") && log.contains("too large") && log.contains("key=\"42\""),
            "{log}"
        );

        let (counted, log) = observe(|| swept(&[MessageId::new()]));
        assert_eq!(counted["outbox_dlq_count"], 1);
        assert!(log.contains("ERROR"), "{log}");

        let stats = OutboxStats {
            dead: 7,
            ..OutboxStats::default()
        };
        let (counted, _) = observe(|| super::counted("default", &stats));
        assert_eq!(counted["outbox_dead_count"], 7);
    }

    /// Proves B9 and pitfall 6.
    #[test]
    fn a_lost_lease_is_counted_and_logged_and_is_not_a_delivery() {
        let (counted, log) = settle(Outcome::Delivered, Verdict::Delivered, true);
        assert_eq!(counted["outbox_lease_lost_count"], 1);
        assert_eq!(counted["outbox_processed_count"], 0);
        assert!(log.contains("WARN") && log.contains("lost the lease"), "{log}");
    }

    /// Proves D3.
    #[test]
    fn a_changed_payload_is_counted_apart() {
        let error = "the stored bytes do not match their hash";
        let (counted, log) = settle(
            Outcome::Corrupt { error: error.into() },
            Verdict::Dead { error: error.into() },
            false,
        );
        assert_eq!(
            (counted["outbox_integrity_failure_count"], counted["outbox_dlq_count"]),
            (1, 1)
        );
        assert!(log.contains("ERROR") && log.contains(error), "{log}");
    }

    #[test]
    fn a_delivery_is_counted_timed_and_not_logged() {
        let (counted, log) = settle(Outcome::Delivered, Verdict::Delivered, false);
        assert_eq!(
            (counted["outbox_processed_count"], counted["outbox_process_latency"]),
            (1, 1)
        );
        let first_failures = [
            "outbox_failure_count",
            "outbox_dlq_count",
            "outbox_integrity_failure_count",
        ];
        assert_eq!(
            first_failures.map(|name| counted[name]),
            [0; 3],
            "the topic is known from now on"
        );
        assert_eq!(log, "");
    }

    /// Proves C17.
    #[test]
    fn a_failed_retry_is_a_warning_and_a_first_failure_is_not() {
        let failed = || Outcome::Failed(PublishError::transient("not now"));
        let verdict = || Verdict::Retry {
            delay: std::time::Duration::from_secs(4),
            error: "not now".into(),
        };
        let (counted, log) = settle(failed(), verdict(), false);
        assert_eq!(counted["outbox_failure_count"], 1);
        assert!(
            log.contains("WARN") && log.contains("attempt=3") && log.contains("not now"),
            "{log}"
        );
        assert!(log.contains("attempt 3 of 7 failed"), "the row's own limit: {log}");

        let mut first = reported(failed(), verdict());
        let (counted, log) = observe(|| tried_in_place("default", &first));
        assert_eq!(counted["outbox_failure_count"], 1);
        assert!(log.contains("WARN") && log.contains("attempt 3 of 7 failed"), "{log}");

        first.ticket.attempts = 1;
        let (counted, log) = observe(|| settled("default", &[first], &HashSet::new()));
        assert_eq!((counted["outbox_failure_count"], log.as_str()), (1, ""));
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
        assert!(log.contains("WARN") && log.contains("\"ID\" is left out"), "{log}");
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
    fn a_batch_that_stopped_because_the_broker_asks_for_patience_says_for_how_long() {
        let stop = Stop {
            at: MessageId::new(),
            throttled: Some((Duration::from_secs(90), "too many requests".to_owned())),
        };
        let (counted, log) = observe(|| stopped("default", &stop, 7));
        assert_eq!(counted["outbox_circuit_refused_count"], 7);
        assert!(log.contains("throttled") && log.contains("too many requests"), "{log}");
        assert!(log.contains("90s") && !log.contains("circuit opened"), "{log}");
    }
}
