//! A message and its row as JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use posthaste_core::MessageId;
use posthaste_core::lifecycle::State;
use posthaste_core::message::Headers;
use posthaste_core::store::Record;
use serde::Serialize;
use serde_json::value::RawValue;

#[derive(Debug, Serialize)]
pub(super) struct View<'a> {
    id: MessageId,
    sequence: Option<i64>,
    state: State,
    attempts: u32,
    last_error: Option<&'a str>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
    namespace: Option<&'a str>,
    topic: &'a str,
    ordering_key: Option<&'a str>,
    tenant: Option<&'a str>,
    dedupe_key: Option<&'a str>,
    event_type: Option<&'a str>,
    source: Option<&'a str>,
    aggregate_type: Option<&'a str>,
    aggregate_id: Option<&'a str>,
    content_type: &'a str,
    headers: &'a Headers,
    #[serde(flatten)]
    payload: Payload<'a>,
}

/// The fields that `enqueue --stdin` reads; it makes the same bytes of them.
#[derive(Debug, Serialize)]
enum Payload<'a> {
    #[serde(rename = "payload")]
    Json(&'a RawValue),
    #[serde(rename = "payload")]
    Text(&'a str),
    #[serde(rename = "payload_base64")]
    Base64(String),
}

impl<'a> View<'a> {
    pub(super) fn of(record: &'a Record) -> Self {
        let message = &record.message;
        Self {
            id: message.id,
            sequence: record.sequence,
            state: record.state,
            attempts: record.attempts,
            last_error: record.last_error.as_deref(),
            created_at: record.created_at,
            updated_at: record.updated_at,
            namespace: message.namespace.as_deref(),
            topic: &message.topic,
            ordering_key: message.ordering_key.as_deref(),
            tenant: message.tenant.as_deref(),
            dedupe_key: message.dedupe_key.as_deref(),
            event_type: message.event_type.as_deref(),
            source: message.source.as_deref(),
            aggregate_type: message.aggregate_type.as_deref(),
            aggregate_id: message.aggregate_id.as_deref(),
            content_type: &message.content_type,
            headers: &message.headers,
            payload: Payload::of(&message.payload),
        }
    }
}

/// Whether the value can stand in a line as it is. A string would be read as its text, and line breaks and the space around
/// a value would be lost or end the line.
fn is_itself_in_a_line(json: &RawValue, bytes: &[u8]) -> bool {
    let text = json.get();
    text.len() == bytes.len() && !text.starts_with('"') && !text.contains(['\n', '\r'])
}

impl<'a> Payload<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        match (serde_json::from_slice(bytes), std::str::from_utf8(bytes)) {
            (Ok(json), _) if is_itself_in_a_line(json, bytes) => Self::Json(json),
            (_, Ok(text)) => Self::Text(text),
            _ => Self::Base64(STANDARD.encode(bytes)),
        }
    }
}
