//! Why letters cannot be read or replayed.

use thiserror::Error;

use crate::connection::InvalidConnection;
use crate::error::Explanation;

/// Why letters cannot be read or replayed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DlqError {
    /// The connection's settings cannot work.
    #[error(transparent)]
    Connection(#[from] InvalidConnection),
    /// The cluster cannot be asked.
    #[error("{}", .0.text)]
    Cluster(Explanation),
    /// There is no such topic.
    #[error("there is no topic {topic}; {}", those_there(.known))]
    NoSuchTopic {
        /// Its name.
        topic: String,
        /// Those that are there.
        known: Vec<String>,
    },
    /// The topic has no such partition.
    #[error("{topic} has no partition {partition}; its partitions are {}", list(.known))]
    NoSuchPartition {
        /// The topic.
        topic: String,
        /// The partition that was asked for.
        partition: i32,
        /// Those that are there.
        known: Vec<i32>,
    },
    /// The offset holds no letter.
    #[error(
        "there is no letter at offset {offset} of partition {partition} of {topic}: it has offsets {low} to below {high}; \
         `posthaste dlq list {topic}` shows its letters"
    )]
    NoSuchLetter {
        /// The topic.
        topic: String,
        /// Its partition.
        partition: i32,
        /// The offset that was asked for.
        offset: i64,
        /// The lowest there is.
        low: i64,
        /// Above the highest there is.
        high: i64,
    },
    /// The letter was replayed before.
    #[error(
        "the letter at offset {offset} of {topic} was replayed already; if it failed again, it lies there again at a \
         higher offset"
    )]
    AlreadyReplayed {
        /// The topic.
        topic: String,
        /// The letter's offset.
        offset: i64,
    },
    /// Another process replays the same topic.
    #[error(
        "another process is replaying {topic}{}; wait for the end of it, or 10 s if that process has died",
        .who.as_ref().map(|who| format!(" ({who})")).unwrap_or_default()
    )]
    ReplayInProgress {
        /// The topic.
        topic: String,
        /// Client and host, if the cluster tells.
        who: Option<String>,
    },
    /// The place in the group was lost on the way, such as after a long halt of the process.
    #[error(
        "this process was taken for dead while it replayed {topic}, after {replayed} letters; run it again to go on. \
         Letters that were sent last may be sent again"
    )]
    Displaced {
        /// The topic.
        topic: String,
        /// How many letters were recorded as replayed.
        replayed: u64,
    },
    /// A letter could not be sent; those before it were.
    #[error("the letter at offset {offset} of {topic} could not be replayed, after {replayed} that were: {reason}")]
    Unsendable {
        /// The dead-letter topic.
        topic: String,
        /// The letter's offset.
        offset: i64,
        /// How many were replayed before.
        replayed: u64,
        /// Why, and what to do.
        reason: String,
    },
    /// Too many letters were replayed out of turn for Kafka to remember each.
    #[error(
        "too many letters of {topic} were replayed out of turn to remember each, after {replayed} of this run; replay \
         those from offset {position} on first"
    )]
    Scattered {
        /// The topic.
        topic: String,
        /// The first letter that is open.
        position: i64,
        /// How many were replayed before.
        replayed: u64,
    },
}

impl From<Explanation> for DlqError {
    fn from(explanation: Explanation) -> Self {
        Self::Cluster(explanation)
    }
}

fn list(partitions: &[i32]) -> String {
    let partitions: Vec<String> = partitions.iter().map(i32::to_string).collect();
    partitions.join(", ")
}

fn those_there(topics: &[String]) -> String {
    match topics {
        [] => "there are no .dlq topics on this cluster; `posthaste topics apply` creates those that are declared"
            .to_owned(),
        topics => format!("the .dlq topics of this cluster are {}", topics.join(", ")),
    }
}
