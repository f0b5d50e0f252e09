//! How rows are claimed, by what the table has.

use super::{Layout, Role, Table, TableMap};
use posthaste_core::store::StoreRequirements;

/// How rows of a table are claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Under a lease; fresh and waiting rows have indexes of their own.
    Split,
    /// Under a lease, in the table's order.
    Leased,
    /// By locks that are held while publishing.
    RowLocks,
    /// By a cursor over a log.
    Log,
}

impl TableMap {
    /// How its rows are claimed.
    pub fn strategy(&self) -> Strategy {
        match self.layout {
            Layout::Log => Strategy::Log,
            Layout::Queue if !self.has(Role::LockedUntil) && !self.has(Role::LockedAt) => Strategy::RowLocks,
            Layout::Queue if self.split_index => Strategy::Split,
            Layout::Queue => Strategy::Leased,
        }
    }

    /// What the table asks of the engine.
    pub fn requirements(&self) -> StoreRequirements {
        let row_locks = self.strategy() == Strategy::RowLocks;
        StoreRequirements {
            batch_settlement: row_locks,
            in_memory_attempts: row_locks && !self.has(Role::Attempts),
            append_only: self.strategy() == Strategy::Log,
            undated_deaths: match self.layout {
                Layout::Log => !self.has((Table::Failed, Role::DiedAt)),
                Layout::Queue => !self.has(Role::UpdatedAt),
            },
            dead_letter_table: self.has(Table::DeadLetter),
            known_by_event: self.strategy() == Strategy::Log && self.is_native(),
        }
    }
}
