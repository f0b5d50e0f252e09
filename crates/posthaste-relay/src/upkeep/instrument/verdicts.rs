//! What became of messages, in figures and in the log.

use std::collections::{BTreeMap, HashSet};

use chrono::Utc;
use metrics::{counter, histogram};
use posthaste_core::MessageId;
use posthaste_core::lifecycle::Verdict;
use posthaste_core::publisher::Outcome;

use super::register::BY_TOPIC;
use crate::reported::Reported;

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
            message,
            outcome,
            verdict,
            ..
        } = reported;
        let tally = topics.entry(&message.topic).or_default();
        if matches!(outcome, Outcome::Failed(_)) {
            tally.failed += 1;
        }
        if matches!(outcome, Outcome::Corrupt { .. }) {
            tally.corrupt += 1;
        }
        if lost.contains(&message.id) {
            tracing::warn!(
                id = %message.id, topic = message.topic, key = message.key, ?outcome,
                "lost the lease before the outcome could be written; another worker delivers it again"
            );
            counter!("outbox_lease_lost_count", "namespace" => namespace.to_owned()).increment(1);
            continue;
        }
        match verdict {
            Verdict::Delivered => {
                tally.delivered += 1;
                latency.record((now - message.created_at).as_seconds_f64().max(0.0));
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

/// A message that is tried again in place failed, or was held back behind one that did.
pub(crate) fn tried_in_place(namespace: &str, reported: &Reported) {
    if matches!(reported.outcome, Outcome::Failed(_)) {
        let topic = reported.message.topic.clone();
        counter!("outbox_failure_count", "namespace" => namespace.to_owned(), "topic" => topic).increment(1);
    }
    tell(reported);
}

/// Says in the log what became of a message, unless all is well.
fn tell(Reported { message, verdict, .. }: &Reported) {
    let (attempt, most) = (message.attempts, message.max_attempts);
    match verdict {
        Verdict::Retry { delay, error } if attempt > 1 => tracing::warn!(
            id = %message.id, topic = message.topic, key = message.key, attempt, ?delay, error,
            "attempt {attempt} of {most} failed and the message will be tried again"
        ),
        Verdict::Retry { delay, error } => tracing::debug!(
            id = %message.id, topic = message.topic, key = message.key, attempt, ?delay, error,
            "attempt {attempt} of {most} failed and the message will be tried again"
        ),
        // The circuit has said so once, for all of them.
        Verdict::Postponed { delay, error } => tracing::debug!(
            id = %message.id, topic = message.topic, key = message.key, ?delay, error,
            "the broker is unavailable; the attempt does not count"
        ),
        Verdict::Dead { error } => tracing::error!(
            id = %message.id, topic = message.topic, key = message.key, attempts = attempt, error,
            "message is dead; replay or discard it"
        ),
        Verdict::Delivered | Verdict::Released => {}
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::lifecycle::LeaseToken;
    use posthaste_core::store::ClaimedMessage;
    use posthaste_core::{Message, PublishError, RetryPolicy};

    use super::*;
    use crate::observed::observe;
    use crate::reported::InFlightMessage;

    fn reported(outcome: Outcome, verdict: Verdict) -> Reported {
        let claimed = ClaimedMessage {
            message: Message::new("orders", "x").key("42"),
            fault: None,
            sequence: None,
            created_at: Utc::now(),
            attempts: 3,
            hash: None,
            version: None,
            max_attempts: Some(7),
        };
        let message = InFlightMessage::new(&claimed, LeaseToken::new(), &RetryPolicy::default());
        Reported {
            message,
            outcome,
            verdict,
            spooled: false,
        }
    }

    fn settle(outcome: Outcome, verdict: Verdict, lost: bool) -> (BTreeMap<String, u64>, String) {
        let reported = [reported(outcome, verdict)];
        let lost = lost.then_some(reported[0].message.id).into_iter().collect();
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
    }

    /// Proves B9 and pitfall 6.
    #[test]
    fn a_lost_lease_is_counted_and_logged_and_is_not_a_delivery() {
        let (counted, log) = settle(Outcome::DELIVERED, Verdict::Delivered, true);
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
        let (counted, log) = settle(Outcome::DELIVERED, Verdict::Delivered, false);
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

        first.message.attempts = 1;
        let (counted, log) = observe(|| settled("default", &[first], &HashSet::new()));
        assert_eq!((counted["outbox_failure_count"], log.as_str()), (1, ""));
    }
}
