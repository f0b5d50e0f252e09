//! From rows to the core's types.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use posthaste_core::log::Lane;
use posthaste_core::message::ShortText;
use posthaste_core::store::ClaimedMessage;
use posthaste_core::table::RawRow;
use posthaste_core::{MessageId, TableMap};
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

/// A failed row. It is known by its event: the number that it has in its table may be that of another row in the log.
pub(super) fn failed(row: &PgRow, map: &TableMap) -> sqlx::Result<ClaimedMessage> {
    let retries: i64 = row.try_get("attempts")?;
    let raw = RawRow {
        // The first attempt was made in the log, and this claim is one more.
        attempts: retries + 2,
        ..raw(row)?
    };
    let mut claimed = map.claimed(&raw);
    claimed.message.id = failed_id(raw.event_id.as_deref().unwrap_or_default());
    Ok(claimed)
}

/// The id of a failed row: its event's, never a number.
pub(super) fn failed_id(event_id: &str) -> MessageId {
    if let Ok(id) = event_id.parse::<uuid::Uuid>()
        && id.to_string() == event_id
    {
        return id.into();
    }
    // Longer ones are cut: the id has to tell apart what is failed at one time, and is not what is published.
    let short: String = event_id.chars().take(15).collect();
    ShortText::new(event_id)
        .or_else(|_| ShortText::new(&short))
        .map_or_else(|_| MessageId::default(), MessageId::Text)
}

/// Within what a row keeps its order.
pub(super) fn lane(row: &PgRow) -> sqlx::Result<Option<Lane>> {
    let kind: Option<String> = row.try_get("lane_type")?;
    let key: Option<String> = row.try_get("lane_key")?;
    Ok(key.map(|key| (Arc::from(kind.unwrap_or_default()), Arc::from(key))))
}
