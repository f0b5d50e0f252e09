//! An operator's verbs. Failed rows come first, by number, then the rows of the log that are not settled.

use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::lifecycle::State;
use posthaste_core::retry::MAX_DURATION;
use posthaste_core::store::{AdminStore, DeadLetter, Filter, PurgeRequest, Purgeable, Record, Restored, ShardStatus};
use posthaste_core::{MessageId, StoreError};
use posthaste_sql::log::Ranges;
use posthaste_sql::table::{Role, Table};
use sqlx::Row;

use super::statements::LogStatement;
use super::{PostgresLogStore, seats};
use crate::error::store_error;
use crate::rows::millis;

/// So many failed rows of one event are looked at for that of a row of the log.
const MAX_OF_EVENT: usize = 100;

#[async_trait]
impl AdminStore for PostgresLogStore {
    async fn list(&self, filter: &Filter, after: Option<MessageId>, limit: u32) -> Result<Vec<Record>, StoreError> {
        let limit = limit as usize;
        let known = self.known().await?;
        let mut records = Vec::new();
        if after.is_none_or(|after| after.number().is_none()) {
            let start = match after {
                Some(after) => self.failed_row(after).await?,
                None => 0,
            };
            let rows = self.list_failed(&known, filter, start, limit).await?;
            records.extend(rows.into_iter().map(|(_, record)| record));
        }
        if records.len() < limit {
            let rest = limit - records.len();
            let after = after.and_then(MessageId::number);
            records.extend(self.list_log(&known, filter, after, rest).await?);
        }
        Ok(records)
    }

    async fn show(&self, id: MessageId) -> Result<Option<Record>, StoreError> {
        let filter = Filter {
            ids: vec![id],
            ..Filter::default()
        };
        if let Some(record) = self.list(&filter, None, 1).await?.pop() {
            return Ok(Some(record));
        }
        // A row of the log that is settled. By its number if that is asked for; else all of them are looked through, for
        // the log has no index by event.
        let (rows, events) = match id {
            MessageId::Number(row) => (Ranges::of(row..=row), None),
            MessageId::Uuid(event) if self.log.is_native() => (self.all_numbers().await?, Some(vec![event])),
            MessageId::Uuid(_) | MessageId::Text(_) => return Ok(None),
        };
        let known = self.known().await?;
        let all = Filter::default();
        let Some(record) = self.log_rows(&known, &all, rows, events, 1).await?.pop() else {
            return Ok(None);
        };
        // It may be settled because it failed. Others may be of the same event.
        let of_event = Filter {
            ids: vec![MessageId::text(&record.message.effective_event_id())],
            ..Filter::default()
        };
        let is_it = |failed: &Record| match (id, failed.sequence) {
            (MessageId::Number(row), Some(place)) => row == place,
            _ => true,
        };
        let failed = self.list_failed(&known, &of_event, 0, MAX_OF_EVENT).await?;
        let failed = failed.into_iter().find(|(_, failed)| is_it(failed));
        Ok(Some(failed.map_or(record, |(_, failed)| failed)))
    }

    async fn replay(&self, filter: &Filter, limit: u32) -> Result<Vec<MessageId>, StoreError> {
        self.change_dead(&self.log.statements.upkeep.replay, filter, limit)
            .await
    }

    async fn discard(&self, filter: &Filter, limit: u32) -> Result<Vec<MessageId>, StoreError> {
        self.change_dead(&self.log.statements.upkeep.discard, filter, limit)
            .await
    }

    async fn restore(&self, letter: &DeadLetter) -> Result<Restored, StoreError> {
        self.restore_letter(letter).await
    }

    async fn shards(&self) -> Result<Vec<ShardStatus>, StoreError> {
        let table = self.log.map.table(Table::Outbox).filter(|_| self.log.map.is_native());
        let Some(schema) = table.and_then(|table| table.schema.as_ref()) else {
            return Ok(Vec::new());
        };
        let mut tx = seats::begin_look(&self.log.pool).await?;
        let shards = seats::status(&mut tx, schema).await?;
        tx.rollback().await.map_err(store_error)?;
        Ok(shards)
    }

    async fn purgeable(&self, request: &PurgeRequest) -> Result<Purgeable, StoreError> {
        let log = &*self.log;
        let age = |kept: Option<Duration>| millis(kept.unwrap_or(MAX_DURATION));
        let mut purgeable = Purgeable::default();
        if request.dead.is_some() {
            let dying = log.statements.dying.as_ref();
            let dying = dying.ok_or_else(|| StoreError::no_time_of_death(log.map.name()))?;
            let counted = sqlx::query_scalar(dying.purgeable_dead.sql()).bind(age(request.dead));
            let dead: i64 = counted.fetch_one(&log.pool).await.map_err(store_error)?;
            purgeable.dead = dead.cast_unsigned();
        }
        if let Some(beside) = &log.beside {
            let queue = PurgeRequest {
                dead: None,
                cursor: None,
                ..request.clone()
            };
            let beside = beside.purgeable(&queue).await?;
            purgeable.dedupe = beside.dedupe;
            purgeable.delivered = beside.delivered;
        }
        if let (Some(tables), Some(age)) = (&log.tables, request.delivered) {
            purgeable.delivered += tables.rows_of_old_segments(age).await?;
        }
        let Some(statements) = &log.statements.cursors else {
            return Ok(purgeable);
        };
        let row = sqlx::query(statements.purgeable.sql())
            .bind(age(request.cursor))
            .bind(self.stored_cursor().await?)
            .bind(log.options.purge_log)
            .bind(age(request.delivered))
            .fetch_one(&log.pool)
            .await
            .map_err(store_error)?;
        let count = |name: &str| row.try_get::<i64, _>(name).map(i64::cast_unsigned).map_err(store_error);
        if log.map.has((Table::Cursor, Role::CreatedAt)) {
            purgeable.cursor = count("cursor_rows")?;
        }
        purgeable.delivered = count("log_rows")?;
        Ok(purgeable)
    }
}

impl PostgresLogStore {
    async fn change_dead(
        &self,
        statement: &LogStatement,
        filter: &Filter,
        limit: u32,
    ) -> Result<Vec<MessageId>, StoreError> {
        if filter.state.is_some_and(|state| state != State::Dead) {
            return Ok(Vec::new());
        }
        let dead = Filter {
            state: Some(State::Dead),
            ..filter.clone()
        };
        let chosen = self.list_failed(&self.known().await?, &dead, 0, limit as usize).await?;
        let mut tx = self.log.begin_bounded().await.map_err(store_error)?;
        let changed: Vec<i64> = sqlx::query_scalar(statement.sql())
            .bind(chosen.iter().map(|(number, _)| *number).collect::<Vec<_>>())
            .bind(i64::from(self.log.options.max_retries))
            .fetch_all(&mut *tx)
            .await
            .map_err(store_error)?;
        tx.commit().await.map_err(store_error)?;
        let ids = chosen.into_iter().filter(|(number, _)| changed.contains(number));
        Ok(ids.map(|(_, record)| record.message.id).collect())
    }
}
