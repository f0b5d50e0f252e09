//! Dead-letter topics: what lies in them, and the way back.
//!
//! A letter is *open* until it was replayed. What was replayed is kept as the committed offset of the consumer group
//! `posthaste-dlq-replay.{topic}`, along with the letters above it that were replayed out of turn, so that tools which
//! watch groups show how many letters are open. A replay is the only member of that group, so that no letter is
//! replayed twice at the same time. Progress is committed after the brokers have acknowledged what was sent; a crash
//! in between sends up to a hundred letters again, and loses none.

mod error;
mod group;
mod marker;
mod progress;
mod reader;
mod record;
mod replay;
mod replay_lock;
mod selection;
mod summary;
mod topic;

#[cfg(test)]
mod tests;

pub use self::error::DlqError;
pub use self::group::group_of;
pub use self::record::{DeadLetterRecord, REPLAYED};
pub use self::replay::Replayed;
pub use self::selection::Selection;
pub use self::summary::{Summary, summaries};
pub use self::topic::DeadLetterTopic;

use crate::connection::Connection;

/// How many letters of a dead-letter topic are open.
pub async fn open_letters(connection: &Connection, topic: &str) -> Result<u64, DlqError> {
    DeadLetterTopic::open(connection, topic).await?.open_letters().await
}
