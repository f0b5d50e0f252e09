//! What other people's tables have and lack, for tests of how a relay gets along with them.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use posthaste_core::MessageId;
use posthaste_core::lifecycle::{Settlement, State, Verdict};
use posthaste_core::store::{Recovered, Scope, StoreRequirements};

use super::MemoryStore;
use super::rows::{Row, Rows};

/// The table that a [`MemoryStore`] imitates. The default is Posthaste's own.
///
/// ```
/// use posthaste_core::RelayStore;
/// use posthaste_testing::{MemoryLease, MemoryStore, MemoryTable};
///
/// let table = MemoryTable::new().lease(MemoryLease::RowLocks).without_attempts(true);
/// let store = MemoryStore::new().imitating(table);
/// assert!(store.requirements().batch_settlement && store.requirements().in_memory_attempts);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryTable {
    /// How a claim shows.
    pub lease: MemoryLease,
    /// There is no column for attempts: a row is always claimed for the first time.
    pub without_attempts: bool,
    /// There is a version that every transition checks and increments.
    pub versioned: bool,
}

/// How a [`MemoryTable`] keeps claimed rows from others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryLease {
    /// A column says until when the claim holds.
    #[default]
    Until,
    /// A column says since when the row is claimed, and none for how long: no claim takes over from crashed workers, and
    /// it takes [`RelayStore::recover`](posthaste_core::RelayStore::recover) to have their rows back.
    Since,
    /// No column says anything: the rows of a claim are locked by one transaction, which ends with the first settlement.
    /// What is not settled then is as it was before. When the lease runs out the transaction is rolled back.
    RowLocks,
}

impl MemoryTable {
    /// Posthaste's own table.
    pub const fn new() -> Self {
        Self {
            lease: MemoryLease::Until,
            without_attempts: false,
            versioned: false,
        }
    }

    /// Sets [`MemoryTable::lease`].
    #[must_use]
    pub const fn lease(mut self, lease: MemoryLease) -> Self {
        self.lease = lease;
        self
    }

    /// Sets [`MemoryTable::without_attempts`].
    #[must_use]
    pub const fn without_attempts(mut self, without: bool) -> Self {
        self.without_attempts = without;
        self
    }

    /// Sets [`MemoryTable::versioned`].
    #[must_use]
    pub const fn versioned(mut self, versioned: bool) -> Self {
        self.versioned = versioned;
        self
    }

    pub(super) fn requirements(self) -> StoreRequirements {
        StoreRequirements {
            batch_settlement: self.lease == MemoryLease::RowLocks,
            in_memory_attempts: self.without_attempts,
            ..StoreRequirements::default()
        }
    }
}

impl MemoryStore {
    /// The same outbox as a table that has less, or more.
    #[must_use]
    pub fn imitating(self, table: MemoryTable) -> Self {
        Self { table, ..self }
    }

    /// Gives a row a limit of attempts of its own.
    pub fn limit_attempts(&self, id: MessageId, max_attempts: u32) {
        if let Some(row) = self.shared.rows().row_mut(id) {
            row.max_attempts = Some(max_attempts);
        }
    }

    /// Gives a row a fault for which it can never be published, such as a type name without a topic.
    pub fn make_unpublishable(&self, id: MessageId, fault: &str) {
        if let Some(row) = self.shared.rows().row_mut(id) {
            row.fault = Some(fault.to_owned());
        }
    }

    /// Increments a row's version, as another program does that changes the row.
    pub fn change_version(&self, id: MessageId) {
        if let Some(row) = self.shared.rows().row_mut(id) {
            row.version += 1;
        }
    }
}

impl Rows {
    /// Rolls back the transactions of workers that were not heard of in time, where rows are locked by transactions.
    pub(super) fn roll_back_expired(&mut self, now: DateTime<Utc>) {
        for row in self.outbox.values_mut().filter(|row| row.model.is_expired(now)) {
            row.roll_back(now);
        }
    }

    /// Ends the transactions of some settlements: what they did not speak of is as it was before.
    pub(super) fn commit(&mut self, settlements: &[Settlement], now: DateTime<Utc>) {
        let tokens: HashSet<_> = settlements.iter().map(|settlement| settlement.token).collect();
        for row in self.outbox.values_mut() {
            if row.model.lease.is_some_and(|lease| tokens.contains(&lease.token)) {
                row.roll_back(now);
            }
        }
    }

    /// Takes rows back that were locked before `since`.
    pub(super) fn recover(
        &mut self,
        scope: &Scope,
        max_attempts: u32,
        since: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Recovered {
        let mut recovered = Recovered::default();
        let locked = &self.locked;
        for row in self.outbox.values_mut().filter(|row| row.is_in(scope)) {
            let stalled = row.locked_at.is_some_and(|at| at < since) && !locked.contains(&row.message.id);
            if stalled && row.model.recover(now, row.limit(max_attempts)).is_ok() {
                row.follow(now);
                if row.model.state == State::Dead {
                    recovered.died.push(row.message.id);
                } else {
                    recovered.pending.push(row.message.id);
                }
            }
        }
        recovered
    }
}

impl Row {
    fn roll_back(&mut self, now: DateTime<Utc>) {
        if let Some(lease) = self.model.lease
            && self.model.settle(now, lease.token, &Verdict::Released).is_ok()
        {
            self.follow(now);
        }
    }
}
