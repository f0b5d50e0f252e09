//! New rows as the statements take them.

use std::ops::Range;

use posthaste_core::MessageId;
use posthaste_core::enqueue as prepared;
use posthaste_sql::TableMap;
use posthaste_sql::table::{Kind, Role};
use serde::Serialize;

use crate::statement::{Value, epoch_micros};

/// Bytes of one statement, about. A server takes 16 MiB or more unless it is told otherwise.
const MAX_STATEMENT_BYTES: usize = 8 << 20;

/// A row of Posthaste's own table: for `json_table`, with the payloads beside them as they are.
#[derive(Clone, Debug, Serialize)]
struct NewRow<'a> {
    id: MessageId,
    namespace: &'a str,
    topic: &'a str,
    ordering_key: Option<&'a str>,
    tenant: Option<&'a str>,
    dedupe_key: Option<&'a str>,
    event_type: Option<&'a str>,
    source: Option<&'a str>,
    aggregate_type: Option<&'a str>,
    aggregate_id: Option<&'a str>,
    content_type: &'a str,
    headers: String,
    hash: String,
    not_before: Option<i64>,
    /// Where its payload begins among those of its statement; SQL counts from 1.
    start: usize,
    bytes: usize,
}

impl<'a> NewRow<'a> {
    fn new(row: &'a prepared::NewRow) -> Self {
        let message = &row.message;
        Self {
            id: message.id,
            namespace: &row.namespace,
            topic: &message.topic,
            ordering_key: message.ordering_key.as_deref(),
            tenant: message.tenant.as_deref(),
            dedupe_key: message.dedupe_key.as_deref(),
            event_type: message.event_type.as_deref(),
            source: message.source.as_deref(),
            aggregate_type: message.aggregate_type.as_deref(),
            aggregate_id: message.aggregate_id.as_deref(),
            content_type: &message.content_type,
            headers: serde_json::json!(message.headers).to_string(),
            hash: row.hash().to_string(),
            not_before: message.not_before.map(epoch_micros),
            start: 1,
            bytes: message.payload.len(),
        }
    }

    /// About how many bytes of a statement it takes: what may be long, and names and numbers as JSON has them.
    fn size(&self) -> usize {
        const REST: usize = 512;
        let texts = [
            Some(self.namespace),
            Some(self.topic),
            self.ordering_key,
            self.tenant,
            self.dedupe_key,
            self.event_type,
            self.source,
            self.aggregate_type,
            self.aggregate_id,
            Some(self.content_type),
        ];
        let texts: usize = texts.into_iter().flatten().map(str::len).sum();
        // The headers are JSON inside JSON: their quotes and backslashes are escaped once more.
        self.bytes + 2 * self.headers.len() + texts + REST
    }
}

/// Which of the rows go into one statement.
pub(crate) fn batches(rows: &[&prepared::NewRow]) -> Vec<Range<usize>> {
    let mut batches = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (place, row) in rows.iter().enumerate() {
        let size = NewRow::new(row).size();
        bytes += size;
        if bytes > MAX_STATEMENT_BYTES && place > start {
            batches.push(start..place);
            (start, bytes) = (place, size);
        }
    }
    if start < rows.len() {
        batches.push(start..rows.len());
    }
    batches
}

/// For `enqueue.sql`.
pub(crate) fn native<'r>(rows: impl Iterator<Item = &'r prepared::NewRow>) -> Vec<Value> {
    let mut payloads = Vec::new();
    let row = |row: &'r prepared::NewRow| {
        let mut placed = NewRow::new(row);
        placed.start = payloads.len() + 1;
        payloads.extend_from_slice(&row.message.payload);
        placed
    };
    let rows: Vec<_> = rows.map(row).collect();
    vec![json(&rows), Value::Bytes(payloads)]
}

/// For `hold_keys.sql`.
pub(crate) fn held_keys<'r>(
    rows: impl Iterator<Item = &'r prepared::NewRow>,
    caller: &str,
    window_ms: i64,
) -> Vec<Value> {
    let rows: Vec<_> = rows.map(NewRow::new).collect();
    vec![json(&rows), caller.into(), window_ms.into()]
}

/// What a row's dedupe key is unique in, and the key.
pub(crate) fn key(row: &prepared::NewRow) -> [Vec<u8>; 3] {
    let key = row.message.dedupe_key.as_deref().unwrap_or_default();
    [row.namespace.as_str(), row.message.topic.as_str(), key].map(|text| text.as_bytes().to_vec())
}

/// For a table whose own indexes say what may be there once (`insert.sql`, `find_by_….sql`).
pub(crate) fn mapped(map: &TableMap, row: &prepared::NewRow) -> Vec<Value> {
    let mut values = vec![Value::id(row.message.id, map)];
    values.extend(Role::TEXTS.map(|role| text(map, row, role)));
    values.push(match map.column(Role::Payload).map(|column| column.kind) {
        Some(Kind::Bytes) | None => Value::Bytes(row.message.payload.to_vec()),
        // Checked to be text before.
        Some(_) => String::from_utf8_lossy(&row.message.payload).as_ref().into(),
    });
    values.push(serde_json::json!(row.message.headers).to_string().into());
    let hash = map.hash_recipe().hash(&row.message);
    values.push(match map.column(Role::ContentHash).map(|column| column.kind) {
        Some(Kind::Bytes) => Value::Bytes(hash.as_bytes().to_vec()),
        _ => hash.to_string().into(),
    });
    values.push(Value::Number(row.message.not_before.map(epoch_micros)));
    values
}

fn text(map: &TableMap, row: &prepared::NewRow, role: Role) -> Value {
    let own_id = || (role == Role::EventId).then(|| row.message.id.to_string());
    let text = map.new_text(row, role).map(str::to_owned).or_else(own_id);
    let uuid = || text.as_deref().and_then(|text| text.parse::<uuid::Uuid>().ok());
    match (map.column(role).map(|column| column.kind), uuid()) {
        (Some(Kind::UuidBytes), Some(uuid)) => Value::Bytes(uuid.as_bytes().to_vec()),
        _ => Value::Text(text),
    }
}

fn json(rows: &impl Serialize) -> Value {
    let json = serde_json::to_string(rows).expect("texts and numbers are JSON");
    json.into()
}

#[cfg(test)]
mod tests {
    use posthaste_core::enqueue::Prepared;
    use posthaste_core::{Message, OutboxOptions};

    use super::*;

    /// A server takes 16 MiB unless it is told otherwise.
    #[test]
    fn a_statement_fits_into_a_packet_with_its_headers() {
        let message = |_| Message::new("t", "x").header("long", "\\\"".repeat(8_000));
        let options = OutboxOptions::new().limits(posthaste_core::validate::Limits::new().header_bytes(1 << 20));
        let prepared = Prepared::new((0..1_000).map(message), &options).unwrap();
        let rows: Vec<_> = prepared.rows.iter().collect();
        let one = serde_json::to_string(&NewRow::new(rows[0])).unwrap().len();
        let batches = batches(&rows);
        assert!(batches.iter().all(|rows| rows.len() * one < 16 << 20), "{one}");
        assert_eq!(batches.iter().map(ExactSizeIterator::len).sum::<usize>(), 1_000);
    }
}
