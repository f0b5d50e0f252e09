//! Whether a table can keep a message as it is: what has no place in it would be lost without a word.

use serde::de::IgnoredAny;
use uuid::Uuid;

use super::{Kind, TableMap, TopicRule};
use crate::enqueue::{EnqueueError, Prepared};
use crate::integrity::{ContentHash, HashPart};
use crate::message::{DEFAULT_NAMESPACE, Message};
use crate::validate::InvalidMessage;

const NO_COLUMN: &str = "the table has no column for it; leave it out, or map a column";

fn refuse<T>(field: &'static str, reason: impl Into<String>) -> Result<T, InvalidMessage> {
    let reason = reason.into();
    Err(InvalidMessage::NoPlace { field, reason })
}

impl TableMap {
    /// Whether the table can keep all messages of a call. To be asked before any SQL runs.
    pub fn fits(&self, prepared: &Prepared) -> Result<(), EnqueueError> {
        for (position, row) in prepared.rows.iter().enumerate() {
            self.fits_message(&row.message)
                .map_err(|reason| EnqueueError::Invalid { position, reason })?;
        }
        Ok(())
    }

    /// The hash of a message by the table's recipe.
    pub fn content_hash(&self, message: &Message) -> ContentHash {
        self.hash.hash(message)
    }

    fn fits_message(&self, message: &Message) -> Result<(), InvalidMessage> {
        self.fits_id(message)?;
        if self.topic != TopicRule::Column {
            match self.topic.topic(message) {
                Ok(topic) if topic == message.topic => {}
                Ok(topic) => return refuse("topic", format!("by the table map it is `{topic}`; give this one")),
                Err(error) => return refuse("topic", error),
            }
        }
        let texts = texts(message);
        for (field, value) in texts {
            if let Some(value) = value {
                self.fits_text(field, value)?;
            }
        }
        self.fits_shared(&texts)?;
        let media_type = self.constant("content_type").unwrap_or("application/json");
        if !self.has("content_type") && message.content_type != media_type {
            return refuse("content_type", format!("for this table it is always `{media_type}`"));
        }
        if !message.headers.is_empty() && !self.has("headers") {
            return refuse("headers", NO_COLUMN);
        }
        if message.not_before.is_some() && !self.has("next_attempt_at") {
            return refuse("not_before", NO_COLUMN);
        }
        self.fits_payload(&message.payload)
    }

    fn fits_id(&self, message: &Message) -> Result<(), InvalidMessage> {
        let Some(id) = self.column("id") else {
            return Ok(());
        };
        if id.kind == Kind::Integer && !id.generated {
            return refuse(
                "id",
                "the table's ids are numbers; if the database gives them, say `generated = true` at columns.id in the map",
            );
        }
        let hashed_id = self.hash.0.iter().any(|part| {
            *part == HashPart::Id || (*part == HashPart::EventId && message.event_id.is_none() && !self.has("event_id"))
        });
        if self.has("content_hash") && id.generated && hashed_id {
            return refuse(
                "id",
                "the hash is made over it, but the database gives it at insert; choose other parts at hash.parts in the map",
            );
        }
        Ok(())
    }

    fn fits_text(&self, field: &'static str, value: &str) -> Result<(), InvalidMessage> {
        let Some(column) = self.column(field) else {
            let constant = self.constant(field);
            let expected = constant.or((field == "namespace").then_some(DEFAULT_NAMESPACE));
            return match expected {
                Some(expected) if expected == value => Ok(()),
                Some(expected) => refuse(field, format!("for this table it is always `{expected}`; leave it out")),
                None => refuse(field, NO_COLUMN),
            };
        };
        match column.kind {
            Kind::Integer if value.parse::<i64>().map(|number| number.to_string()).as_deref() != Ok(value) => refuse(
                field,
                format!("the table keeps a whole number there, and `{value}` is none"),
            ),
            Kind::Uuid | Kind::UuidBytes if value.parse::<Uuid>().is_err() => {
                refuse(field, format!("the table keeps a UUID there, and `{value}` is none"))
            }
            _ => match column.max {
                Some(max) if value.chars().count() > max => {
                    refuse(field, format!("the column holds {max} characters; shorten it"))
                }
                _ => Ok(()),
            },
        }
    }

    /// A column that plays two roles holds one value.
    fn fits_shared(&self, texts: &[(&'static str, Option<&str>)]) -> Result<(), InvalidMessage> {
        for (place, (field, value)) in texts.iter().enumerate() {
            for (other, value_of_other) in &texts[..place] {
                let (Some(column), Some(column_of_other)) = (self.column(field), self.column(other)) else {
                    continue;
                };
                let differ = matches!((value, value_of_other), (Some(value), Some(other)) if value != other);
                if differ && column.name == column_of_other.name {
                    return refuse(
                        field,
                        format!("it shares a column with {other}; give both the same value"),
                    );
                }
            }
        }
        Ok(())
    }

    fn fits_payload(&self, payload: &[u8]) -> Result<(), InvalidMessage> {
        match self.column("payload").map(|column| column.kind) {
            Some(Kind::Text) if std::str::from_utf8(payload).is_err() || payload.contains(&0) => refuse(
                "payload",
                "the table keeps it as text, and these bytes are not UTF-8 without NUL",
            ),
            Some(Kind::Json | Kind::Jsonb) if serde_json::from_slice::<IgnoredAny>(payload).is_err() => {
                refuse("payload", "the table keeps it as JSON, and these bytes are not JSON")
            }
            _ => Ok(()),
        }
    }
}

fn texts(message: &Message) -> [(&'static str, Option<&str>); 9] {
    [
        ("namespace", message.namespace.as_deref()),
        ("event_id", message.event_id.as_deref()),
        ("ordering_key", message.ordering_key.as_deref()),
        ("tenant", message.tenant.as_deref()),
        ("dedupe_key", message.dedupe_key.as_deref()),
        ("event_type", message.event_type.as_deref()),
        ("source", message.source.as_deref()),
        ("aggregate_type", message.aggregate_type.as_deref()),
        ("aggregate_id", message.aggregate_id.as_deref()),
    ]
}

#[cfg(test)]
mod tests {
    use crate::enqueue::{OutboxOptions, Prepared};
    use crate::message::Message;
    use crate::table::{Shipped, TableMap};

    fn map(name: &str) -> TableMap {
        Shipped::find(name).unwrap().map().unwrap()
    }

    fn refusal(map: &TableMap, message: Message) -> String {
        let options = OutboxOptions {
            type_names: crate::validate::TypeNameRule::Any,
            ..OutboxOptions::default()
        };
        let prepared = Prepared::new([message], &options).unwrap();
        map.fits(&prepared)
            .map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn what_a_table_has_a_place_for_is_accepted() {
        let order = "01890a5d-ac96-774b-bcce-b302099a8057";
        let message = Message::new("order-events", "{}").aggregate("Order", order).key(order);
        assert_eq!(refusal(&map("order-service"), message.source("order-service")), "");
        let message = Message::new("donation-events", "{}").event_type("Donated");
        assert_eq!(refusal(&map("donation"), message), "");
        let message = Message::new("anything", vec![0, 255])
            .key("k")
            .header("a", "b")
            .content_type("image/png");
        assert_eq!(refusal(&TableMap::with_prefix("p_").unwrap(), message), "");
    }

    #[test]
    fn what_a_table_has_no_place_for_is_refused_by_name() {
        let donation = || Message::new("donation-events", "{}").event_type("Donated");
        let order = || Message::new("order-events", "{}").aggregate("Order", "01890a5d-ac96-774b-bcce-b302099a8057");
        let usage = || Message::new("t", "{}");
        for (table, message, said) in [
            (
                "donation",
                donation().tenant("a"),
                "tenant: the table has no column for it",
            ),
            (
                "donation",
                donation().header("a", "b"),
                "headers: the table has no column",
            ),
            (
                "donation",
                donation().content_type("text/plain"),
                "content_type: for this table it is always `application/json`",
            ),
            (
                "donation",
                donation().source("me"),
                "source: for this table it is always `donation-service`",
            ),
            (
                "donation",
                donation().namespace("x"),
                "namespace: for this table it is always `default`",
            ),
            (
                "donation",
                donation().event_type("x".repeat(51)),
                "event_type: the column holds 50 characters",
            ),
            (
                "donation",
                Message::new("t", "{}"),
                "topic: by the table map it is `donation-events`",
            ),
            (
                "donation",
                Message::new("donation-events", vec![255]),
                "payload: the table keeps it as text",
            ),
            (
                "order-service",
                Message::new("t", "{}"),
                "topic: no topic: the row has no aggregate_type",
            ),
            (
                "order-service",
                order().key("7"),
                "ordering_key: the table keeps a UUID there, and `7` is none",
            ),
            (
                "order-service",
                order().key("01890a5d-ac96-774b-bcce-b302099a8058"),
                "aggregate_id: it shares a column with ordering_key",
            ),
            (
                "order-service",
                order().not_before(chrono::DateTime::UNIX_EPOCH),
                "not_before: the table has no column",
            ),
            ("usage", usage().tenant("7"), "tenant: the table keeps a UUID there"),
            ("usage", Message::new("t", "x"), "payload: the table keeps it as JSON"),
        ] {
            let error = refusal(&map(table), message);
            assert!(error.contains(said), "{table}: `{error}` does not say `{said}`");
        }
    }

    #[test]
    fn an_id_that_the_database_gives_cannot_be_hashed() {
        let toml = Shipped::find("donation").unwrap().toml;
        let hashed = TableMap::from_toml(&toml.replace("[\"event_id\", ", "[\"id\", ")).unwrap();
        let error = refusal(&hashed, Message::new("donation-events", "{}"));
        assert!(error.contains("hash.parts"), "{error}");
        let counted = TableMap::from_toml(&toml.replace(", generated = true", "")).unwrap();
        let error = refusal(&counted, Message::new("donation-events", "{}"));
        assert!(error.contains("generated = true"), "{error}");
    }
}
