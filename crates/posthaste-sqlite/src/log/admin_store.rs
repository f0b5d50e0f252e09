//! An operator's verbs, over the log and what stands beside it.

use std::time::Duration;

use async_trait::async_trait;
use chrono::DateTime;
use posthaste_core::lifecycle::State;
use posthaste_core::retry::MAX_DURATION;
use posthaste_core::store::{AdminStore, DeadLetter, Filter, PurgeRequest, Purgeable, Record, Restored, ShardStatus};
use posthaste_core::{MessageId, StoreError};
use sqlx::Row;
use sqlx::types::Json;

use super::rows::pairs;
use super::session::written_state;
use super::{Inner, SqliteLogStore};
use crate::begin::begin;
use crate::rows::{ByRole, epoch_millis, millis};

#[async_trait]
impl AdminStore for SqliteLogStore {
    async fn list(&self, filter: &Filter, after: Option<MessageId>, limit: u32) -> Result<Vec<Record>, StoreError> {
        let error = |error| self.inner.error(error);
        let records = self.inner.list(filter, after, limit).await.map_err(error)?;
        match after {
            Some(after) if records.is_empty() && !self.inner.exists(after).await.map_err(error)? => {
                Err(StoreError::gone(after))
            }
            _ => Ok(records),
        }
    }

    async fn show(&self, id: MessageId) -> Result<Option<Record>, StoreError> {
        let filter = Filter {
            ids: vec![id],
            ..Filter::default()
        };
        Ok(self.list(&filter, None, 1).await?.pop())
    }

    async fn replay(&self, filter: &Filter, limit: u32) -> Result<Vec<MessageId>, StoreError> {
        let changed = self.inner.change_dead(filter, limit, Change::Replay).await;
        changed.map_err(|error| self.inner.error(error))
    }

    async fn discard(&self, filter: &Filter, limit: u32) -> Result<Vec<MessageId>, StoreError> {
        let changed = self.inner.change_dead(filter, limit, Change::Discard).await;
        changed.map_err(|error| self.inner.error(error))
    }

    async fn restore(&self, letter: &DeadLetter) -> Result<Restored, StoreError> {
        let id = letter.message.id;
        if let Some(found) = self.show(id).await? {
            return Ok(Restored::There(found.state));
        }
        let inserted = self
            .inner
            .insert_dead(letter)
            .await
            .map_err(|error| self.inner.error(error))?;
        if inserted {
            return Ok(Restored::Inserted);
        }
        // Another import was quicker.
        let found = self.show(id).await?;
        Ok(Restored::There(found.map_or(State::Dead, |found| found.state)))
    }

    /// There is one, as far as its reader has written it down.
    async fn shards(&self) -> Result<Vec<ShardStatus>, StoreError> {
        let shard = self.inner.shard().await;
        Ok(vec![shard.map_err(|error| self.inner.error(error))?])
    }

    async fn purgeable(&self, request: &PurgeRequest) -> Result<Purgeable, StoreError> {
        let counted = self.inner.purgeable(request).await;
        counted.map_err(|error| self.inner.error(error))
    }
}

/// What becomes of dead rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Replay,
    Discard,
}

impl Inner {
    async fn list(&self, filter: &Filter, after: Option<MessageId>, limit: u32) -> sqlx::Result<Vec<Record>> {
        if filter.state == Some(State::Dead) {
            return self.list_dead(filter, after, limit).await;
        }
        let (state, in_flight) = self.state().await?;
        // What is in flight is pending in the tables.
        let (asked, looks_into_memory) = match filter.state {
            Some(State::Processing) => (Some(State::Pending), true),
            state => (state, false),
        };
        let ids = if looks_into_memory && filter.ids.is_empty() {
            Some(in_flight.ids.clone())
        } else {
            (!filter.ids.is_empty()).then(|| filter.ids.clone())
        };
        let rows = sqlx::query(self.statements.upkeep.list.sql())
            .bind(asked.map(State::as_str))
            .bind(&filter.topic)
            .bind(&filter.ordering_key)
            .bind(&filter.tenant)
            .bind(ids.map(Json))
            .bind(after.map(|id| id.to_string()))
            .bind(i64::from(limit))
            .bind(state.hi)
            .bind(Json(pairs(&state.open)))
            .fetch_all(self.common.pool())
            .await?;
        let mut records = Vec::with_capacity(rows.len());
        for row in &rows {
            let mut record = self.map.record(&ByRole(row))?;
            if record.state == State::Pending && in_flight.ids.contains(&record.message.id) {
                record.state = State::Processing;
            }
            if record.sequence.is_some_and(|row| in_flight.dead.contains(&row)) {
                record.state = State::Dead;
            }
            if filter.state.is_none_or(|state| state == record.state) {
                records.push(record);
            }
        }
        Ok(records)
    }

    /// From the table of failures, for the log may be large.
    async fn list_dead(&self, filter: &Filter, after: Option<MessageId>, limit: u32) -> sqlx::Result<Vec<Record>> {
        let rows = sqlx::query(self.statements.upkeep.list_dead.sql())
            .bind(&filter.topic)
            .bind(&filter.ordering_key)
            .bind(&filter.tenant)
            .bind((!filter.ids.is_empty()).then_some(Json(&filter.ids)))
            .bind(after.map(|id| id.to_string()))
            .bind(i64::from(limit))
            .fetch_all(self.common.pool())
            .await?;
        rows.iter().map(|row| self.map.record(&ByRole(row))).collect()
    }

    async fn exists(&self, id: MessageId) -> sqlx::Result<bool> {
        let exists = sqlx::query_scalar(self.statements.upkeep.exists.sql()).bind(id.to_string());
        exists.fetch_one(self.common.pool()).await
    }

    async fn change_dead(&self, filter: &Filter, limit: u32, change: Change) -> sqlx::Result<Vec<MessageId>> {
        if filter.state.is_some_and(|state| state != State::Dead) {
            return Ok(Vec::new());
        }
        let statement = match change {
            Change::Replay => &self.statements.upkeep.replay,
            Change::Discard => &self.statements.upkeep.discard,
        };
        let mut tx = begin(self.common.pool()).await?;
        let rows = sqlx::query(statement.sql())
            .bind(&filter.topic)
            .bind(&filter.ordering_key)
            .bind(&filter.tenant)
            .bind((!filter.ids.is_empty()).then_some(Json(&filter.ids)))
            .bind(i64::from(limit))
            .fetch_all(&mut *tx)
            .await?;
        let ids = self.ids_in_order(&rows)?;
        if change == Change::Discard && !ids.is_empty() {
            let rows = sqlx::query(self.statements.upkeep.discard_rows.sql()).bind(Json(&ids));
            rows.execute(&mut *tx).await?;
        }
        tx.commit().await?;
        if change == Change::Replay
            && let Some(session) = &mut *self.session.lock().await
        {
            session.retry_looks.at_once(self.now());
        }
        Ok(ids)
    }

    /// Returns whether the letter's row was gone and is there again.
    async fn insert_dead(&self, letter: &DeadLetter) -> sqlx::Result<bool> {
        let message = &letter.message;
        let headers = (!message.headers.is_empty()).then(|| serde_json::json!(message.headers).to_string());
        let texts = serde_json::json!([
            message.id.to_string(),
            message.topic,
            message.ordering_key,
            message.tenant,
            message.event_type,
            message.source,
            message.aggregate_type,
            message.aggregate_id,
            message.content_type,
            headers,
            letter.attempts,
            letter.error,
            message.dedupe_key,
            letter.hash.map(|hash| hash.to_string()),
        ]);
        let insert = sqlx::query(self.statements.upkeep.restore.sql())
            .bind(texts.to_string())
            .bind(message.payload.to_vec())
            .bind(epoch_millis(letter.created_at))
            .bind(epoch_millis(letter.died_at))
            .bind(&self.table);
        Ok(insert.execute(self.common.pool()).await?.rows_affected() > 0)
    }

    async fn shard(&self) -> sqlx::Result<ShardStatus> {
        let reading = &self.statements.reading;
        let row = sqlx::query(reading.reader.sql()).fetch_one(self.common.pool()).await?;
        let last: i64 = sqlx::query_scalar(reading.sequence.sql())
            .bind(&self.table)
            .fetch_one(self.common.pool())
            .await?;
        let state = written_state(&row)?;
        let open: u64 = state
            .open
            .iter()
            .map(|range| range.end().abs_diff(*range.start()) + 1)
            .sum();
        let owner: Option<String> = row.try_get("owner")?;
        let is_read = owner.is_some() && row.try_get("is_leased")?;
        Ok(ShardStatus {
            shard: 0,
            owner: owner.filter(|_| is_read).and_then(|owner| owner.parse().ok()),
            epoch: row.try_get("epoch")?,
            lag: open + u64::try_from(last - state.hi).unwrap_or(0),
            position: state.position(),
            generation: 1,
            readable: true,
            leased_until: DateTime::from_timestamp_millis(row.try_get("leased_until")?).filter(|_| is_read),
            process: None,
        })
    }

    async fn purgeable(&self, request: &PurgeRequest) -> sqlx::Result<Purgeable> {
        let age = |kept: Option<Duration>| millis(kept.unwrap_or(MAX_DURATION));
        let (state, _) = self.state().await?;
        let row = sqlx::query(self.statements.upkeep.purgeable.sql())
            .bind(age(request.delivered))
            .bind(age(request.dead))
            .bind(state.position())
            .fetch_one(self.common.pool())
            .await?;
        let count = |name: &str| row.try_get::<i64, _>(name).map(i64::cast_unsigned);
        Ok(Purgeable {
            delivered: count("delivered")?,
            dead: count("dead")?,
            dedupe: if request.dedupe { count("dedupe")? } else { 0 },
            cursor: 0,
        })
    }
}
