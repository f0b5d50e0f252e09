//! From rows to the core's types.

use std::cmp::Ordering;
use std::time::Duration;

use chrono::{DateTime, Utc};
use posthaste_core::message::MessageId;
use posthaste_core::store::{ClaimedMessage, Record, RefusedRow};
use posthaste_sql::TableMap;
use posthaste_sql::table::{RawRow, Role};
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
    let millis: i64 = row.try_get(column)?;
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
    // A primary key of SQLite's may be missing.
    let bytes = row.try_get_unchecked::<Option<Vec<u8>>, _>(column)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let id = map.id(&text);
    Ok(if id.to_string() == text {
        id
    } else {
        MessageId::text(&text)
    })
}

/// Whether statements find a row by its id: not if that is bytes where it should be text, or no text at all.
pub(crate) fn is_found_by_id(row: &SqliteRow) -> sqlx::Result<bool> {
    let bytes = row.try_get_unchecked::<Option<Vec<u8>>, _>("id")?.unwrap_or_default();
    Ok(row.try_get("found_by_id")? && std::str::from_utf8(&bytes).is_ok())
}

/// The ids of changed rows in the table's order; `RETURNING` gives them in any order.
pub(crate) fn ids_in_order(mut rows: Vec<SqliteRow>, map: &TableMap) -> sqlx::Result<Vec<MessageId>> {
    sort(&mut rows, map);
    rows.iter().map(|row| id(row, "id", map)).collect()
}

/// Claimed rows in the table's order, for `UPDATE … RETURNING` gives them in any order; and those of which nobody could say
/// what became of them. The latter stay claimed, until they have used up their attempts.
pub(crate) fn claimed(
    mut rows: Vec<SqliteRow>,
    map: &TableMap,
) -> sqlx::Result<(Vec<ClaimedMessage>, Vec<RefusedRow>)> {
    sort(&mut rows, map);
    let (mut messages, mut refused) = (Vec::with_capacity(rows.len()), Vec::new());
    for row in &rows {
        let id = id(row, "id", map)?;
        if is_found_by_id(row)? {
            let mut claimed = map.claimed(&raw(row, map)?);
            claimed.message.id = id;
            messages.push(claimed);
        } else {
            let error = map.unreadable(Role::Id, "kept as text");
            refused.push(RefusedRow { id, error });
        }
    }
    Ok((messages, refused))
}

pub(crate) fn record(row: &SqliteRow, map: &TableMap) -> sqlx::Result<Record> {
    let word: String = row.try_get("status")?;
    let state = map
        .state(&word)
        .ok_or_else(|| undecodable("status", format!("`{word}` is not a state of this table map")))?;
    let raw = raw(row, map)?;
    let (mut message, _) = map.message(&raw);
    message.id = id(row, "id", map)?;
    let mut columns = Columns::of(row, map);
    let locked_by = columns.text(Role::LockedBy)?;
    Ok(Record {
        message,
        sequence: row.try_get("seq")?,
        state,
        attempts: u32::try_from(raw.attempts).unwrap_or(0),
        next_attempt_at: columns.time(Role::NextAttemptAt)?.unwrap_or(raw.created_at),
        // A proof that is kept as text begins with the worker.
        locked_by: locked_by.map(|by| by.split('/').next().unwrap_or_default().to_owned()),
        locked_until: columns.time(Role::LockedUntil)?,
        last_error: columns.text(Role::LastError)?,
        created_at: raw.created_at,
        updated_at: columns.time(Role::UpdatedAt)?.unwrap_or(raw.created_at),
        delivered_at: columns.time(Role::DeliveredAt)?,
    })
}

fn raw(row: &SqliteRow, map: &TableMap) -> sqlx::Result<RawRow> {
    let mut columns = Columns::of(row, map);
    Ok(RawRow {
        id: columns.text(Role::Id)?.unwrap_or_default(),
        event_id: columns.text(Role::EventId)?,
        namespace: columns.text(Role::Namespace)?,
        topic: columns.text(Role::Topic)?,
        ordering_key: columns.text(Role::OrderingKey)?,
        tenant: columns.text(Role::Tenant)?,
        dedupe_key: columns.text(Role::DedupeKey)?,
        event_type: columns.text(Role::EventType)?,
        source: columns.text(Role::Source)?,
        aggregate_type: columns.text(Role::AggregateType)?,
        aggregate_id: columns.text(Role::AggregateId)?,
        content_type: columns.text(Role::ContentType)?,
        payload: row.try_get::<Option<_>, _>("payload")?.unwrap_or_default(),
        headers: columns.text(Role::Headers)?,
        content_hash: row.try_get("content_hash")?,
        attempts: row.try_get::<Option<_>, _>("attempts")?.unwrap_or(0),
        max_attempts: row.try_get("max_attempts")?,
        version: row.try_get("version")?,
        // A table that somebody already has may not say when a row was written; its age is then unknown.
        created_at: columns.time(Role::CreatedAt)?.unwrap_or_else(Utc::now),
        fault: columns.fault,
    })
}

/// Reads columns that may hold anything, whatever they were declared as. What has no reading is a fault of its row, and of no
/// other.
struct Columns<'r> {
    row: &'r SqliteRow,
    map: &'r TableMap,
    fault: Option<String>,
}

impl<'r> Columns<'r> {
    fn of(row: &'r SqliteRow, map: &'r TableMap) -> Self {
        Self { row, map, fault: None }
    }

    fn text(&mut self, role: Role) -> sqlx::Result<Option<String>> {
        let bytes: Option<Vec<u8>> = self.row.try_get_unchecked(role.name())?;
        Ok(bytes.map(|bytes| {
            String::from_utf8(bytes).unwrap_or_else(|error| {
                self.is_not(role, "text in UTF-8");
                String::from_utf8_lossy(error.as_bytes()).into_owned()
            })
        }))
    }

    fn time(&mut self, role: Role) -> sqlx::Result<Option<DateTime<Utc>>> {
        let value = self.row.try_get_raw(role.name())?;
        if value.is_null() {
            return Ok(None);
        }
        let time = match value.type_info().name() {
            // SQLite cuts off what is not whole.
            "INTEGER" | "REAL" => DateTime::from_timestamp_millis(self.row.try_get_unchecked(role.name())?),
            _ => None,
        };
        if time.is_none() {
            self.is_not(role, "a time in milliseconds since 1970");
        }
        Ok(time)
    }

    fn is_not(&mut self, role: Role, wanted: &str) {
        self.fault.get_or_insert_with(|| self.map.unreadable(role, wanted));
    }
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
