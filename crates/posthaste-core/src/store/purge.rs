//! What is removed from an outbox once it is old.

use std::time::Duration;

#[cfg(doc)]
use super::RelayStore;
use crate::message::MessageId;

/// What [`RelayStore::purge`] removes. What is not named stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgeRequest {
    /// Messages of this namespace alone, where the table has namespaces; of all if there is none.
    pub namespace: Option<String>,
    /// Messages that were delivered longer ago than this.
    pub delivered: Option<Duration>,
    /// Messages that died longer ago than this.
    pub dead: Option<Duration>,
    /// Rows of a log's cursor that are older than this, but for the newest.
    pub cursor: Option<Duration>,
    /// Whether dedupe keys are freed whose window is over and whose message is gone.
    pub dedupe: bool,
    /// At most so many of each kind.
    pub limit: u32,
}

impl PurgeRequest {
    /// Everything of this age that nobody can miss: what was delivered, rows of the cursor, dedupe keys past their window.
    /// Dead messages stay.
    pub fn older_than(age: Duration, limit: u32) -> Self {
        Self {
            namespace: None,
            delivered: Some(age),
            dead: None,
            cursor: Some(age),
            dedupe: true,
            limit,
        }
    }
}

/// What was removed, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Delivered messages.
    pub delivered: u64,
    /// Dead messages; each is named, since nobody has its event any more.
    pub dead: Vec<MessageId>,
    /// Rows of a log's cursor.
    pub cursor: u64,
    /// Dedupe keys.
    pub dedupe: u64,
}

impl Purged {
    /// All rows.
    pub fn rows(&self) -> u64 {
        self.delivered + self.dead.len() as u64 + self.cursor + self.dedupe
    }

    /// The most of one kind: as many as asked for, if there may be more.
    pub fn most(&self) -> u64 {
        let dead = self.dead.len() as u64;
        self.delivered.max(dead).max(self.cursor).max(self.dedupe)
    }
}

/// How many rows a purge would remove.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purgeable {
    /// Delivered messages.
    pub delivered: u64,
    /// Dead messages.
    pub dead: u64,
    /// Rows of a log's cursor.
    pub cursor: u64,
    /// Dedupe keys.
    pub dedupe: u64,
}

impl Purgeable {
    /// All rows.
    pub fn rows(&self) -> u64 {
        self.delivered + self.dead + self.cursor + self.dedupe
    }
}
