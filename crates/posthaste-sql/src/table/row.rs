//! From what a database gave, by role, to the core's types.

use std::collections::BTreeMap;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Kind, Role, TableMap};
use posthaste_core::integrity::{ContentHash, StoredHash};
use posthaste_core::message::{DEFAULT_NAMESPACE, Headers, Message, MessageId};
use posthaste_core::store::ClaimedMessage;

/// A row as a database gave it: every role as text, bytes, number or time, and nothing where the table lacks it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the roles")]
pub struct RawRow {
    pub id: String,
    pub event_id: Option<String>,
    pub namespace: Option<String>,
    pub topic: Option<String>,
    pub ordering_key: Option<String>,
    pub tenant: Option<String>,
    pub dedupe_key: Option<String>,
    pub event_type: Option<String>,
    pub source: Option<String>,
    pub aggregate_type: Option<String>,
    pub aggregate_id: Option<String>,
    pub content_type: Option<String>,
    pub payload: Vec<u8>,
    /// A JSON object, or nothing.
    pub headers: Option<String>,
    /// As bytes, or hexadecimal digits as bytes.
    pub content_hash: Option<Vec<u8>>,
    pub attempts: i64,
    pub max_attempts: Option<i64>,
    pub version: Option<i64>,
    pub created_at: DateTime<Utc>,
    /// What could not be read; the other fields are as good as it gets.
    pub fault: Option<String>,
}

impl TableMap {
    /// Why a row is not published whose column for this role has something else than `wanted`.
    pub fn unreadable(&self, role: Role, wanted: &str) -> String {
        let column = self.column(role).map_or(role.name(), |column| column.name.as_str());
        format!("{column}: it is not {wanted}; correct the row, then replay it")
    }

    /// An id as a database gave it.
    pub fn id(&self, text: &str) -> MessageId {
        match self.column(Role::Id).map(|column| column.kind) {
            Some(Kind::Text) => MessageId::text(text),
            _ => MessageId::guess(text),
        }
    }

    /// The message of a row, and what keeps it from being published, if anything does.
    pub fn message(&self, row: &RawRow) -> (Message, Option<String>) {
        let or_constant = |value: &Option<String>, role: Role| {
            let constant = || self.constant(role).map(str::to_owned);
            value.clone().or_else(constant)
        };
        let mut fault = None;
        let headers = row.headers.as_deref().map_or(Ok(Headers::new()), headers);
        let mut message = Message {
            id: self.id(&row.id),
            event_id: row.event_id.clone(),
            namespace: or_constant(&row.namespace, Role::Namespace).or_else(|| Some(DEFAULT_NAMESPACE.to_owned())),
            topic: row.topic.clone().unwrap_or_default(),
            ordering_key: row.ordering_key.clone(),
            tenant: row.tenant.clone(),
            dedupe_key: row.dedupe_key.clone(),
            event_type: or_constant(&row.event_type, Role::EventType),
            source: or_constant(&row.source, Role::Source),
            aggregate_type: or_constant(&row.aggregate_type, Role::AggregateType),
            aggregate_id: row.aggregate_id.clone(),
            content_type: or_constant(&row.content_type, Role::ContentType)
                .unwrap_or_else(|| "application/json".to_owned()),
            payload: Bytes::copy_from_slice(&row.payload),
            headers: headers.unwrap_or_else(|error| {
                fault = Some(error);
                Headers::new()
            }),
            not_before: None,
        };
        match self.topic.topic(&message) {
            Ok(topic) => message.topic = topic,
            Err(error) => fault = Some(error),
        }
        if message.event_id().is_empty() {
            fault = Some("id: it is empty, and consumers deduplicate by it; give the row an id".to_owned());
        }
        (message, row.fault.clone().or(fault))
    }

    /// A row that was claimed; `row.attempts` counts this claim.
    pub fn claimed(&self, row: &RawRow) -> ClaimedMessage {
        let (message, fault) = self.message(row);
        ClaimedMessage {
            message,
            fault,
            created_at: row.created_at,
            attempts: u32::try_from(row.attempts).unwrap_or(0),
            hash: row.content_hash.as_deref().map(|bytes| StoredHash {
                expected: hash(bytes),
                recipe: self.hash.clone().into(),
            }),
            version: row.version,
            max_attempts: row.max_attempts.map(|limit| self.row_limit(limit)),
        }
    }
}

/// Headers as a column of somebody else's has them: numbers and truths travel as texts, nested values as JSON, and what
/// has no value is left out. One odd value must not keep an event from being delivered.
fn headers(json: &str) -> Result<Headers, String> {
    if json.trim().is_empty() {
        return Ok(Headers::new());
    }
    let wrong = |error: serde_json::Error| format!("headers: not a JSON object: {error}");
    // As they were written: a number may have more digits than any type of ours.
    let given: Option<BTreeMap<String, Box<RawValue>>> = serde_json::from_str(json).map_err(wrong)?;
    let mut headers = Headers::new();
    for (name, value) in given.unwrap_or_default() {
        let text = match value.get().as_bytes() {
            [b'n', ..] => continue,
            [b'"', ..] => serde_json::from_str(value.get()).map_err(wrong)?,
            [b'{' | b'[', ..] => serde_json::from_str::<Value>(value.get()).map_err(wrong)?.to_string(),
            _ => value.get().to_owned(),
        };
        headers.insert(name, text);
    }
    Ok(headers)
}

fn hash(bytes: &[u8]) -> Option<ContentHash> {
    let digits = || std::str::from_utf8(bytes).ok()?.trim().parse().ok();
    ContentHash::try_from(bytes).ok().or_else(digits)
}
