//! A claimed message as the engine remembers it, and what became of it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use posthaste_core::lifecycle::{LeaseToken, Verdict, decide};
use posthaste_core::publisher::Outcome;
use posthaste_core::store::ClaimedMessage;
use posthaste_core::{Message, MessageId, RetryPolicy};

/// What the engine remembers of a claimed message while the publisher has it.
#[derive(Clone, Debug)]
pub(crate) struct InFlightMessage {
    pub(crate) id: MessageId,
    pub(crate) token: LeaseToken,
    pub(crate) bytes: u64,
    pub(crate) topic: String,
    pub(crate) key: Option<String>,
    /// See [`stream_of`].
    pub(crate) stream: u64,
    /// Where it goes, if the publisher says so beforehand.
    pub(crate) destination: Option<Arc<str>>,
    pub(crate) attempts: u32,
    /// The row's own limit, or the policy's.
    pub(crate) max_attempts: u32,
    pub(crate) version: Option<i64>,
    pub(crate) created_at: DateTime<Utc>,
    /// All of it, where there is a net for dead letters.
    pub(crate) whole: Option<Arc<ClaimedMessage>>,
}

impl InFlightMessage {
    pub(crate) fn new(claimed: &ClaimedMessage, token: LeaseToken, retry: &RetryPolicy) -> Self {
        let message = &claimed.message;
        Self {
            id: message.id,
            token,
            bytes: message.payload.len() as u64,
            topic: message.topic.clone(),
            key: message.ordering_key.clone(),
            stream: stream_of(message),
            destination: None,
            attempts: claimed.attempts,
            max_attempts: claimed.max_attempts.unwrap_or(retry.max_attempts),
            version: claimed.version,
            created_at: claimed.created_at,
            whole: None,
        }
    }
}

/// What decides where a message goes, as one number: topic, type and tenant.
pub(crate) fn stream_of(message: &Message) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&message.topic, &message.event_type, &message.tenant).hash(&mut hasher);
    hasher.finish()
}

/// What became of one message.
#[derive(Clone, Debug)]
pub(crate) struct Reported {
    pub(crate) message: InFlightMessage,
    pub(crate) outcome: Outcome,
    pub(crate) verdict: Verdict,
    /// Whether its letter is in the file.
    pub(crate) spooled: bool,
}

impl Reported {
    /// `least_wait` is what the circuit asks for, if it has found the broker to be unavailable.
    pub(crate) fn new(
        message: InFlightMessage,
        outcome: Outcome,
        least_wait: Option<Duration>,
        retry: &RetryPolicy,
    ) -> Self {
        let retry = retry.for_row(Some(message.max_attempts));
        let verdict = decide(outcome.clone(), message.attempts, &retry, least_wait, rand::random());
        Self {
            message,
            outcome,
            verdict,
            spooled: false,
        }
    }

    /// A message that is not handed over because its destination is unavailable.
    pub(crate) fn held(message: InFlightMessage, delay: Duration, error: String) -> Self {
        Self {
            message,
            outcome: Outcome::NotAttempted,
            verdict: Verdict::Postponed { delay, error },
            spooled: false,
        }
    }

    /// A message that is given back.
    pub(crate) fn not_attempted(message: InFlightMessage) -> Self {
        Self {
            message,
            outcome: Outcome::NotAttempted,
            verdict: Verdict::Released,
            spooled: false,
        }
    }
}
