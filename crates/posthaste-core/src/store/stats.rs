//! What is in an outbox, in numbers.

use serde::{Deserialize, Serialize};

use super::ShardStatus;

/// What is in an outbox. Delivered rows are not counted: there may be millions.
/// Numbers above 100,000 may be estimates, so that asking every few seconds costs little.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OutboxStats {
    /// Waiting to be claimed, due or not.
    pub pending: u64,
    /// Of these, not due yet: waiting for a retry or a scheduled time.
    pub waiting: u64,
    /// Under a lease.
    pub processing: u64,
    /// Given up.
    pub dead: u64,
    /// Age of the oldest row that is pending or processing.
    pub oldest_seconds: f64,
}

impl OutboxStats {
    /// How many messages are to be delivered: all but the dead.
    pub fn undelivered(&self) -> u64 {
        self.pending + self.processing
    }

    /// These messages and those of a queue that is to be moved. Its dead ones are not counted: nothing finds them here.
    #[must_use]
    pub fn with_queue(self, queue: &Self) -> Self {
        Self {
            pending: self.pending + queue.pending,
            waiting: self.waiting + queue.waiting,
            processing: self.processing + queue.processing,
            dead: self.dead,
            oldest_seconds: self.oldest_seconds.max(queue.oldest_seconds),
        }
    }
}

/// So many rows of a kind are counted for [`TableGauges`]; of more, the number is an estimate or this bound.
pub const GAUGE_BOUND: u32 = 10_000;

/// What is shown of an outbox every few seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableGauges {
    /// Exact up to [`GAUGE_BOUND`] rows of a kind; beyond that an estimate, or one more than the bound. The age is exact.
    pub stats: OutboxStats,
    /// The topics of the oldest [`GAUGE_BOUND`] pending messages, those with the most first. Nothing where the table has no
    /// column for the topic.
    pub topics: Vec<TopicBacklog>,
    /// The shards of a log, by number; none where there are none.
    pub shards: Vec<ShardStatus>,
}

/// What of a topic is pending.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicBacklog {
    /// Which topic.
    pub topic: String,
    /// How many messages of it are pending, of the oldest [`GAUGE_BOUND`] of all.
    pub pending: u64,
    /// Age of the oldest of them.
    pub oldest_seconds: f64,
}
