//! What became of messages, in figures.

use std::collections::{BTreeMap, HashSet};

use metrics::counter;
use posthaste_core::MessageId;
use posthaste_core::lifecycle::Verdict;
use posthaste_core::publisher::{ErrorKind, Outcome};

use super::catalogue::{DEATHS, EXHAUSTED, INTEGRITY, LEASE_LOST, RECLAIMED, REFUSED};
use super::topics::{self, UNKNOWN};
use crate::reported::{InFlightMessage, NotSent, Reported};

pub(crate) fn swept(namespace: &str, died: &[MessageId]) {
    for id in died {
        tracing::error!(%id, "message is dead: it used all its attempts, the last one without an answer");
    }
    if !died.is_empty() {
        count_dead(namespace, UNKNOWN, EXHAUSTED, died.len() as u64);
    }
}

/// What happened to the messages of one topic.
#[derive(Default)]
struct Tally {
    delivered: u64,
    failed: u64,
    corrupt: u64,
    /// By reason.
    dead: [u64; DEATHS.len()],
}

/// What happened to messages, whatever their topic.
#[derive(Default)]
struct Totals {
    lost: u64,
    /// By reason.
    released: BTreeMap<&'static str, u64>,
    repeated: BTreeMap<&'static str, u64>,
}

pub(crate) fn settled(namespace: &str, reported: &[Reported], lost: &HashSet<MessageId>) {
    let mut topics: BTreeMap<&str, Tally> = BTreeMap::new();
    let mut totals = Totals::default();
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
            totals.lost += 1;
            if *verdict == Verdict::Delivered {
                *totals.repeated.entry(LEASE_LOST).or_default() += 1;
            }
            continue;
        }
        match verdict {
            Verdict::Delivered => {
                tally.delivered += 1;
                if message.reclaimed {
                    *totals.repeated.entry(RECLAIMED).or_default() += 1;
                }
            }
            Verdict::Dead { .. } => {
                let reason = death(outcome);
                tally.dead[DEATHS.iter().position(|known| *known == reason).unwrap_or_default()] += 1;
            }
            Verdict::Released => {
                let reason = message.not_sent.unwrap_or(NotSent::Order).as_str();
                *totals.released.entry(reason).or_default() += 1;
            }
            Verdict::Retry { .. } | Verdict::Postponed { .. } => {}
        }
    }
    count(namespace, topics);
    totals.count(namespace);
}

/// Messages of this call, and no others of its topics, were delivered.
pub(crate) fn delivered<'a>(namespace: &str, messages: impl Iterator<Item = &'a InFlightMessage>) {
    let mut topics: BTreeMap<&str, Tally> = BTreeMap::new();
    let mut totals = Totals::default();
    // Mostly a message has the topic of the one before.
    let (mut topic, mut run) = ("", 0);
    for message in messages {
        if message.topic != topic {
            if run > 0 {
                topics.entry(topic).or_default().delivered += run;
            }
            (topic, run) = (&message.topic, 0);
        }
        run += 1;
        if message.reclaimed {
            *totals.repeated.entry(RECLAIMED).or_default() += 1;
        }
    }
    if run > 0 {
        topics.entry(topic).or_default().delivered += run;
    }
    count(namespace, topics);
    totals.count(namespace);
}

/// Also what did not happen: from now on the topic is known, and its first failure is an increase.
fn count(namespace: &str, topics: BTreeMap<&str, Tally>) {
    for (topic, tally) in topics {
        let topic = topics::label(namespace, topic);
        for (name, count) in [
            ("outbox_processed_count", tally.delivered),
            ("outbox_integrity_failure_count", tally.corrupt),
        ] {
            counter!(name, "namespace" => namespace.to_owned(), "topic" => topic.clone()).increment(count);
        }
        count_failed(namespace, &topic, tally.failed);
        for (reason, count) in DEATHS.into_iter().zip(tally.dead) {
            count_dead(namespace, &topic, reason, count);
        }
    }
}

impl Totals {
    fn count(self, namespace: &str) {
        if self.lost > 0 {
            counter!("outbox_lease_lost_count", "namespace" => namespace.to_owned()).increment(self.lost);
        }
        for (name, by_reason) in [
            ("outbox_released_count", self.released),
            ("outbox_repeated_count", self.repeated),
        ] {
            for (reason, count) in by_reason {
                counter!(name, "namespace" => namespace.to_owned(), "reason" => reason).increment(count);
            }
        }
    }
}

/// Why a message is dead.
fn death(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Corrupt { .. } => INTEGRITY,
        Outcome::Failed(error) if error.kind == ErrorKind::Permanent => REFUSED,
        _ => EXHAUSTED,
    }
}

fn count_dead(namespace: &str, topic: &str, reason: &'static str, messages: u64) {
    let (namespace, topic) = (namespace.to_owned(), topic.to_owned());
    counter!("outbox_dlq_count", "namespace" => namespace, "topic" => topic, "reason" => reason).increment(messages);
}

/// Failed attempts have two names that people look for.
fn count_failed(namespace: &str, topic: &str, attempts: u64) {
    for name in ["outbox_failure_count", "outbox_failed_count"] {
        counter!(name, "namespace" => namespace.to_owned(), "topic" => topic.to_owned()).increment(attempts);
    }
}

/// A message that is tried again in place failed, or was held back behind one that did.
pub(crate) fn tried_in_place(namespace: &str, reported: &Reported) {
    if matches!(reported.outcome, Outcome::Failed(_)) {
        count_failed(namespace, &topics::label(namespace, &reported.message.topic), 1);
    }
}

#[cfg(test)]
mod tests {
    use chrono::Utc;
    use posthaste_core::lifecycle::LeaseToken;
    use posthaste_core::metric::MetricKind;
    use posthaste_core::store::ClaimedMessage;
    use posthaste_core::{Message, PublishError, RetryPolicy};

    use super::*;
    use crate::observed::{observe, observe_series};
    use crate::upkeep::instrument::METRICS;

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
    fn a_death_is_counted() {
        let failed = Outcome::Failed(PublishError::permanent("too large"));
        let (counted, _) = settle(
            failed,
            Verdict::Dead {
                error: "too large".into(),
            },
            false,
        );
        assert_eq!((counted["outbox_dlq_count"], counted["outbox_failure_count"]), (1, 1));

        let (counted, log) = observe_series(|| swept("default", &[MessageId::new()]));
        assert_eq!(
            counted["outbox_dlq_count{namespace=default,topic=unknown,reason=exhausted}"],
            1
        );
        assert!(log.contains("ERROR"), "{log}");
    }

    #[test]
    fn a_death_is_counted_by_its_reason() {
        let dead = || Verdict::Dead { error: "x".into() };
        for (outcome, reason) in [
            (Outcome::Failed(PublishError::permanent("too large")), REFUSED),
            (Outcome::Failed(PublishError::transient("not now")), EXHAUSTED),
            (Outcome::Corrupt { error: "x".into() }, INTEGRITY),
        ] {
            let reported = [reported(outcome, dead())];
            let (counted, _) = observe_series(|| settled("default", &reported, &HashSet::new()));
            for known in DEATHS {
                let series = format!("outbox_dlq_count{{namespace=default,topic=orders,reason={known}}}");
                assert_eq!(counted[&series], u64::from(known == reason), "{series} in {counted:?}");
            }
        }
    }

    #[test]
    fn what_is_given_back_is_counted_by_its_reason() {
        let given_back = |reason| {
            let reported = reported(Outcome::NotAttempted, Verdict::Released);
            Reported::not_attempted(reported.message, reason)
        };
        let reported = [
            given_back(NotSent::Lease),
            given_back(NotSent::Circuit),
            given_back(NotSent::Circuit),
        ];
        let (counted, log) = observe_series(|| settled("default", &reported, &HashSet::new()));
        assert_eq!(counted["outbox_released_count{namespace=default,reason=lease}"], 1);
        assert_eq!(counted["outbox_released_count{namespace=default,reason=circuit}"], 2);
        assert_eq!(log, "");
    }

    #[test]
    fn what_goes_out_twice_is_counted_by_its_reason() {
        let mut reclaimed = reported(Outcome::DELIVERED, Verdict::Delivered);
        reclaimed.message.reclaimed = true;
        let [lost, failed] = [
            reported(Outcome::DELIVERED, Verdict::Delivered),
            reported(Outcome::NotAttempted, Verdict::Released),
        ];
        let gone = [lost.message.id, failed.message.id].into();
        let (counted, _) = observe_series(|| settled("default", &[reclaimed, lost, failed], &gone));
        assert_eq!(counted["outbox_repeated_count{namespace=default,reason=reclaimed}"], 1);
        assert_eq!(counted["outbox_repeated_count{namespace=default,reason=lease_lost}"], 1);
        assert_eq!(counted["outbox_lease_lost_count{namespace=default}"], 2);
    }

    /// Proves B9 and pitfall 6.
    #[test]
    fn a_lost_lease_is_counted_and_is_not_a_delivery() {
        let (counted, _) = settle(Outcome::DELIVERED, Verdict::Delivered, true);
        assert_eq!(counted["outbox_lease_lost_count"], 1);
        assert_eq!(counted["outbox_processed_count"], 0);
    }

    /// Proves D3.
    #[test]
    fn a_changed_payload_is_counted_apart() {
        let error = "the stored bytes do not match their hash";
        let (counted, _) = settle(
            Outcome::Corrupt { error: error.into() },
            Verdict::Dead { error: error.into() },
            false,
        );
        assert_eq!(
            (counted["outbox_integrity_failure_count"], counted["outbox_dlq_count"]),
            (1, 1)
        );
    }

    #[test]
    fn a_delivery_is_counted_and_not_logged_and_its_topic_is_known_from_now_on() {
        let (counted, log) = settle(Outcome::DELIVERED, Verdict::Delivered, false);
        let by_topic = METRICS
            .iter()
            .filter(|metric| metric.kind == MetricKind::Counter && metric.has_label("topic"));
        for metric in by_topic {
            let count = u64::from(metric.name == "outbox_processed_count");
            assert_eq!(counted.get(metric.name), Some(&count), "{metric:?}");
        }
        assert_eq!(log, "");
    }

    #[test]
    fn a_failed_attempt_is_counted_wherever_it_is_made() {
        let failed = || Outcome::Failed(PublishError::transient("not now"));
        let verdict = || Verdict::Retry {
            delay: std::time::Duration::from_secs(4),
            error: "not now".into(),
        };
        let (counted, _) = settle(failed(), verdict(), false);
        assert_eq!(
            (counted["outbox_failure_count"], counted["outbox_failed_count"]),
            (1, 1)
        );
        let (counted, _) = observe(|| tried_in_place("default", &reported(failed(), verdict())));
        assert_eq!(counted["outbox_failure_count"], 1);
    }
}
