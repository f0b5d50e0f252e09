//! New rows as the statements take them: JSON for `json_each`, with the payloads beside it as they are.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use posthaste_core::MessageId;
use posthaste_core::enqueue as prepared;
use posthaste_core::integrity::HashRecipe;
use posthaste_sql::TableMap;
use posthaste_sql::enqueue::Value;
use posthaste_sql::table::{Kind, Property, Role};
use serde::Serialize;

use crate::rows::{epoch_millis, kept_until};

#[derive(Clone, Debug, Serialize)]
pub(crate) struct NewRow<'a> {
    pub(crate) id: MessageId,
    event_id: Option<Cow<'a, str>>,
    namespace: Option<Cow<'a, str>>,
    topic: Option<Cow<'a, str>>,
    ordering_key: Option<Cow<'a, str>>,
    tenant: Option<Cow<'a, str>>,
    dedupe_key: Option<Cow<'a, str>>,
    event_type: Option<Cow<'a, str>>,
    source: Option<Cow<'a, str>>,
    aggregate_type: Option<Cow<'a, str>>,
    aggregate_id: Option<Cow<'a, str>>,
    content_type: &'a str,
    headers: String,
    hash: String,
    not_before: Option<i64>,
    /// The id of the call's first row of the same key.
    first: MessageId,
    /// By how many milliseconds it is later than that one.
    later: u32,
    /// Milliseconds between two times that the table tells apart.
    tick: u32,
    /// Where its payload begins among the payloads; SQL counts from 1.
    start: usize,
    bytes: usize,
}

impl<'a> NewRow<'a> {
    fn new(row: &'a prepared::NewRow, map: &'a TableMap) -> Self {
        let message = &row.message;
        let text = |role| map.new_text(row, role).map(Cow::Borrowed);
        let native_hash = *map.hash_recipe() == HashRecipe::default();
        let mut new = Self {
            id: message.id,
            event_id: text(Role::EventId),
            namespace: text(Role::Namespace),
            topic: text(Role::Topic),
            ordering_key: text(Role::OrderingKey),
            tenant: text(Role::Tenant),
            dedupe_key: text(Role::DedupeKey),
            event_type: text(Role::EventType),
            source: text(Role::Source),
            aggregate_type: text(Role::AggregateType),
            aggregate_id: text(Role::AggregateId),
            content_type: &message.content_type,
            headers: serde_json::json!(message.headers).to_string(),
            hash: if native_hash {
                *row.hash()
            } else {
                map.content_hash(message)
            }
            .to_string(),
            not_before: message.not_before.map(|time| not_before(time, map)),
            first: message.id,
            later: 0,
            tick: tick(map),
            start: 1,
            bytes: message.payload.len(),
        };
        if map.has(Role::EventId) {
            new.event_id.get_or_insert_with(|| message.effective_event_id());
        }
        new
    }
}

/// How far apart two times must be for the column to tell them apart, in milliseconds.
fn tick(map: &TableMap) -> u32 {
    match map.column(Role::CreatedAt).map(|column| column.kind) {
        Some(Kind::EpochS) => 1000,
        _ => 1,
    }
}

/// A time as its column keeps it, rounded up: nothing is delivered too early.
fn not_before(time: DateTime<Utc>, map: &TableMap) -> i64 {
    epoch_millis(time).saturating_add(kept_until(map, Role::NextAttemptAt, Duration::ZERO))
}

/// Where a table is ordered by time and id, rows of one moment would be taken by their ids, not as they were given.
/// `enqueue.sql` puts the first row of a key behind what its key has already.
fn keep_order(rows: &mut [NewRow<'_>]) {
    let mut lanes: HashMap<_, (MessageId, MessageId, u32)> = HashMap::new();
    for row in rows {
        let Some(key) = &row.ordering_key else { continue };
        let lane = (row.topic.clone(), key.clone());
        let (first, last, later) = lanes.entry(lane).or_insert((row.id, row.id, 0));
        if row.id != *first && !is_behind(row.id, *last) {
            *later += row.tick;
        }
        *last = row.id;
        (row.first, row.later) = (*first, *later);
    }
}

/// Whether an id is greater both as a number and as a text: the column may be either.
fn is_behind(id: MessageId, last: MessageId) -> bool {
    id > last && id.to_string() > last.to_string()
}

/// For `enqueue.sql`.
pub(crate) fn rows_and_payloads(map: &TableMap, rows: &[prepared::NewRow]) -> Vec<Value<'static>> {
    let mut payloads = Vec::with_capacity(rows.iter().map(|row| row.message.payload.len()).sum());
    let mut new: Vec<_> = rows.iter().map(|row| NewRow::new(row, map)).collect();
    for (new, row) in new.iter_mut().zip(rows) {
        new.start = payloads.len() + 1;
        payloads.extend_from_slice(&row.message.payload);
    }
    if map.has(Property::OrderedByTime) && !map.has(Property::GeneratedId) {
        keep_order(&mut new);
    }
    vec![json(&new), Value::Bytes(payloads.into())]
}

/// For statements that ask for keys only.
pub(crate) fn rows<'r>(map: &TableMap, rows: impl IntoIterator<Item = &'r prepared::NewRow>) -> Value<'static> {
    let rows: Vec<_> = rows.into_iter().map(|row| NewRow::new(row, map)).collect();
    json(&rows)
}

/// For statements that take ids.
pub(crate) fn ids(ids: &[MessageId]) -> Value<'static> {
    json(&ids)
}

fn json(value: &impl Serialize) -> Value<'static> {
    let json = serde_json::to_string(value).expect("texts and numbers are JSON");
    Value::Text(Some(json.into()))
}
