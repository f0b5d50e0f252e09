//! From rows to the core's types.

use std::cmp::Ordering;
use std::time::Duration;

use chrono::{DateTime, Utc};
use posthaste_core::message::MessageId;
use posthaste_core::store::{ClaimedMessage, Record};
use posthaste_sql::TableMap;
use posthaste_sql::table::RawRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, TypeInfo, ValueRef};

/// A thousand years: longer than anybody means, and far from where SQLite's integers turn into floats.
const FOREVER_MS: i64 = 1_000 * 365 * 24 * 3_600 * 1_000;

/// Milliseconds as SQL takes them.
pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).map_or(FOREVER_MS, |millis| millis.min(FOREVER_MS))
}

/// A time as the tables keep it, rounded up: nothing is delivered too early.
pub(crate) fn epoch_millis(time: DateTime<Utc>) -> i64 {
    time.timestamp_micros().saturating_add(999).div_euclid(1_000)
}

pub(crate) fn time(row: &SqliteRow, column: &str) -> sqlx::Result<DateTime<Utc>> {
    from_epoch_millis(row.try_get(column)?, column)
}

fn optional_time(row: &SqliteRow, column: &str) -> sqlx::Result<Option<DateTime<Utc>>> {
    let millis: Option<i64> = row.try_get(column)?;
    millis.map(|millis| from_epoch_millis(millis, column)).transpose()
}

fn from_epoch_millis(millis: i64, column: &str) -> sqlx::Result<DateTime<Utc>> {
    DateTime::from_timestamp_millis(millis)
        .ok_or_else(|| undecodable(column, format!("{millis} is not a time in milliseconds")))
}

pub(crate) fn undecodable(column: &str, reason: String) -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: reason.into(),
    }
}

/// An id in the spelling of its row, by which the row is found again: UUIDs may be kept in capital letters.
pub(crate) fn id(row: &SqliteRow, column: &str, map: &TableMap) -> sqlx::Result<MessageId> {
    let text: String = row.try_get(column)?;
    let id = map.id(&text);
    Ok(if id.to_string() == text {
        id
    } else {
        MessageId::text(&text)
    })
}

/// The ids of changed rows in the table's order; `RETURNING` gives them in any order.
pub(crate) fn ids_in_order(mut rows: Vec<SqliteRow>, map: &TableMap) -> sqlx::Result<Vec<MessageId>> {
    sort(&mut rows, map);
    rows.iter().map(|row| id(row, "id", map)).collect()
}

/// Claimed rows in the table's order; `UPDATE … RETURNING` gives them in any order.
pub(crate) fn claimed(mut rows: Vec<SqliteRow>, map: &TableMap) -> sqlx::Result<Vec<ClaimedMessage>> {
    sort(&mut rows, map);
    rows.iter()
        .map(|row| {
            let raw = raw(row)?;
            let mut claimed = map.claimed(&raw);
            claimed.message.id = id(row, "id", map)?;
            Ok(claimed)
        })
        .collect()
}

pub(crate) fn record(row: &SqliteRow, map: &TableMap) -> sqlx::Result<Record> {
    let word: String = row.try_get("status")?;
    let state = map
        .state(&word)
        .ok_or_else(|| undecodable("status", format!("`{word}` is not a state of this table map")))?;
    let raw = raw(row)?;
    let (mut message, _) = map.message(&raw);
    message.id = id(row, "id", map)?;
    Ok(Record {
        message,
        sequence: row.try_get("seq")?,
        state,
        attempts: u32::try_from(raw.attempts).unwrap_or(0),
        next_attempt_at: optional_time(row, "next_attempt_at")?.unwrap_or(raw.created_at),
        locked_by: row.try_get("locked_by")?,
        locked_until: optional_time(row, "locked_until")?,
        last_error: row.try_get("last_error")?,
        created_at: raw.created_at,
        updated_at: optional_time(row, "updated_at")?.unwrap_or(raw.created_at),
        delivered_at: optional_time(row, "delivered_at")?,
    })
}

fn raw(row: &SqliteRow) -> sqlx::Result<RawRow> {
    Ok(RawRow {
        id: row.try_get("id")?,
        event_id: row.try_get("event_id")?,
        namespace: row.try_get("namespace")?,
        topic: row.try_get("topic")?,
        ordering_key: row.try_get("ordering_key")?,
        tenant: row.try_get("tenant")?,
        dedupe_key: row.try_get("dedupe_key")?,
        event_type: row.try_get("event_type")?,
        source: row.try_get("source")?,
        aggregate_type: row.try_get("aggregate_type")?,
        aggregate_id: row.try_get("aggregate_id")?,
        content_type: row.try_get("content_type")?,
        payload: row.try_get::<Option<_>, _>("payload")?.unwrap_or_default(),
        headers: row.try_get("headers")?,
        content_hash: row.try_get("content_hash")?,
        attempts: row.try_get::<Option<_>, _>("attempts")?.unwrap_or(0),
        max_attempts: row.try_get("max_attempts")?,
        version: row.try_get("version")?,
        // A table that somebody already has may not say when a row was written; its age is then unknown.
        created_at: optional_time(row, "created_at")?.unwrap_or_else(Utc::now),
    })
}

/// A value of an order column. They compare as in SQLite, as long as a column does not mix whole and other numbers.
#[derive(PartialEq, PartialOrd)]
enum Place {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Bytes(Vec<u8>),
}

fn place(row: &SqliteRow, column: usize) -> sqlx::Result<Place> {
    let name = format!("order_{column}");
    let name = name.as_str();
    let value = row.try_get_raw(name)?;
    if value.is_null() {
        return Ok(Place::Null);
    }
    Ok(match value.type_info().name() {
        "INTEGER" => Place::Integer(row.try_get_unchecked(name)?),
        "REAL" => Place::Real(row.try_get_unchecked(name)?),
        "BLOB" => Place::Bytes(row.try_get_unchecked(name)?),
        _ => Place::Text(row.try_get_unchecked(name)?),
    })
}

fn sort(rows: &mut [SqliteRow], map: &TableMap) {
    let columns = map.order().len();
    rows.sort_by_cached_key(|row| {
        let places = (0..columns).map(|column| place(row, column).unwrap_or(Place::Null));
        Places(places.collect())
    });
}

#[derive(PartialEq)]
struct Places(Vec<Place>);

impl Eq for Places {}

impl Ord for Places {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for Places {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
