//! What a publisher is given.

use std::fmt;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::message::{Message, MessageId};

/// A claimed message on its way to the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Delivery {
    /// What to send.
    pub message: Message,
    /// When it was enqueued, by the database's clock.
    pub created_at: DateTime<Utc>,
    /// Which attempt this is, from 1.
    pub attempt: u32,
    /// The row's number in the order of inserts, where the table has one. Within a lane it only ever grows.
    pub sequence: Option<i64>,
}

impl Delivery {
    /// The first attempt at a message that was enqueued at `created_at`.
    pub fn new(message: Message, created_at: DateTime<Utc>) -> Self {
        Self {
            message,
            created_at,
            attempt: 1,
            sequence: None,
        }
    }

    /// The same, as this attempt.
    #[must_use]
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }

    /// The same, of a row with this number.
    #[must_use]
    pub fn sequence(mut self, sequence: Option<i64>) -> Self {
        self.sequence = sequence;
        self
    }
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

    /// A batch of other deliveries under the same lease, such as of some of these.
    #[must_use]
    pub fn of(&self, deliveries: Vec<Delivery>) -> Self {
        Self::new(deliveries, Arc::clone(&self.lease))
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
