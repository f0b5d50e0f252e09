//! Messages as the producers of a table write them.

use std::hash::{DefaultHasher, Hash, Hasher};

use posthaste_core::{Message, OutboxOptions};
use posthaste_sql::TableMap;
use posthaste_sql::table::{Kind, Role, TopicRule};
use uuid::Uuid;

/// The messages of a case with what the table asks of its producers: payloads that its column takes, keys of its kind, and
/// a value for each column that none of its own rows is without. A part that a case relies on is left alone, and refused
/// if the table has no column for it.
pub fn fit(map: &TableMap, messages: Vec<Message>, options: &OutboxOptions) -> Vec<Message> {
    messages
        .into_iter()
        .map(|message| fit_one(map, message, options))
        .collect()
}

fn fit_one(map: &TableMap, mut message: Message, options: &OutboxOptions) -> Message {
    let kind = |role: Role| map.column(role).map(|column| column.kind);
    let json = matches!(kind(Role::Payload), Some(Kind::Json | Kind::Jsonb));
    if json && serde_json::from_slice::<serde_json::Value>(&message.payload).is_err() {
        let text = String::from_utf8_lossy(&message.payload);
        message.payload = serde_json::json!(text).to_string().into();
    }
    if *map.topic_rule() == TopicRule::Column {
        return message;
    }
    let topic = message.topic.clone();
    if map.has(Role::EventType) {
        message
            .event_type
            .get_or_insert_with(|| format!("acme.{topic}.happened.v1").into());
    }
    if map.has(Role::Source) && options.source.is_none() {
        message.source.get_or_insert_with(|| "suite".into());
    }
    if map.has(Role::AggregateType) {
        message.aggregate_type.get_or_insert(topic);
    }
    if map.has(Role::EventId) {
        message.event_id.get_or_insert_with(|| message.id.to_string().into());
    }
    let aggregate = map.column(Role::AggregateId).map(|column| &column.name);
    if aggregate.is_some() && aggregate == map.column(Role::OrderingKey).map(|column| &column.name) {
        // Every row is about something: one without a key is about what no other row is about.
        let key = message
            .ordering_key
            .take()
            .map_or_else(Uuid::new_v4, |key| uuid_for(&key));
        message.ordering_key = Some(key.to_string().into());
    }
    if let Ok(topic) = map.topic_for(&message) {
        message.topic = topic.into();
    }
    message
}

/// Always the same for the same text.
fn uuid_for(text: &str) -> Uuid {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, text).hash(&mut hasher);
        hasher.finish()
    };
    Uuid::from_u64_pair(half(0), half(1))
}
