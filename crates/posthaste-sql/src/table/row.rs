//! From what a database gave, by role, to the core's types.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use posthaste_core::integrity::{ContentHash, StoredHash};
use posthaste_core::message::{DEFAULT_NAMESPACE, Headers, Message, MessageId, Text};
use posthaste_core::store::{ClaimedMessage, Record};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Held, Kind, Role, SqlRow, TableMap};

impl TableMap {
    /// Why a row is not published whose column for this role has something else than `wanted`.
    pub fn unreadable(&self, role: Role, wanted: &str) -> String {
        let column = self.column(role).map_or(role.name(), |column| column.name.as_str());
        format!("{column}: it is not {wanted}; correct the row, then replay it")
    }

    /// An id as a database gave it. Where the column keeps text, in the spelling by which its row is found again: UUIDs may
    /// be in capital letters. Bytes were spelt by the statement that read them.
    pub fn id(&self, text: &str) -> MessageId {
        let guessed = MessageId::guess(text);
        match self.column(Role::Id).map(|column| column.kind) {
            Some(Kind::Text) => MessageId::text(text),
            Some(Kind::UuidBytes) => guessed,
            _ if guessed.to_string() == text => guessed,
            _ => MessageId::text(text),
        }
    }

    /// A row that was claimed; its attempts count this claim.
    ///
    /// # Errors
    ///
    /// The driver's, if a column is not there or has another type than the table map says.
    pub fn claimed<R: SqlRow>(&self, row: &R) -> Result<ClaimedMessage, R::Error> {
        let mut columns = Columns::of(row, self);
        let created_at = columns.created_at()?;
        let message = columns.message()?;
        let hash = row.bytes(Role::ContentHash)?;
        Ok(ClaimedMessage {
            message,
            fault: columns.fault,
            sequence: row.number(Role::Seq)?,
            created_at,
            attempts: attempts(row)?,
            hash: hash.map(|bytes| StoredHash {
                expected: content_hash(&bytes),
                recipe: self.hash.clone().into(),
            }),
            version: row.number(Role::Version)?,
            max_attempts: row.number(Role::MaxAttempts)?.map(|limit| self.row_limit(limit)),
        })
    }

    /// A row as an operator sees it.
    ///
    /// # Errors
    ///
    /// The driver's, also if the row is in a state that the table map does not name.
    pub fn record<R: SqlRow>(&self, row: &R) -> Result<Record, R::Error> {
        let mut columns = Columns::of(row, self);
        let label = columns.text(Role::Status)?.unwrap_or_default();
        let unknown = || R::undecodable(Role::Status, format!("`{label}` is not a state of this table map"));
        let state = self.state(&label).ok_or_else(unknown)?;
        let message = columns.message()?;
        let created_at = columns.created_at()?;
        let locked_by = columns.text(Role::LockedBy)?;
        Ok(Record {
            message,
            sequence: row.number(Role::Seq)?,
            state,
            attempts: attempts(row)?,
            next_attempt_at: columns.time(Role::NextAttemptAt)?.unwrap_or(created_at),
            // A proof that is kept as text begins with the worker.
            locked_by: locked_by.map(|by| by.split('/').next().unwrap_or_default().to_owned()),
            locked_until: columns.time(Role::LockedUntil)?,
            last_error: columns.text(Role::LastError)?,
            created_at,
            updated_at: columns.time(Role::UpdatedAt)?.unwrap_or(created_at),
            delivered_at: columns.time(Role::DeliveredAt)?,
        })
    }
}

/// Reads the columns of a row, and remembers why it cannot be published, if it cannot.
struct Columns<'r, R> {
    row: &'r R,
    map: &'r TableMap,
    fault: Option<String>,
}

impl<'r, R: SqlRow> Columns<'r, R> {
    fn of(row: &'r R, map: &'r TableMap) -> Self {
        Self { row, map, fault: None }
    }

    fn text(&mut self, role: Role) -> Result<Option<String>, R::Error> {
        let held = self.row.text(role)?;
        Ok(self.read(role, held))
    }

    fn message_text(&mut self, role: Role) -> Result<Option<Text>, R::Error> {
        let held = self.row.message_text(role)?;
        Ok(self.read(role, held))
    }

    fn text_or_constant(&mut self, role: Role) -> Result<Option<Text>, R::Error> {
        let text = self.message_text(role)?;
        Ok(text.or_else(|| self.map.constant(role).map(Text::from)))
    }

    fn time(&mut self, role: Role) -> Result<Option<DateTime<Utc>>, R::Error> {
        let held = self.row.time(role)?;
        Ok(self.read(role, held))
    }

    fn read<T>(&mut self, role: Role, held: Held<T>) -> Option<T> {
        if let Held::Unreadable { wanted, .. } = held {
            self.fault.get_or_insert_with(|| self.map.unreadable(role, wanted));
        }
        held.nearest()
    }

    /// A table may leave it empty, or have no date there; then it is as if the row had just come.
    fn created_at(&mut self) -> Result<DateTime<Utc>, R::Error> {
        Ok(self.time(Role::CreatedAt)?.unwrap_or_else(Utc::now))
    }

    fn message(&mut self) -> Result<Message, R::Error> {
        let id = match self.row.numeric_id() {
            Some(number) => MessageId::Number(number),
            None => self.map.id(&self.text(Role::Id)?.unwrap_or_default()),
        };
        let headers = self.text(Role::Headers)?;
        let headers = headers.map_or(Ok(Headers::new()), |json| self::headers(&json));
        let mut message = Message {
            id,
            event_id: self.message_text(Role::EventId)?,
            namespace: self
                .text_or_constant(Role::Namespace)?
                .or_else(|| Some(Text::new_static(DEFAULT_NAMESPACE))),
            topic: self.message_text(Role::Topic)?.unwrap_or_default(),
            ordering_key: self.message_text(Role::OrderingKey)?,
            tenant: self.message_text(Role::Tenant)?,
            dedupe_key: self.message_text(Role::DedupeKey)?,
            event_type: self.text_or_constant(Role::EventType)?,
            source: self.text_or_constant(Role::Source)?,
            aggregate_type: self.text_or_constant(Role::AggregateType)?,
            aggregate_id: self.message_text(Role::AggregateId)?,
            content_type: self
                .text_or_constant(Role::ContentType)?
                .unwrap_or_else(|| Text::new_static("application/json")),
            payload: self.row.bytes(Role::Payload)?.unwrap_or_default().into(),
            headers: Headers::new(),
            not_before: None,
        };
        let mut fault = None;
        match headers {
            Ok(headers) => message.headers = headers,
            Err(error) => fault = Some(error),
        }
        match self.map.topic.topic(&message) {
            Ok(topic) => message.topic = topic.into(),
            Err(error) => fault = Some(error),
        }
        if message.effective_event_id().is_empty() {
            fault = Some("id: it is empty, and consumers deduplicate by it; give the row an id".to_owned());
        }
        self.fault = self.fault.take().or(fault);
        Ok(message)
    }
}

fn attempts<R: SqlRow>(row: &R) -> Result<u32, R::Error> {
    let attempts = row.number(Role::Attempts)?.unwrap_or(0);
    Ok(u32::try_from(attempts).unwrap_or(0))
}

/// Headers as the column of an existing table has them: numbers and truths travel as texts, nested values as JSON, and what
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

fn content_hash(bytes: &[u8]) -> Option<ContentHash> {
    let digits = || std::str::from_utf8(bytes).ok()?.trim().parse().ok();
    ContentHash::try_from(bytes).ok().or_else(digits)
}
