//! Rows of Posthaste's own log, as `read_tail.sql` has them. Nothing about their columns has to be looked up, so that one is
//! decoded with little more work than it takes to copy it.

use chrono::{DateTime, Utc};
use posthaste_core::message::{DEFAULT_NAMESPACE, Headers, Message};
use posthaste_core::store::ClaimedMessage;
use posthaste_core::{MessageId, Text};
use posthaste_sql::log::LogRow;
use posthaste_sql::table::Role;
use sqlx::postgres::PgRow;
use sqlx::{Row, ValueRef};
use uuid::Uuid;

use super::rows::{Texts, place};

/// The row `id`, unless it has more to it than most have, such as headers: then it is decoded like that of any other table.
pub(super) fn decode(row: &PgRow, id: i64, texts: &mut Texts) -> sqlx::Result<Option<(LogRow, ClaimedMessage)>> {
    let topic = shared(row, Role::Topic, texts)?.unwrap_or_default();
    if topic.is_empty() || bytes(row, Role::Headers)?.is_some() {
        return Ok(None);
    }
    let ordering_key = str(row, Role::OrderingKey)?.map(Text::new);
    let aggregate_id = match str(row, Role::AggregateId)? {
        // Most are the same.
        Some(id) if ordering_key.as_deref() == Some(id) => ordering_key.clone(),
        other => other.map(Text::new),
    };
    let event_id: Uuid = row.try_get(EVENT_ID)?;
    let created_at: DateTime<Utc> = row.try_get(CREATED_AT)?;
    let read = LogRow {
        id,
        lane: ordering_key.clone().map(|key| (topic.clone(), key)),
        kept: false,
        held: false,
    };
    let claimed = ClaimedMessage {
        message: Message {
            id: MessageId::Number(id),
            event_id: Some(hyphenated(event_id)),
            namespace: Some(Text::new_static(DEFAULT_NAMESPACE)),
            topic,
            ordering_key,
            tenant: str(row, Role::Tenant)?.map(Text::new),
            dedupe_key: None,
            event_type: shared(row, Role::EventType, texts)?,
            source: shared(row, Role::Source, texts)?,
            aggregate_type: shared(row, Role::AggregateType, texts)?,
            aggregate_id,
            content_type: shared(row, Role::ContentType, texts)?.unwrap_or(Text::new_static("application/json")),
            payload: bytes(row, Role::Payload)?.unwrap_or_default().to_vec().into(),
            headers: Headers::new(),
            not_before: None,
        },
        fault: None,
        sequence: Some(id),
        created_at,
        attempts: 1,
        hash: None,
        version: None,
        max_attempts: None,
    };
    Ok(Some((read, claimed)))
}

/// The event's id as consumers have it.
pub(super) fn hyphenated(id: Uuid) -> Text {
    Text::new(id.hyphenated().encode_lower(&mut Uuid::encode_buffer()))
}

pub(super) const EVENT_ID: usize = 1;
const CREATED_AT: usize = 12;

fn bytes(row: &PgRow, role: Role) -> sqlx::Result<Option<&[u8]>> {
    let Some(place) = place(role) else { return Ok(None) };
    let value = row.try_get_raw(place)?;
    if value.is_null() {
        return Ok(None);
    }
    value.as_bytes().map(Some).map_err(sqlx::Error::Decode)
}

fn str(row: &PgRow, role: Role) -> sqlx::Result<Option<&str>> {
    let Some(place) = place(role) else { return Ok(None) };
    let value = row.try_get_raw(place)?;
    if value.is_null() {
        return Ok(None);
    }
    value.as_str().map(Some).map_err(sqlx::Error::Decode)
}

/// A text that many rows have in common.
fn shared(row: &PgRow, role: Role, texts: &mut Texts) -> sqlx::Result<Option<Text>> {
    let place = place(role).unwrap_or_default();
    Ok(str(row, role)?.map(|text| texts.get(place, text)))
}
