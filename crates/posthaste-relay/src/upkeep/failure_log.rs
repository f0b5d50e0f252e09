//! Says in the log what became of messages, unless all is well.
//!
//! What fails for one message fails for the next: a disk that is full gives the same line for each message and each attempt.
//! So the first failure of a topic and a cause is told whole, with its message, and then how many followed, once a minute.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posthaste_core::MessageId;
use posthaste_core::lifecycle::Verdict;
use posthaste_core::publisher::Outcome;
use posthaste_core::readable::Readable;
use tokio::time::Instant;

use crate::reported::Reported;

/// How often it is said how many failures followed.
const INTERVAL: Duration = Duration::from_mins(1);

/// So many topics and causes are told apart. Further ones are counted together.
const MAX_CAUSES: usize = 200;

/// So much of an error tells causes apart.
const CAUSE_CHARACTERS: usize = 120;

/// What was told lately.
#[derive(Debug, Default)]
pub(crate) struct FailureLog(Mutex<HashMap<Cause, Repeated>>);

/// What failures have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Cause {
    what: &'static str,
    /// None of those that are too many to be told apart.
    told_apart: Option<(String, String)>,
}

#[derive(Debug)]
struct Repeated {
    told: Instant,
    /// Since then.
    more: u64,
    /// In the words of the last one.
    error: String,
}

const FAILED: &str = "attempts failed";
const LOST: &str = "leases were lost";

impl FailureLog {
    /// Says what became of messages; `lost` are those that are no longer ours.
    pub(crate) fn settled(&self, reported: &[Reported], lost: &HashSet<MessageId>) {
        for reported in reported {
            if lost.contains(&reported.message.id) {
                self.lost(reported);
            } else {
                self.tell(reported);
            }
        }
    }

    /// Says what became of one message.
    pub(crate) fn tell(&self, Reported { message, verdict, .. }: &Reported) {
        let (attempt, most) = (message.attempts, message.max_attempts);
        let (event_id, trace_id) = (message.event_id.as_deref(), message.trace_id.as_deref());
        match verdict {
            Verdict::Retry { delay, error } if attempt > 1 && self.is_first(FAILED, &message.topic, error) => {
                tracing::warn!(
                    id = %message.id, event_id, topic = message.topic.as_str(), key = message.key.as_deref(), trace_id, attempt,
                    delay = %Readable(*delay), error,
                    "attempt {attempt} of {most} failed and the message will be tried again"
                );
            }
            Verdict::Retry { delay, error } => tracing::debug!(
                id = %message.id, event_id, topic = message.topic.as_str(), key = message.key.as_deref(), trace_id, attempt,
                delay = %Readable(*delay), error,
                "attempt {attempt} of {most} failed and the message will be tried again"
            ),
            // The circuit has said so once, for all of them.
            Verdict::Postponed { delay, error } => tracing::debug!(
                id = %message.id, event_id, topic = message.topic.as_str(), key = message.key.as_deref(), trace_id,
                delay = %Readable(*delay), error,
                "the broker is unavailable; the attempt does not count"
            ),
            // Each of them: a message is lost to its consumers until somebody acts.
            Verdict::Dead { error } => tracing::error!(
                id = %message.id, event_id, topic = message.topic.as_str(), key = message.key.as_deref(), trace_id, attempts = attempt, error,
                "message is dead; replay or discard it"
            ),
            Verdict::Delivered | Verdict::Released => {}
        }
    }

    fn lost(&self, Reported { message, outcome, .. }: &Reported) {
        let outcome = match outcome {
            Outcome::Delivered(_) => "delivered",
            Outcome::Failed(_) => "failed",
            Outcome::Corrupt { .. } => "corrupt",
            Outcome::NotAttempted => "not attempted",
        };
        let (event_id, trace_id) = (message.event_id.as_deref(), message.trace_id.as_deref());
        if self.is_first(LOST, &message.topic, outcome) {
            tracing::warn!(
                id = %message.id, event_id, topic = message.topic.as_str(), key = message.key.as_deref(), trace_id, outcome,
                "lost the lease before the outcome could be written; another worker delivers it again"
            );
        } else {
            tracing::debug!(id = %message.id, event_id, topic = message.topic.as_str(), key = message.key.as_deref(), trace_id, outcome, "lost the lease");
        }
    }

    /// Says how many failures followed those that were told a while ago, or at the end all of them.
    pub(crate) fn summarise(&self, at_the_end: bool) {
        let now = Instant::now();
        self.told().retain(|cause, repeated| {
            let since = now.duration_since(repeated.told);
            if since < INTERVAL && !at_the_end {
                return true;
            }
            if repeated.more == 0 {
                return false;
            }
            let (count, error, what, since) = (repeated.more, &repeated.error, cause.what, Readable(since));
            if let Some((topic, _)) = &cause.told_apart {
                tracing::warn!(
                    topic,
                    error,
                    count,
                    "{count} more {what} in the same way in the last {since}"
                );
            } else {
                tracing::warn!(
                    error,
                    count,
                    "{count} more {what} in the last {since}, of further topics and causes; the error is that of the last one"
                );
            }
            repeated.more = 0;
            repeated.told = now;
            true
        });
    }

    /// Whether it is to be told by itself.
    fn is_first(&self, what: &'static str, topic: &str, error: &str) -> bool {
        let mut cause = Cause {
            what,
            told_apart: Some((topic.to_owned(), without_ids(error))),
        };
        let mut told = self.told();
        if told.len() >= MAX_CAUSES && !told.contains_key(&cause) {
            cause.told_apart = None;
        }
        if let Some(repeated) = told.get_mut(&cause) {
            repeated.more += 1;
            error.clone_into(&mut repeated.error);
            return false;
        }
        let repeated = Repeated {
            told: Instant::now(),
            more: 0,
            error: String::new(),
        };
        told.insert(cause, repeated);
        true
    }

    fn told(&self) -> MutexGuard<'_, HashMap<Cause, Repeated>> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ids, offsets and times differ from message to message, while the cause is the same.
fn without_ids(error: &str) -> String {
    let ends_word = |character: char| !character.is_alphanumeric() && !matches!(character, '-' | '_');
    let mut text = String::with_capacity(CAUSE_CHARACTERS);
    for piece in error.split_inclusive(ends_word) {
        if text.len() >= CAUSE_CHARACTERS {
            break;
        }
        let word = piece.trim_end_matches(ends_word);
        text.push_str(if is_id(word) { "0" } else { word });
        text.push_str(&piece[word.len()..]);
    }
    text.chars().take(CAUSE_CHARACTERS).collect()
}

/// Whether a word is a number, or as random as a UUID, a digest or the id of a request.
fn is_id(word: &str) -> bool {
    let is_hex = word.len() >= 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex || word.bytes().any(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use chrono::Utc;
    use posthaste_core::lifecycle::LeaseToken;
    use posthaste_core::store::ClaimedMessage;
    use posthaste_core::{Message, PublishError, RetryPolicy};
    use tokio::time::advance;

    use super::*;
    use crate::observed::observe;
    use crate::reported::InFlightMessage;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn reported(outcome: Outcome, verdict: Verdict) -> Reported {
        let parent = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let claimed = ClaimedMessage {
            message: Message::new("orders", "x").key("42").header("traceparent", parent),
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

    fn failed(error: &str) -> Reported {
        let verdict = Verdict::Retry {
            delay: Duration::from_millis(1_500),
            error: error.into(),
        };
        reported(Outcome::Failed(PublishError::transient(error)), verdict)
    }

    /// A row of a log is named by its number there, by which nobody else knows the event.
    #[tokio::test(start_paused = true)]
    async fn a_line_names_the_event_where_its_row_has_another_name() {
        let mut numbered = ClaimedMessage {
            message: Message::new("orders", "x"),
            fault: None,
            sequence: None,
            created_at: Utc::now(),
            attempts: 1,
            hash: None,
            version: None,
            max_attempts: None,
        };
        numbered.message.event_id = Some("of-consumers".into());
        let told = |claimed: &ClaimedMessage| {
            let mut dead = reported(Outcome::NotAttempted, Verdict::Dead { error: "no".into() });
            dead.message = InFlightMessage::new(claimed, LeaseToken::new(), &RetryPolicy::default());
            observe(|| FailureLog::default().tell(&dead)).1
        };
        assert!(!told(&numbered).contains("event_id"), "its id is the event's");
        numbered.message.id = MessageId::Number(7);
        let line = told(&numbered);
        assert!(
            line.contains("id=7") && line.contains("event_id=\"of-consumers\""),
            "{line}"
        );
    }

    /// Proves C17 and B16.
    #[tokio::test(start_paused = true)]
    async fn a_line_names_message_key_attempt_and_trace() {
        let log = FailureLog::default();
        let (_, lines) = observe(|| log.tell(&failed("not now")));
        for part in [
            "WARN",
            "attempt=3",
            "attempt 3 of 7",
            "key=\"42\"",
            "delay=1.5s",
            "not now",
            TRACE,
        ] {
            assert!(lines.contains(part), "{part} is not in: {lines}");
        }
        let mut first = failed("not now");
        first.message.attempts = 1;
        let (_, lines) = observe(|| FailureLog::default().tell(&first));
        assert_eq!(lines, "", "a first failure is often the last");
        let dead = Verdict::Dead {
            error: "too large".into(),
        };
        let dead = reported(Outcome::Failed(PublishError::permanent("too large")), dead);
        let (_, lines) = observe(|| log.tell(&dead));
        assert!(
            lines.contains("ERROR") && lines.contains("too large") && lines.contains(TRACE),
            "{lines}"
        );
    }

    /// Proves C17.
    #[tokio::test(start_paused = true)]
    async fn failures_of_one_cause_are_told_once_and_then_counted_every_minute() {
        let log = FailureLog::default();
        let (_, lines) = observe(|| {
            for offset in 0..1_000 {
                log.tell(&failed(&format!("offset {offset}: no space left on device")));
            }
            log.summarise(false);
        });
        assert_eq!(lines.lines().count(), 1, "{lines}");
        advance(INTERVAL).await;
        let (_, lines) = observe(|| log.summarise(false));
        assert!(
            lines.contains("999 more attempts failed") && lines.contains("no space left"),
            "{lines}"
        );
        assert!(
            lines.contains("topic=\"orders\"") && lines.lines().count() == 1,
            "{lines}"
        );
        let (_, lines) = observe(|| log.tell(&failed("offset 7: no space left on device")));
        assert_eq!(lines, "", "it goes on");
        let (_, lines) = observe(|| log.tell(&failed("refused")));
        assert_eq!(lines.lines().count(), 1, "another cause: {lines}");
        let (_, lines) = observe(|| log.summarise(true));
        assert!(lines.contains("1 more attempts failed"), "{lines}");
        advance(INTERVAL).await;
        let (_, lines) = observe(|| {
            log.summarise(false);
            log.tell(&failed("offset 8: no space left on device"));
        });
        assert_eq!(
            lines.lines().count(),
            1,
            "after a quiet minute it is told anew: {lines}"
        );
    }

    /// Proves C17.
    #[tokio::test(start_paused = true)]
    async fn ids_in_an_error_make_no_further_causes() {
        let log = FailureLog::default();
        let (_, lines) = observe(|| {
            for number in 0..500_u64 {
                let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let uuid = MessageId::new();
                let letters: String = format!("{random:016x}")
                    .bytes()
                    .map(|byte| char::from(b'a' + byte % 6))
                    .collect();
                let error = format!("503 (request {uuid}, trace {letters}, host ip-10-0-{number}, RX{random:X}): busy");
                log.tell(&failed(&error));
            }
        });
        assert_eq!(lines.lines().count(), 1, "{lines}");
        let (_, lines) = observe(|| log.tell(&failed("503 (request refused): busy")));
        assert_eq!(lines.lines().count(), 1, "words still tell causes apart");
    }

    /// Proves C17.
    #[tokio::test(start_paused = true)]
    async fn further_causes_are_counted_together() {
        let log = FailureLog::default();
        let word = |number: usize| -> String {
            let letter =
                |place: usize| char::from(b"ghijklmnop"[number / 10_usize.pow(u32::try_from(place).unwrap()) % 10]);
            (0..4).map(letter).collect()
        };
        let (_, lines) = observe(|| {
            for number in 0..3_000 {
                log.tell(&failed(&format!("no {}", word(number))));
            }
        });
        assert_eq!(lines.lines().count(), MAX_CAUSES + 1);
        advance(INTERVAL).await;
        let (_, lines) = observe(|| log.summarise(false));
        let more = 3_000 - MAX_CAUSES - 1;
        assert!(
            lines.contains(&format!("{more} more attempts failed")) && lines.contains(&word(2_999)),
            "{lines}"
        );
        assert_eq!(lines.lines().count(), 1, "the others were told whole: {lines}");
        let (_, lines) = observe(|| log.tell(&failed("refused")));
        assert_eq!(lines.lines().count(), 1, "there is room again: {lines}");
    }

    /// Proves B9.
    #[tokio::test(start_paused = true)]
    async fn a_lost_lease_is_a_warning_once_for_a_batch() {
        let log = FailureLog::default();
        let batch = [(); 500].map(|()| reported(Outcome::DELIVERED, Verdict::Delivered));
        let lost = batch.iter().map(|reported| reported.message.id).collect();
        let (_, lines) = observe(|| log.settled(&batch, &lost));
        assert!(lines.contains("WARN") && lines.contains("lost the lease"), "{lines}");
        assert!(
            lines.contains("outcome=\"delivered\"") && lines.lines().count() == 1,
            "{lines}"
        );
        let (_, lines) = observe(|| log.summarise(true));
        assert!(lines.contains("499 more leases were lost"), "{lines}");
    }
}
