//! The seam between a broker and the runtime: what a broker has to offer so that its records are handled by the same
//! workers, with the same promises, as Kafka's.
//!
//! A [`Source`] lives on a thread of its own, which the runtime calls the polling thread. The runtime asks it for records,
//! lane by lane, and the source tells the runtime, through a [`RebalanceListener`], which lanes are its own to read.
//! Everything else is the runtime's: a worker per lane, attempts and retries, the inbox, which positions are committed and
//! when, how revoked lanes end, and how the consumer stops.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use posthaste_core::envelope::ReceivedEvent;
use thiserror::Error;

/// A sequence of records that are handled in order, one at a time. Lanes work side by side.
///
/// In Kafka it is a partition. A broker without partitions has one lane per queue or stream, with the partition 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lane {
    /// The topic, queue or stream.
    pub topic: String,
    /// Which part of it.
    pub partition: i32,
}

impl Lane {
    /// A partition of a topic.
    pub fn new(topic: impl Into<String>, partition: i32) -> Self {
        let topic = topic.into();
        Self { topic, partition }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.partition)
    }
}

/// A record, byte for byte as it came.
pub trait Record: Send + Sync + 'static {
    /// What kind of broker it came from, as traces call it (`messaging.system`). Defaults to `kafka`.
    fn system(&self) -> &'static str {
        "kafka"
    }

    /// Where it came from.
    fn topic(&self) -> &str;

    /// Which part of the topic it came from.
    fn partition(&self) -> i32;

    /// Its place in its lane. Ascending, but not without gaps.
    fn offset(&self) -> i64;

    /// What the producer chose its lane by.
    fn key(&self) -> Option<&[u8]>;

    /// How many bytes of memory it takes, about.
    fn size(&self) -> usize;

    /// Whether it says no more than that its key is deleted.
    fn is_tombstone(&self) -> bool {
        false
    }

    /// The event in it, or why it is none. Called by the lane's worker, not on the polling thread.
    fn event(&self) -> Result<ReceivedEvent, String>;
}

/// The position of each lane: the offset of its first record that is not settled.
pub type Positions = Vec<(Lane, i64)>;

/// Why a source cannot go on, in a sentence that says what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct SourceError(pub String);

/// A broker's subscription.
///
/// # Contract
/// - Lanes are assigned and revoked by the calls of the [`RebalanceListener`], and those are made from within
///   [`serve`](Self::serve) or [`subscribe`](Self::subscribe).
/// - Records of a lane come in order. After a restart, or when a lane is assigned again, they come from the position that
///   was committed last, or earlier; what comes twice is the inbox's affair.
/// - **None of these calls waits** for the broker: heartbeats and rebalances are served by the same thread.
/// - Dropping the source leaves the group.
pub trait Source: Send + 'static {
    /// What it delivers.
    type Record: Record;

    /// Commits positions. It is called by another thread than the rest.
    fn committer(&self) -> Arc<dyn Commit>;

    /// Where records go that cannot be handled.
    fn dead_letters(&self) -> Arc<dyn DeadLetterSink<Self::Record>>;

    /// Begins to read.
    ///
    /// # Errors
    /// If it will never be able to. A broker that is unavailable is no error; it is waited for.
    fn subscribe(&mut self, listener: Arc<dyn RebalanceListener>) -> Result<(), SourceError>;

    /// Serves the client: takes part in rebalances and notes what the broker says. Called again and again, at least every
    /// 100 ms.
    ///
    /// # Errors
    /// If the client has come to an end.
    fn serve(&mut self) -> Result<(), SourceError>;

    /// The next record of an assigned lane, if one has arrived.
    ///
    /// A lane whose queue is full is not asked: that is how it is paused, and the next call resumes it. A source bounds what
    /// it fetches ahead of these calls.
    ///
    /// # Errors
    /// If the client has come to an end.
    fn receive(&mut self, lane: &Lane) -> Result<Option<Self::Record>, SourceError>;
}

/// What a source tells the runtime. All calls are made on the polling thread, but [`wake`](Self::wake).
pub trait RebalanceListener: Send + Sync {
    /// The lane is ours, and its worker starts.
    fn assigned(&self, lane: &Lane);

    /// Lanes go to another consumer. When this returns, their workers have ended, within `revoke_grace`, and what they
    /// did is committed: nothing is committed for these lanes any more.
    fn revoked(&self, lanes: &[Lane]);

    /// Lanes may have another owner already. Their workers are stopped at once, and nothing is committed, because that
    /// would undo the new owner's commits.
    fn lost(&self, lanes: &[Lane]);

    /// Whether the consumer is stopping. Lanes that are assigned then are not read.
    fn is_closing(&self) -> bool;

    /// Something has come: a record, or a change of the group. From any thread.
    fn wake(&self);
}

/// Commits positions.
pub trait Commit: Send + Sync {
    /// Commits, and waits for the answer.
    ///
    /// # Errors
    /// If the broker did not say that it has the positions. They are committed again later, or higher ones.
    fn commit(&self, positions: &[(Lane, i64)]) -> Result<(), CommitError>;
}

/// Why a commit failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text}")]
#[non_exhaustive]
pub struct CommitError {
    /// What happened, and what to do.
    pub text: String,
    /// Whether it came too late, because the group is being shared out anew. The rebalance sees to the rest.
    pub is_rebalance: bool,
}

impl CommitError {
    /// A commit that failed.
    pub fn failed(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_rebalance: false,
        }
    }

    /// A commit that came too late, because the group is being shared out anew.
    pub fn rebalancing(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_rebalance: true,
        }
    }
}

/// The answer to a write.
pub type Written<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

/// Where records go that cannot be handled.
pub trait DeadLetterSink<R>: Send + Sync {
    /// The name of the topic or queue, for the log.
    fn destination(&self, record: &R) -> String;

    /// Returns once the record is durable there, or with what is to be done about it. The lane waits: a record that is
    /// refused is written again until it is there.
    fn write<'a>(&'a self, record: &'a R, error: &'a str, attempts: u32) -> Written<'a>;
}
