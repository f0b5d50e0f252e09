//! From rows to the core's types.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use posthaste_core::MessageId;
use posthaste_core::store::ClaimedMessage;
use posthaste_sql::TableMap;
use posthaste_sql::log::Lane;
use posthaste_sql::table::RawRow;
use sqlx::Row;
use sqlx::postgres::PgRow;

/// The columns that the log and the table of failures have in common.
pub(super) fn raw(row: &PgRow) -> sqlx::Result<RawRow> {
    Ok(RawRow {
        id: row.try_get::<i64, _>("id")?.to_string(),
        event_id: row.try_get("event_id")?,
        topic: row.try_get("topic")?,
        ordering_key: row.try_get("ordering_key")?,
        tenant: row.try_get("tenant")?,
        event_type: row.try_get("event_type")?,
        source: row.try_get("source")?,
        aggregate_type: row.try_get("aggregate_type")?,
        aggregate_id: row.try_get("aggregate_id")?,
        content_type: row.try_get("content_type")?,
        payload: row.try_get("payload")?,
        headers: row.try_get("headers")?,
        created_at: row.try_get::<DateTime<Utc>, _>("created_at")?,
        ..RawRow::default()
    })
}

/// A fresh row of the log.
pub(super) fn fresh(row: &PgRow, map: &TableMap) -> sqlx::Result<ClaimedMessage> {
    let raw = RawRow {
        attempts: 1,
        ..raw(row)?
    };
    Ok(map.claimed(&raw))
}

/// A failed row.
pub(super) fn failed(row: &PgRow, map: &TableMap) -> sqlx::Result<ClaimedMessage> {
    let retries: i64 = row.try_get("attempts")?;
    let number: i64 = row.try_get("id")?;
    let raw = RawRow {
        // The first attempt was made in the log, and this claim is one more.
        attempts: retries + 2,
        ..raw(row)?
    };
    let mut claimed = map.claimed(&raw);
    claimed.message.id = failed_id(number);
    Ok(claimed)
}

/// What the ids of failed rows begin with. The number that one has in its table may be that of another row in the log.
const FAILED: &str = "failed-";

/// The id of a failed row, made of its primary key: events may have ids of any length, and two rows the same.
pub(super) fn failed_id(number: i64) -> MessageId {
    MessageId::text(&format!("{FAILED}{number}"))
}

/// The primary key of a failed row, if an id is that of one.
pub(super) fn failed_number(id: MessageId) -> Option<i64> {
    let MessageId::Text(text) = id else { return None };
    text.as_str().strip_prefix(FAILED)?.parse().ok()
}

/// Within what a row keeps its order.
pub(super) fn lane(row: &PgRow) -> sqlx::Result<Option<Lane>> {
    let kind: Option<String> = row.try_get("lane_type")?;
    let key: Option<String> = row.try_get("lane_key")?;
    Ok(key.map(|key| (Arc::from(kind.unwrap_or_default()), Arc::from(key))))
}
