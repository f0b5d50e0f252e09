//! What this store knows of rows beyond what stands in the tables, if it is the one that reads.

use std::collections::{HashMap, HashSet};

use posthaste_core::StoreError;
use posthaste_core::lifecycle::State;
use posthaste_sql::log::{Failure, Ranges, Standing};

use super::error::LogResult;
use super::{PostgresLogStore, Reader};
use crate::error::store_error;

/// Rows that are not settled, or may come.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Ids that were not handed out, by what the reader knows if it is this store, else by what it stored.
    pub(super) waiting: Ranges,
    /// How many of them are not due.
    pub(super) postponed: usize,
    /// Rows of the log that are handed out.
    pub(super) in_flight: HashSet<i64>,
    /// Rows of the log that failed, which is not written down yet.
    pub(super) failures: HashMap<i64, Failure>,
    /// Failed rows that are handed out, by their primary keys.
    pub(super) retried: HashSet<i64>,
}

impl Known {
    /// All ids of the log that are not settled and may be in this state. The dead are in the table of failures, but for those of
    /// which that is not written down yet.
    pub(super) fn unsettled(&self, asked: Option<State>) -> Ranges {
        if asked == Some(State::Dead) {
            let mut dead = Ranges::default();
            let failures = self.failures.values().filter(|failure| failure.dead);
            failures.for_each(|failure| dead.insert(failure.id..=failure.id));
            return dead;
        }
        let mut unsettled = self.waiting.clone();
        for id in self.in_flight.iter().chain(self.failures.keys()) {
            unsettled.insert(*id..=*id);
        }
        unsettled
    }

    /// The state of a row of the log. One that is settled and not in the table of failures was delivered.
    pub(super) fn state(&self, id: i64) -> State {
        match self.failures.get(&id) {
            Some(failure) if failure.dead => State::Dead,
            Some(_) => State::Pending,
            None if self.in_flight.contains(&id) => State::Processing,
            None if self.waiting.contains(id) => State::Pending,
            None => State::Delivered,
        }
    }
}

impl PostgresLogStore {
    /// Of the whole log, whoever reads its shards. Asked within transactions and by unnamed statements: a relay of the queue looks
    /// here too, perhaps through a pooler.
    pub(super) async fn known(&self) -> Result<Known, StoreError> {
        let mut all = Known::default();
        for shard in self.shard_numbers().await? {
            let reader = self.readers.onlooker(shard);
            let known = reader.known().await?;
            let waiting = reader.shard.as_ref().map(|shard| shard.part_of(&known.waiting));
            all.waiting.extend(waiting.as_ref().unwrap_or(&known.waiting));
            all.postponed += known.postponed;
            all.in_flight.extend(known.in_flight);
            all.failures.extend(known.failures);
            all.retried.extend(known.retried);
        }
        Ok(all)
    }

    /// The shards that there are; a mapped log counts as one.
    async fn shard_numbers(&self) -> Result<Vec<i32>, StoreError> {
        let Some(sharding) = &self.log.statements.sharding else {
            return Ok(vec![0]);
        };
        let mut tx = self.log.begin_bounded().await.map_err(store_error)?;
        let shards = sqlx::query_scalar(sharding.shards.sql()).persistent(false);
        shards.fetch_all(&mut *tx).await.map_err(store_error)
    }

    /// The numbers that rows may have.
    pub(super) async fn all_numbers(&self) -> Result<Ranges, StoreError> {
        let mut all = Ranges::default();
        for shard in self.shard_numbers().await? {
            if let Some(shard) = &self.readers.onlooker(shard).shard {
                all.insert(shard.numbers());
            }
        }
        Ok(all)
    }
}

impl Reader {
    async fn known(&self) -> LogResult<Known> {
        let now = self.now();
        if let Some(session) = self.lock.lock().await.session() {
            let mut known = Known {
                waiting: session.reader.unread(),
                ..Known::default()
            };
            for (id, standing) in session.reader.window.standings() {
                match standing {
                    Standing::Waiting { due } => known.postponed += usize::from(due.is_some_and(|due| due > now)),
                    Standing::InFlight => drop(known.in_flight.insert(id)),
                    Standing::Failed(failure) => drop(known.failures.insert(id, failure)),
                }
            }
            let retried = session.retries.iter().filter(|(_, retry)| retry.outcome.is_none());
            known.retried.extend(retried.map(|(row, _)| *row));
            return Ok(known);
        }
        Ok(Known {
            waiting: self.stored_state().await?.unsettled(),
            ..Known::default()
        })
    }
}
