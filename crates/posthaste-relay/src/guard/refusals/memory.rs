//! The verdicts that could not be written, by message.

use std::collections::HashMap;

use posthaste_core::MessageId;
use posthaste_core::lifecycle::Verdict;
use tokio::time::Instant;

use super::entry::{Entry, Hold};

/// More than so many rows that are free again are not remembered; the one that was not seen for longest is forgotten.
pub(super) const MAX_FREE: usize = 10_000;

/// More than so many are not held: nothing more is claimed until the database takes some of them.
const MAX_HELD: usize = 10_000;

/// Of those whose letters are in the file little is held.
const MAX_SPOOLED: usize = 100_000;

/// More than so many bytes of whole messages are not held for the file.
const MAX_HELD_BYTES: u64 = 256 << 20;

#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) entries: HashMap<MessageId, Entry>,
    /// Rounds of settling in a row that brought refusals and nothing else.
    pub(super) barren: u32,
    pub(super) claims_after: Option<Instant>,
    /// When one of the deaths whose letters are in the file is tried next, for all of them.
    pub(super) next_probe: Option<Instant>,
}

impl Memory {
    /// What is known of a message, unless it is too long ago.
    pub(super) fn entry(&mut self, id: MessageId) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(&id)?;
        // Of one that is only to be given back nothing is known.
        (!entry.is_outdated() && entry.verdict != Verdict::Released).then_some(entry)
    }

    pub(super) fn leased(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().filter(|entry| entry.hold.is_leased())
    }

    /// Whether nothing more is to be claimed until the database, or the file, takes some of them.
    pub(super) fn is_full(&self) -> bool {
        let (mut held, mut spooled, mut bytes) = (0, 0, 0);
        for entry in self.leased() {
            held += usize::from(!entry.spooled);
            spooled += usize::from(entry.spooled);
            bytes += entry.message.whole.as_ref().map_or(0, |_| entry.message.bytes);
        }
        held >= MAX_HELD || spooled >= MAX_SPOOLED || bytes >= MAX_HELD_BYTES
    }

    pub(super) fn refused(&self) -> usize {
        self.entries.values().filter(|entry| entry.hold.is_refused()).count()
    }

    pub(super) fn busy(&self) -> usize {
        self.entries.values().filter(|entry| entry.hold == Hold::Busy).count()
    }

    pub(super) fn make_room(&mut self) {
        if self.entries.len() < MAX_FREE {
            return;
        }
        let free = self.entries.iter().filter(|(_, entry)| !entry.hold.is_leased());
        // Most lost claims are settled by another relay and never seen again.
        let oldest = free.min_by_key(|(_, entry)| (entry.hold != Hold::Lost, entry.due));
        let Some(oldest) = oldest.map(|(id, _)| *id) else {
            return;
        };
        if self
            .entries
            .remove(&oldest)
            .is_some_and(|entry| entry.hold != Hold::Lost)
        {
            tracing::error!(
                id = %oldest,
                "more than {MAX_FREE} verdicts are refused; one is forgotten, and its message may be published again"
            );
        }
    }
}
