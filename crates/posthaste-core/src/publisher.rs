//! The way out: what a broker adapter is given and what it must answer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::message::{Message, MessageId};

/// Hands messages to a broker.
///
/// # Contract
/// - Report exactly one [`Outcome`] for each message of the batch, as soon as it is known. What is not reported when
///   `publish` returns, or when it panics, counts as [`ErrorKind::Unknown`].
/// - A batch may hold several messages of one lane (see [`Message::lane`]), always in order. Hand a message over only
///   when its predecessors of the lane were acknowledged, or when the transport itself guarantees that they come first.
///   After a failure report the rest of that lane as [`Outcome::NotAttempted`]. Other lanes go on.
/// - Right before handing over a message ask [`Batch::may_send`]; if it says no, report [`Outcome::NotAttempted`] for it
///   and for the rest of its lane.
/// - Report [`Outcome::Delivered`] only once the broker has acknowledged the message durably.
/// - Classify failures by [`ErrorKind`]; never decide about retries.
/// - `publish` may be called again while earlier calls are still running; batches never share a lane.
#[async_trait]
pub trait Publisher: Send + Sync + 'static {
    /// Publishes a batch and reports every outcome.
    async fn publish(&self, batch: Batch, report: Report);

    /// A name for logs and metrics, such as `kafka`.
    fn name(&self) -> &'static str;
}

#[async_trait]
impl<P: Publisher + ?Sized> Publisher for Arc<P> {
    async fn publish(&self, batch: Batch, report: Report) {
        (**self).publish(batch, report).await;
    }

    fn name(&self) -> &'static str {
        (**self).name()
    }
}

/// A claimed message on its way to the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// What to send.
    pub message: Message,
    /// When it was enqueued, by the database's clock.
    pub created_at: DateTime<Utc>,
    /// Which attempt this is, from 1.
    pub attempt: u32,
}

/// Messages claimed together, in order.
#[derive(Clone)]
pub struct Batch {
    /// What to send.
    pub deliveries: Vec<Delivery>,
    lease: Arc<dyn LeaseCheck>,
}

/// Answers whether a claim still holds, by the worker's own monotonic clock.
pub trait LeaseCheck: Send + Sync {
    /// Whether the message may still be handed to the broker.
    fn may_send(&self, id: MessageId) -> bool;
}

impl Batch {
    /// A batch under a lease.
    pub fn new(deliveries: Vec<Delivery>, lease: Arc<dyn LeaseCheck>) -> Self {
        Self { deliveries, lease }
    }

    /// Whether the message may still be handed to the broker: its lease has time left, the circuit to the broker lets it
    /// through and nobody asked to stop.
    pub fn may_send(&self, id: MessageId) -> bool {
        self.lease.may_send(id)
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("deliveries", &self.deliveries)
            .finish_non_exhaustive()
    }
}

/// What became of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The broker acknowledged it.
    Delivered,
    /// It was tried and failed.
    Failed(PublishError),
    /// It was not handed over at all.
    NotAttempted,
    /// Its stored bytes do not match their hash; it must never be sent. Reported by the engine, not by publishers.
    Corrupt {
        /// What was found.
        error: String,
    },
}

/// Where outcomes go. Cheap to clone, callable from any thread, such as a client library's delivery callback.
#[derive(Clone)]
pub struct Report(Arc<dyn Fn(MessageId, Outcome) + Send + Sync>);

impl Report {
    /// A report that calls `sink` for every outcome.
    pub fn new(sink: impl Fn(MessageId, Outcome) + Send + Sync + 'static) -> Self {
        Self(Arc::new(sink))
    }

    /// Reports one outcome.
    pub fn outcome(&self, id: MessageId, outcome: Outcome) {
        (self.0)(id, outcome);
    }

    /// Reports a delivery.
    pub fn delivered(&self, id: MessageId) {
        self.outcome(id, Outcome::Delivered);
    }

    /// Reports a failure.
    pub fn failed(&self, id: MessageId, error: PublishError) {
        self.outcome(id, Outcome::Failed(error));
    }
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Report")
    }
}

/// A failed publication, classified by the publisher that knows its broker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PublishError {
    /// What sort of failure it was.
    pub kind: ErrorKind,
    /// How far it reaches.
    pub scope: ErrorScope,
    /// What the operator will read.
    pub message: String,
}

/// How far a failure reaches: what else would fail the same way now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorScope {
    /// Every message: the broker cannot be reached.
    Broker,
    /// Every message to this destination: a topic without a leader, a host that is down, a tenant over its quota.
    Destination(Arc<str>),
    /// Some of the messages to this destination, while others get through: a partition without a leader. Which ones is
    /// known to the publisher alone, so none is held back for it; but it is not the message either, which loses no attempt.
    Partition(Arc<str>),
    /// This message only.
    Message,
}

/// What sort of failure it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The broker, or a destination, could not be reached or did not answer: connection lost, leader election, time-out;
    /// or it takes nothing from us at all, for want of rights or because it does not exist. May pass, and says something
    /// about every message within the error's [`ErrorScope`], so the circuit breakers count these and no others.
    Transport,
    /// May pass, but says something about this message or its topic only.
    Transient,
    /// Will not pass for this message: too large, refused by the schema.
    Permanent,
    /// The broker asks for patience. Costs no attempt; the relay pauses for everything within the error's
    /// [`ErrorScope`].
    Throttled {
        /// How much of it.
        retry_after: Duration,
    },
    /// Nobody knows whether it was sent.
    Unknown,
}

impl PublishError {
    /// A broker that could not be reached or did not answer.
    pub fn transport(message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Transport,
            scope: ErrorScope::Broker,
            message: message.into(),
        }
    }

    /// A failure that may pass.
    pub fn transient(message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Transient,
            scope: ErrorScope::Message,
            message: message.into(),
        }
    }

    /// A failure that will not pass for this message.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Permanent,
            scope: ErrorScope::Message,
            message: message.into(),
        }
    }

    /// A message whose fate nobody knows.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Unknown,
            scope: ErrorScope::Message,
            message: message.into(),
        }
    }

    /// A broker, or a destination, that asks for patience.
    pub fn throttled(retry_after: Duration, message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Throttled { retry_after },
            scope: ErrorScope::Broker,
            message: message.into(),
        }
    }

    /// The same failure, of one destination only.
    #[must_use]
    pub fn at(mut self, destination: impl Into<Arc<str>>) -> Self {
        self.scope = ErrorScope::Destination(destination.into());
        self
    }
}
