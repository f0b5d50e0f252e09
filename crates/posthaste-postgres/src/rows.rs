//! From rows to the core's types, and ids to what the server can cast.

use chrono::{DateTime, Utc};
use posthaste_core::message::MessageId;
use posthaste_core::store::{ClaimedMessage, Record};
use posthaste_sql::TableMap;
use posthaste_sql::table::{Kind, RawRow, Role};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

/// A thousand years: longer than anybody means, and no further from now than the server can count.
const FOREVER_MS: i64 = 1_000 * 365 * 24 * 3_600 * 1_000;

/// Milliseconds as SQL takes them.
pub(crate) fn millis(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).map_or(FOREVER_MS, |millis| millis.min(FOREVER_MS))
}

pub(crate) fn id(row: &PgRow, map: &TableMap) -> sqlx::Result<MessageId> {
    Ok(map.id(row.try_get("id")?))
}

pub(crate) fn ids(rows: &[PgRow], map: &TableMap) -> sqlx::Result<Vec<MessageId>> {
    rows.iter().map(|row| id(row, map)).collect()
}

/// An id as the text that is cast to the column's type; nothing if no row of the table can have it.
pub(crate) fn id_text(id: MessageId, map: &TableMap) -> Option<String> {
    match map.column(Role::Id).map(|column| column.kind) {
        Some(Kind::Integer) => id.number().map(|number| number.to_string()),
        Some(Kind::Uuid) => id.uuid().map(|uuid| uuid.to_string()),
        Some(Kind::UuidBytes) => id.uuid().map(bytes_of_uuid),
        _ => Some(id.to_string()),
    }
}

/// A UUID as `bytea` reads it.
pub(crate) fn bytes_of_uuid(uuid: Uuid) -> String {
    format!("\\x{}", uuid.simple())
}

fn raw(row: &PgRow) -> sqlx::Result<RawRow> {
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
        payload: row.try_get::<Option<Vec<u8>>, _>("payload")?.unwrap_or_default(),
        headers: row.try_get("headers")?,
        content_hash: row.try_get("content_hash")?,
        attempts: row.try_get("attempts")?,
        max_attempts: row.try_get("max_attempts")?,
        version: row.try_get("version")?,
        created_at: created_at(row)?,
        fault: None,
    })
}

/// A table may leave it empty; then it is as if the row had just come.
fn created_at(row: &PgRow) -> sqlx::Result<DateTime<Utc>> {
    Ok(row
        .try_get::<Option<DateTime<Utc>>, _>("created_at")?
        .unwrap_or_else(Utc::now))
}

/// Claimed rows in the order in which they came.
pub(crate) fn claimed(rows: &[PgRow], map: &TableMap) -> sqlx::Result<Vec<ClaimedMessage>> {
    rows.iter().map(|row| Ok(map.claimed(&raw(row)?))).collect()
}

/// Claimed rows by sequence; `UPDATE … RETURNING` gives them in any order.
pub(crate) fn claimed_by_sequence(mut rows: Vec<PgRow>, map: &TableMap) -> sqlx::Result<Vec<ClaimedMessage>> {
    rows.sort_by_cached_key(|row| row.try_get::<i64, _>("seq").unwrap_or_default());
    claimed(&rows, map)
}

pub(crate) fn record(row: &PgRow, map: &TableMap) -> sqlx::Result<Record> {
    let word: String = row.try_get("status")?;
    let state = map.state(&word).ok_or_else(|| sqlx::Error::ColumnDecode {
        index: "status".to_owned(),
        source: format!("`{word}` is not a state of this table map").into(),
    })?;
    let raw = raw(row)?;
    let (message, _) = map.message(&raw);
    let locked_by: Option<String> = row.try_get("locked_by")?;
    Ok(Record {
        message,
        sequence: row.try_get("seq")?,
        state,
        attempts: u32::try_from(raw.attempts).unwrap_or(0),
        next_attempt_at: row
            .try_get::<Option<_>, _>("next_attempt_at")?
            .unwrap_or(raw.created_at),
        // A proof that is kept as text begins with the worker.
        locked_by: locked_by.map(|by| by.split('/').next().unwrap_or_default().to_owned()),
        locked_until: row.try_get("locked_until")?,
        last_error: row.try_get("last_error")?,
        created_at: raw.created_at,
        updated_at: row.try_get::<Option<_>, _>("updated_at")?.unwrap_or(raw.created_at),
        delivered_at: row.try_get("delivered_at")?,
    })
}
