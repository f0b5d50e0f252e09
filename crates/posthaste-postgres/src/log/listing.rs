//! How an operator's rows are found: those in the table of failures, and those of the log that are not settled.

use chrono::{DateTime, Utc};
use posthaste_core::lifecycle::State;
use posthaste_core::store::{Filter, Record};
use posthaste_core::{MessageId, StoreError};
use posthaste_sql::log::Ranges;
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::PostgresLogStore;
use super::known::Known;
use super::rows::{failed, failed_number, fresh};
use crate::error::store_error;
use crate::pooling;

/// Rows of one look. In existing tables topics stand in no column, so what a filter means is sorted out here.
const PAGE: i64 = 1_000;

/// How a page of the log is read: by its index, in order. A plan for a log of which little is known, such as how long it is, would
/// sort all of it.
const BEGIN_IN_ORDER: &str =
    "begin read only; set local enable_seqscan = off; set local enable_sort = off; set local jit = off";

/// The ids that a filter asks for.
struct Asked {
    /// None if any is meant.
    events: Option<Vec<String>>,
    numbers: Vec<i64>,
}

impl PostgresLogStore {
    /// Failed rows above `start`, by number.
    pub(super) async fn list_failed(
        &self,
        known: &Known,
        filter: &Filter,
        start: i64,
        limit: usize,
    ) -> Result<Vec<(i64, Record)>, StoreError> {
        let (mut found, mut after) = (Vec::new(), Some(start));
        while let Some(start) = after.filter(|_| found.len() < limit) {
            let page = if filter.state == Some(State::Dead) {
                self.dead_page(filter, start, limit - found.len()).await
            } else {
                self.failed_page(filter, start).await
            };
            let (rows, next) = page.map_err(store_error)?;
            after = next;
            for row in &rows {
                let (number, mut record) = self.failed_record(known, row).map_err(store_error)?;
                if matches(filter, &record) {
                    // Who enqueued it into Posthaste's own log was told the id of the event. Of several rows with one event each
                    // keeps its own name: who names one of them means no other, and a page goes on after it.
                    if self.log.is_native() && !row.try_get("shares_event").map_err(store_error)? {
                        record.message.id = MessageId::guess(&record.message.effective_event_id());
                    }
                    found.push((number, record));
                }
            }
        }
        found.truncate(limit);
        Ok(found)
    }

    /// Some failed rows of any state, and the number after which there may be more.
    async fn failed_page(&self, filter: &Filter, start: i64) -> sqlx::Result<(Vec<PgRow>, Option<i64>)> {
        let asked = self.asked(filter);
        let rows = sqlx::query(self.log.statements.upkeep.list_failed.sql())
            .bind(start)
            .bind(asked.events)
            .bind(asked.numbers)
            .bind(PAGE)
            .fetch_all(&self.log.pool)
            .await?;
        let last = rows.last().filter(|_| is_full(rows.len(), PAGE));
        let next = last.map(|row| row.try_get("id")).transpose()?;
        Ok((rows, next))
    }

    /// The same of dead ones, of which there may be few among many that wait.
    async fn dead_page(&self, filter: &Filter, start: i64, limit: usize) -> sqlx::Result<(Vec<PgRow>, Option<i64>)> {
        let upkeep = &self.log.statements.upkeep;
        let asked = self.asked(filter);
        // Where the filter stands in columns, all that is found is wanted.
        let page = match i64::try_from(limit) {
            Ok(limit) if self.log.is_native() => limit.min(PAGE),
            _ => PAGE,
        };
        let query = sqlx::query_scalar(upkeep.find_dead.sql())
            .bind(start)
            .bind(i64::from(self.log.options.max_retries))
            .bind(asked.events)
            .bind(asked.numbers)
            .bind(page);
        let query = if self.log.is_native() {
            query
                .bind(&filter.topic)
                .bind(&filter.ordering_key)
                .bind(&filter.tenant)
        } else {
            query
        };
        let numbers: Vec<i64> = query.fetch_all(&self.log.pool).await?;
        let next = numbers.last().copied().filter(|_| is_full(numbers.len(), page));
        let rows = sqlx::query(upkeep.list_failed.sql())
            .bind(start)
            .bind(Vec::<String>::new())
            .bind(numbers)
            .bind(page)
            .fetch_all(&self.log.pool)
            .await?;
        Ok((rows, next))
    }

    /// What a filter's ids may be: failed rows, or their events. An operator may have found either.
    fn asked(&self, filter: &Filter) -> Asked {
        let ids = || filter.ids.iter();
        let mut events: Vec<String> = ids().map(ToString::to_string).collect();
        if self.log.is_native() {
            events.retain(|event| event.parse::<Uuid>().is_ok());
        }
        Asked {
            events: (!filter.ids.is_empty()).then_some(events),
            numbers: ids().filter_map(|id| failed_number(*id)).collect(),
        }
    }

    /// Rows of the log that are not settled, above `after`.
    pub(super) async fn list_log(
        &self,
        known: &Known,
        filter: &Filter,
        after: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let mut ids = known.unsettled(filter.state);
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
        self.log_rows(known, filter, ids, events, limit).await
    }

    /// Rows of the log with these numbers, page by page.
    pub(super) async fn log_rows(
        &self,
        known: &Known,
        filter: &Filter,
        mut ids: Ranges,
        events: Option<Vec<Uuid>>,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let mut found = Vec::new();
        while found.len() < limit
            && let Some(end) = end_of_page(&ids)
        {
            let rest = ids.split_above(end);
            let page = self.log_page(known, &ids, events.clone()).await;
            let (records, next) = page.map_err(store_error)?;
            ids = next.map_or_else(Ranges::default, |next| ids.split_above(next));
            ids.extend(&rest);
            found.extend(records.into_iter().filter(|record| matches(filter, record)));
        }
        found.truncate(limit);
        Ok(found)
    }

    /// Some rows of the log, and the number after which there may be more.
    async fn log_page(
        &self,
        known: &Known,
        ids: &Ranges,
        events: Option<Vec<Uuid>>,
    ) -> sqlx::Result<(Vec<Record>, Option<i64>)> {
        let (first, last): (Vec<i64>, Vec<i64>) = ids.iter().map(|range| (*range.start(), *range.end())).unzip();
        let query = sqlx::query(self.log.statements.upkeep.list_log.sql())
            .bind(first)
            .bind(last)
            .bind(PAGE);
        let query = if self.log.is_native() {
            query.bind(events)
        } else {
            query
        };
        let mut tx = pooling::begin(&self.log.pool, BEGIN_IN_ORDER).await?;
        let rows = query.fetch_all(&mut *tx).await?;
        tx.rollback().await?;
        let last = rows.last().filter(|_| is_full(rows.len(), PAGE));
        let next = last.map(|row| row.try_get("id")).transpose()?;
        let mut records = Vec::with_capacity(rows.len());
        for row in &rows {
            if !row.try_get("discarded")? {
                records.push(self.log_record(known, row)?);
            }
        }
        Ok((records, next))
    }

    fn log_record(&self, known: &Known, row: &PgRow) -> sqlx::Result<Record> {
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
    }

    fn failed_record(&self, known: &Known, row: &PgRow) -> sqlx::Result<(i64, Record)> {
        let claimed = failed(row, &self.log.map)?;
        let number = row.try_get("id")?;
        let retries: i64 = row.try_get("attempts")?;
        let last_error: Option<String> = row.try_get("last_error")?;
        let dead: Option<bool> = row.try_get("dead")?;
        let died_at: Option<DateTime<Utc>> = row.try_get("died_at")?;
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
            updated_at: died_at.unwrap_or(claimed.created_at),
            delivered_at: None,
        };
        Ok((number, record))
    }

    /// The number of a failed row, to go on after it.
    pub(super) async fn failed_row(&self, id: MessageId) -> Result<i64, StoreError> {
        let filter = Filter {
            ids: vec![id],
            ..Filter::default()
        };
        let found = self.list_failed(&Known::default(), &filter, 0, 1).await?.pop();
        found.map(|(number, _)| number).ok_or_else(|| StoreError::gone(id))
    }
}

/// Whether there may be more than these.
fn is_full(rows: usize, page: i64) -> bool {
    i64::try_from(rows).is_ok_and(|rows| rows >= page)
}

/// The last of the ids that are read at once: of a long range by itself, or of some that are short.
fn end_of_page(ids: &Ranges) -> Option<i64> {
    let (mut end, mut count) = (None, 0_u64);
    for range in ids.iter() {
        let length = range.end().abs_diff(*range.start()).saturating_add(1);
        count = count.saturating_add(length);
        if end.is_some() && count > PAGE.cast_unsigned() {
            break;
        }
        end = Some(*range.end());
    }
    end
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
