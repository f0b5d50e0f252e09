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
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::known::Known;
use super::rows::{failed, failed_number, fresh};
use super::statements::LogStatement;
use super::{PostgresLogStore, seats};
use crate::error::store_error;
use crate::rows::millis;

/// Rows of one look. Topics stand in no column, so what a filter means is sorted out here.
const PAGE: i64 = 1_000;

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
        let Some(record) = self.log_records(&known, &rows, events, 1).await?.pop() else {
            return Ok(None);
        };
        // It may be settled because it failed.
        let of_event = Filter {
            ids: vec![MessageId::text(&record.message.effective_event_id())],
            ..Filter::default()
        };
        let failed = self.list_failed(&known, &of_event, 0, 1).await?.pop();
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
        let mut connection = self.log.pool.acquire().await.map_err(store_error)?;
        seats::status(&mut connection, schema).await
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
    async fn list_failed(
        &self,
        known: &Known,
        filter: &Filter,
        start: i64,
        limit: usize,
    ) -> Result<Vec<(i64, Record)>, StoreError> {
        // Ids of failed rows, or of events: an operator may have found either.
        let numbers: Vec<i64> = filter.ids.iter().filter_map(|id| failed_number(*id)).collect();
        let events: Vec<String> = filter.ids.iter().map(ToString::to_string).collect();
        let (mut found, mut after) = (Vec::new(), start);
        while found.len() < limit {
            let rows = sqlx::query(self.log.statements.upkeep.list_failed.sql())
                .bind(after)
                .bind((!events.is_empty()).then_some(&events))
                .bind(&numbers)
                .bind(PAGE)
                .fetch_all(&self.log.pool)
                .await
                .map_err(store_error)?;
            for row in &rows {
                let (number, mut record) = self.failed_record(known, row).map_err(store_error)?;
                after = number;
                if matches(filter, &record) {
                    // Who enqueued it into Posthaste's own log was told the id of the event.
                    if self.log.is_native() {
                        record.message.id = MessageId::guess(&record.message.effective_event_id());
                    }
                    found.push((number, record));
                }
            }
            if rows.len() < usize::try_from(PAGE).unwrap_or(usize::MAX) {
                break;
            }
        }
        found.truncate(limit);
        Ok(found)
    }

    async fn list_log(
        &self,
        known: &Known,
        filter: &Filter,
        after: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let mut ids = known.unsettled();
        if let Some(after) = after {
            ids = ids.split_above(after);
        }
        let events: Vec<Uuid> = filter.ids.iter().filter_map(|id| id.uuid()).collect();
        let events = (self.log.is_native() && !events.is_empty()).then_some(events);
        if !filter.ids.is_empty() && events.is_none() {
            let numbers = filter.ids.iter().filter_map(|id| id.number());
            let mut asked = Ranges::default();
            numbers
                .filter(|id| ids.contains(*id))
                .for_each(|id| asked.insert(id..=id));
            ids = asked;
        }
        let mut found = Vec::new();
        while found.len() < limit && !ids.is_empty() {
            let records = self.log_records(known, &ids, events.clone(), PAGE).await?;
            let Some(last) = records.last().and_then(|record| record.sequence) else {
                break;
            };
            ids = ids.split_above(last);
            found.extend(records.into_iter().filter(|record| matches(filter, record)));
        }
        found.truncate(limit);
        Ok(found)
    }

    async fn log_records(
        &self,
        known: &Known,
        ids: &Ranges,
        events: Option<Vec<Uuid>>,
        limit: i64,
    ) -> Result<Vec<Record>, StoreError> {
        let (first, last): (Vec<i64>, Vec<i64>) = ids.iter().map(|range| (*range.start(), *range.end())).unzip();
        let query = sqlx::query(self.log.statements.upkeep.list_log.sql())
            .bind(first)
            .bind(last)
            .bind(limit);
        let query = if self.log.is_native() {
            query.bind(events)
        } else {
            query
        };
        let rows = query.fetch_all(&self.log.pool).await.map_err(store_error)?;
        let record = |row: &PgRow| {
            let claimed = fresh(row, &self.log.map)?;
            let id = row.try_get("id")?;
            let error = known.failures.get(&id).and_then(|failure| failure.error.clone());
            Ok(Record {
                sequence: claimed.sequence,
                message: claimed.message,
                state: known.state(id),
                attempts: u32::from(error.is_some()),
                next_attempt_at: claimed.created_at,
                locked_by: None,
                locked_until: None,
                last_error: error.or(claimed.fault),
                created_at: claimed.created_at,
                updated_at: claimed.created_at,
                delivered_at: None,
            })
        };
        rows.iter()
            .map(record)
            .collect::<sqlx::Result<_>>()
            .map_err(store_error)
    }

    fn failed_record(&self, known: &Known, row: &PgRow) -> sqlx::Result<(i64, Record)> {
        let claimed = failed(row, &self.log.map)?;
        let number = row.try_get("id")?;
        let retries: i64 = row.try_get("attempts")?;
        let last_error: Option<String> = row.try_get("last_error")?;
        let dead: Option<bool> = row.try_get("dead")?;
        let dead = dead.unwrap_or(retries >= i64::from(self.log.options.max_retries));
        let record = Record {
            message: claimed.message,
            sequence: claimed.sequence,
            state: match (dead, known.retried.contains(&number)) {
                (_, true) => State::Processing,
                (true, false) => State::Dead,
                (false, false) => State::Pending,
            },
            // Where retries are counted, the first attempt was made in the log, unless the row only waits behind another one.
            attempts: u32::try_from(retries)
                .unwrap_or(0)
                .saturating_add(u32::from(!self.log.is_native() && last_error.is_some())),
            next_attempt_at: row.try_get("next_attempt_at")?,
            locked_by: None,
            locked_until: None,
            last_error,
            created_at: claimed.created_at,
            updated_at: claimed.created_at,
            delivered_at: None,
        };
        Ok((number, record))
    }

    /// The number of a failed row, to go on after it.
    async fn failed_row(&self, id: MessageId) -> Result<i64, StoreError> {
        let filter = Filter {
            ids: vec![id],
            ..Filter::default()
        };
        let found = self.list_failed(&Known::default(), &filter, 0, 1).await?.pop();
        found.map(|(number, _)| number).ok_or_else(|| StoreError::gone(id))
    }

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

fn matches(filter: &Filter, record: &Record) -> bool {
    let message = &record.message;
    let is = |asked: &Option<String>, found: Option<&str>| asked.as_deref().is_none_or(|asked| found == Some(asked));
    is(&filter.namespace, message.namespace.as_deref())
        && filter.state.is_none_or(|state| state == record.state)
        && is(&filter.topic, Some(&message.topic))
        && is(&filter.ordering_key, message.ordering_key.as_deref())
        && is(&filter.tenant, message.tenant.as_deref())
        && (filter.ids.is_empty()
            || filter
                .ids
                .iter()
                .any(|id| *id == message.id || id.to_string() == message.effective_event_id()))
}
