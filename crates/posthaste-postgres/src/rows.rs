//! From rows to the core's types.

use chrono::{DateTime, Utc};
use posthaste_core::TableMap;
use posthaste_core::integrity::{ContentHash, StoredHash};
use posthaste_core::message::{Headers, Message, MessageId};
use posthaste_core::store::{ClaimedMessage, Record};
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use uuid::Uuid;

/// Milliseconds as SQL takes them.
pub(crate) fn millis(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// A count of attempts; the column is signed, the value never negative.
fn attempts(row: &PgRow) -> sqlx::Result<u32> {
    Ok(u32::try_from(row.try_get::<i32, _>("attempts")?).unwrap_or(0))
}

pub(crate) fn id(row: &PgRow) -> sqlx::Result<MessageId> {
    Ok(row.try_get::<Uuid, _>("id")?.into())
}

fn message(row: &PgRow) -> sqlx::Result<Message> {
    Ok(Message {
        id: id(row)?,
        event_id: None,
        namespace: Some(row.try_get("namespace")?),
        topic: row.try_get("topic")?,
        ordering_key: row.try_get("ordering_key")?,
        tenant: row.try_get("tenant")?,
        dedupe_key: row.try_get("dedupe_key")?,
        event_type: row.try_get("event_type")?,
        source: row.try_get("source")?,
        aggregate_type: row.try_get("aggregate_type")?,
        aggregate_id: row.try_get("aggregate_id")?,
        content_type: row.try_get("content_type")?,
        payload: row.try_get::<Vec<u8>, _>("payload")?.into(),
        headers: row.try_get::<Json<Headers>, _>("headers")?.0,
        not_before: None,
    })
}

/// Claimed rows by sequence; `UPDATE … RETURNING` gives them in any order.
pub(crate) fn claimed(mut rows: Vec<PgRow>) -> sqlx::Result<Vec<ClaimedMessage>> {
    rows.sort_by_cached_key(|row| row.try_get::<i64, _>("seq").unwrap_or_default());
    rows.iter()
        .map(|row| {
            let hash: Option<Vec<u8>> = row.try_get("content_hash")?;
            Ok(ClaimedMessage {
                message: message(row)?,
                fault: None,
                created_at: row.try_get("created_at")?,
                attempts: attempts(row)?,
                hash: hash.map(|bytes| StoredHash::own(ContentHash::try_from(bytes.as_slice()).ok())),
                version: None,
                max_attempts: None,
            })
        })
        .collect()
}

pub(crate) fn record(row: &PgRow, map: &TableMap) -> sqlx::Result<Record> {
    let word: String = row.try_get("status")?;
    let state = map.state(&word).ok_or_else(|| sqlx::Error::ColumnDecode {
        index: "status".to_owned(),
        source: format!("`{word}` is not a state of this table map").into(),
    })?;
    let message = message(row)?;
    let created_at: DateTime<Utc> = row.try_get("created_at")?;
    Ok(Record {
        message,
        sequence: Some(row.try_get("seq")?),
        state,
        attempts: attempts(row)?,
        next_attempt_at: row.try_get("next_attempt_at")?,
        locked_by: row
            .try_get::<Option<Uuid>, _>("locked_by")?
            .map(|worker| worker.to_string()),
        locked_until: row.try_get("locked_until")?,
        last_error: row.try_get("last_error")?,
        created_at,
        updated_at: row.try_get("updated_at")?,
        delivered_at: row.try_get("delivered_at")?,
    })
}
