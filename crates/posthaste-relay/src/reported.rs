//! A claimed message as the engine remembers it, and what became of it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use posthaste_core::lifecycle::{LeaseToken, Verdict, decide};
use posthaste_core::publisher::Outcome;
use posthaste_core::store::ClaimedMessage;
use posthaste_core::trace::TraceParent;
use posthaste_core::{Message, MessageId, RetryPolicy, Text};

use crate::send_trace::SendTrace;

/// What the engine remembers of a claimed message while the publisher has it.
#[derive(Clone, Debug)]
pub(crate) struct InFlightMessage {
    pub(crate) id: MessageId,
    /// What consumers know the event by, where the row has another name.
    pub(crate) event_id: Option<Text>,
    pub(crate) token: LeaseToken,
    /// The number of its claim.
    pub(crate) claim: u64,
    /// Its place within the claim.
    pub(crate) place: u32,
    pub(crate) bytes: u64,
    pub(crate) topic: Text,
    pub(crate) key: Option<Text>,
    /// See [`Streams`].
    pub(crate) stream: u64,
    /// Where it goes, if the publisher says so beforehand.
    pub(crate) destination: Option<Arc<str>>,
    pub(crate) attempts: u32,
    /// The row's own limit, or the policy's.
    pub(crate) max_attempts: u32,
    pub(crate) version: Option<i64>,
    pub(crate) created_at: DateTime<Utc>,
    /// Whether another worker had it before, whose lease expired.
    pub(crate) reclaimed: bool,
    /// Why it was not handed over, if it was not.
    pub(crate) not_sent: Option<NotSent>,
    /// Of the trace in which it was enqueued, for log lines.
    pub(crate) trace_id: Option<Box<str>>,
    pub(crate) trace: SendTrace,
    /// All of it, where there is a net for dead letters.
    pub(crate) whole: Option<Arc<ClaimedMessage>>,
}

/// Why a message is given back that was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSent {
    /// An earlier message of its key failed, or the publisher did not try it.
    Order,
    /// Its lease was over, or lost, before its turn came.
    Lease,
    /// The relay stops.
    Stopping,
    /// The circuit opened.
    Circuit,
    /// The broker throttles.
    Throttled,
    /// Another relay took the lead.
    Standby,
    /// What became of it is known from an earlier claim, and could not be written yet.
    Unwritten,
}

impl NotSent {
    pub(crate) const ALL: [&'static str; 7] = [
        Self::Order.as_str(),
        Self::Lease.as_str(),
        Self::Stopping.as_str(),
        Self::Circuit.as_str(),
        Self::Throttled.as_str(),
        Self::Standby.as_str(),
        Self::Unwritten.as_str(),
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Lease => "lease",
            Self::Stopping => "stopping",
            Self::Circuit => "circuit",
            Self::Throttled => "throttled",
            Self::Standby => "standby",
            Self::Unwritten => "unwritten",
        }
    }
}

impl InFlightMessage {
    pub(crate) fn new(claimed: &ClaimedMessage, token: LeaseToken, retry: &RetryPolicy) -> Self {
        let message = &claimed.message;
        Self {
            id: message.id,
            event_id: message.event_id.clone().filter(|_| message.id.uuid().is_none()),
            token,
            claim: 0,
            place: 0,
            bytes: message.payload.len() as u64,
            topic: message.topic.clone(),
            key: message.ordering_key.clone(),
            stream: 0,
            destination: None,
            attempts: claimed.attempts,
            max_attempts: claimed.max_attempts.unwrap_or(retry.max_attempts),
            version: claimed.version,
            created_at: claimed.created_at,
            reclaimed: false,
            not_sent: None,
            trace_id: TraceParent::of(&message.headers).map(|parent| parent.trace_id.into()),
            trace: SendTrace::of(message),
            whole: None,
        }
    }

    /// The lane in which order holds, if the message has one.
    pub(crate) fn lane(&self) -> Option<(Text, Text)> {
        self.key.clone().map(|key| (self.topic.clone(), key))
    }
}

/// What decides where a message goes, as one number: topic, type and tenant.
pub(crate) fn stream_of(message: &Message) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&message.topic, &message.event_type, &message.tenant).hash(&mut hasher);
    hasher.finish()
}

/// The streams of messages that are looked at one after the other. Mostly a message is of the same one as the one before.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    last: Option<(Text, Option<Text>, Option<Text>)>,
    number: u64,
}

impl Streams {
    /// See [`stream_of`].
    pub(crate) fn of(&mut self, message: &Message) -> u64 {
        let is_same = |(topic, event_type, tenant): &(Text, Option<Text>, Option<Text>)| {
            *topic == message.topic && *event_type == message.event_type && *tenant == message.tenant
        };
        if !self.last.as_ref().is_some_and(is_same) {
            let (topic, event_type) = (message.topic.clone(), message.event_type.clone());
            self.last = Some((topic, event_type, message.tenant.clone()));
            self.number = stream_of(message);
        }
        self.number
    }
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
        if outcome.is_delivered() {
            return Self {
                outcome,
                ..Self::delivered(message)
            };
        }
        let retry = retry.for_row(Some(message.max_attempts));
        let verdict = decide(outcome.clone(), message.attempts, &retry, least_wait, rand::random());
        Self {
            message,
            outcome,
            verdict,
            spooled: false,
        }
    }

    /// A message that was delivered.
    pub(crate) fn delivered(message: InFlightMessage) -> Self {
        Self {
            message,
            outcome: Outcome::DELIVERED,
            verdict: Verdict::Delivered,
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
    pub(crate) fn not_attempted(mut message: InFlightMessage, reason: NotSent) -> Self {
        message.not_sent = Some(reason);
        Self {
            message,
            outcome: Outcome::NotAttempted,
            verdict: Verdict::Released,
            spooled: false,
        }
    }
}
