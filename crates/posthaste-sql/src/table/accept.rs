//! Whether a message fits a table that somebody already has.
//!
//! Everything here is known before any SQL runs, so that a refusal leaves the caller's transaction usable and nothing of
//! a message is lost without a word.

use uuid::Uuid;

use super::{Kind, TableMap};
use posthaste_core::enqueue::{EnqueueError, NewRow, Prepared};
use posthaste_core::integrity::HashPart;
use posthaste_core::message::DEFAULT_NAMESPACE;
use posthaste_core::validate::InvalidMessage;

/// The roles that a message has texts for.
const TEXTS: [&str; 11] = [
    "event_id",
    "namespace",
    "topic",
    "ordering_key",
    "tenant",
    "dedupe_key",
    "event_type",
    "source",
    "aggregate_type",
    "aggregate_id",
    "content_type",
];

/// The media type of tables that do not say.
const JSON: &str = "application/json";

/// What the message itself says for a role.
fn given<'a>(row: &'a NewRow, role: &str) -> Option<&'a str> {
    let message = &row.message;
    match role {
        "event_id" => message.event_id.as_deref(),
        "namespace" => Some(&row.namespace),
        "topic" => Some(&message.topic),
        "ordering_key" => message.ordering_key.as_deref(),
        "tenant" => message.tenant.as_deref(),
        "dedupe_key" => message.dedupe_key.as_deref(),
        "event_type" => message.event_type.as_deref(),
        "source" => message.source.as_deref(),
        "aggregate_type" => message.aggregate_type.as_deref(),
        "aggregate_id" => message.aggregate_id.as_deref(),
        "content_type" => Some(&message.content_type),
        _ => None,
    }
}

fn refuse<T>(field: &'static str, reason: impl Into<String>) -> Result<T, InvalidMessage> {
    Err(InvalidMessage::Table {
        field,
        reason: reason.into(),
    })
}

impl TableMap {
    /// What is written into the column of a role: what the message says for it, or for another role that shares the
    /// column.
    pub fn new_text<'a>(&self, row: &'a NewRow, role: &str) -> Option<&'a str> {
        let shared = |other: &&&str| self.share_a_column(role, other);
        given(row, role).or_else(|| TEXTS.iter().filter(shared).find_map(|other| given(row, other)))
    }

    /// The same map with each column named once, for statements that write all of them.
    #[must_use]
    pub fn with_each_column_once(&self) -> Self {
        let mut once = self.clone();
        for (place, role) in TEXTS.iter().enumerate() {
            let earlier = ["id"].iter().chain(&TEXTS[..place]);
            if earlier.into_iter().any(|earlier| self.share_a_column(role, earlier)) {
                once = once.without(role);
            }
        }
        once
    }

    /// Whether the table can keep all messages of a call without losing a part of one. To be asked before any SQL runs.
    pub fn fits(&self, prepared: &Prepared) -> Result<(), EnqueueError> {
        for (place, row) in prepared.rows.iter().enumerate() {
            self.accept(row).map_err(|reason| EnqueueError::Invalid {
                position: prepared.position(place),
                reason,
            })?;
        }
        Ok(())
    }

    fn accept(&self, row: &NewRow) -> Result<(), InvalidMessage> {
        for role in TEXTS {
            if let Some(value) = given(row, role) {
                self.accept_text(row, role, value)?;
            }
        }
        let message = &row.message;
        if !message.headers.is_empty() && !self.has("headers") {
            return refuse("headers", self.no_column("headers"));
        }
        if message.not_before.is_some() && !self.has("next_attempt_at") {
            return refuse("not_before", self.no_column("next_attempt_at"));
        }
        let id = self.column("id");
        if id.is_some_and(|id| id.kind == Kind::Integer && !id.generated) {
            let reason = "the table counts; say `generated = true` for its column if the database gives the numbers";
            return refuse("id", reason);
        }
        let no_event_id = message.event_id.is_none() && !self.has("event_id");
        let over_id = |part: &HashPart| *part == HashPart::Id || (*part == HashPart::EventId && no_event_id);
        if self.has("content_hash") && self.has("generated_id") && self.hash_recipe().0.iter().any(over_id) {
            let reason =
                "it would be made over an id that the database has not given yet; name other parts under [hash]";
            return refuse("content_hash", reason);
        }
        self.accept_payload(row)?;
        self.accept_topic(row)
    }

    fn accept_text(&self, row: &NewRow, role: &'static str, value: &str) -> Result<(), InvalidMessage> {
        let Some(column) = self.column(role) else {
            return match (role, self.constant(role)) {
                ("topic", _) => Ok(()),
                // The outbox's own namespace says nothing about a table that has none.
                ("namespace", constant) => match &row.message.namespace {
                    Some(given) if given != constant.unwrap_or(DEFAULT_NAMESPACE) => refuse(role, self.no_column(role)),
                    _ => Ok(()),
                },
                (_, Some(constant)) if constant == value => Ok(()),
                ("content_type", None) if value == JSON => Ok(()),
                (_, Some(constant)) => refuse(
                    role,
                    format!(
                        "all rows of the table map `{}` have `{constant}`; leave it out",
                        self.name()
                    ),
                ),
                (_, None) => refuse(role, self.no_column(role)),
            };
        };
        let fits = match column.kind {
            Kind::Uuid | Kind::UuidBytes => value.parse::<Uuid>().is_ok(),
            Kind::Integer => value.parse().is_ok_and(|number: i64| number.to_string() == value),
            _ => true,
        };
        if !fits {
            let kind = column.kind.word();
            return refuse(
                role,
                format!(
                    "`{value}` does not fit the column {}, which is of kind {kind}",
                    column.name
                ),
            );
        }
        if column.max.is_some_and(|max| value.chars().count() > max) {
            return refuse(
                role,
                format!("`{value}` is too long for the column {}; shorten it", column.name),
            );
        }
        for other in TEXTS.iter().filter(|other| self.share_a_column(role, other)) {
            if given(row, other).is_some_and(|there| there != value) {
                let reason = format!(
                    "it shares the column {} with {other}, which differs; give one of them",
                    column.name
                );
                return refuse(role, reason);
            }
        }
        Ok(())
    }

    fn accept_payload(&self, row: &NewRow) -> Result<(), InvalidMessage> {
        let payload = &row.message.payload;
        let kind = self.column("payload").map_or(Kind::Bytes, |column| column.kind);
        if kind == Kind::Bytes {
            return Ok(());
        }
        let Ok(text) = std::str::from_utf8(payload) else {
            return refuse("payload", "it is not text, and the table's column is; send text");
        };
        if text.contains('\0') || (kind == Kind::Jsonb && text.contains("\\u0000")) {
            return refuse(
                "payload",
                "it contains a NUL character, which the column cannot keep; remove it",
            );
        }
        if matches!(kind, Kind::Json | Kind::Jsonb)
            && let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(text)
        {
            return refuse("payload", format!("it is not JSON, and the table's column is: {error}"));
        }
        Ok(())
    }

    fn accept_topic(&self, row: &NewRow) -> Result<(), InvalidMessage> {
        let mut message = row.message.clone();
        let or_constant = |value: Option<String>, role| value.or_else(|| self.constant(role).map(str::to_owned));
        message.event_type = or_constant(message.event_type, "event_type");
        message.source = or_constant(message.source, "source");
        message.aggregate_type = or_constant(message.aggregate_type, "aggregate_type");
        match self.topic_rule().topic(&message) {
            Ok(topic) if topic == row.message.topic => Ok(()),
            Ok(topic) => refuse(
                "topic",
                format!(
                    "the table has no column for it, and this message would go to `{topic}`, not to `{}`; write `{topic}`, or \
                     leave it out",
                    row.message.topic
                ),
            ),
            Err(error) => refuse("topic", error),
        }
    }

    fn share_a_column(&self, role: &str, other: &str) -> bool {
        let name = |role: &str| self.column(role).map(|column| &column.name);
        role != other && name(role).is_some() && name(role) == name(other)
    }

    fn no_column(&self, role: &str) -> String {
        format!(
            "the table map `{}` has no column for {role}, so it would be lost; leave it out, or map a column",
            self.name()
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::table::Shipped;
    use posthaste_core::enqueue::{OutboxOptions, Prepared};
    use posthaste_core::message::Message;
    use posthaste_core::validate::TypeNameRule;

    fn refused(map: &str, message: Message) -> String {
        let options = OutboxOptions {
            type_names: TypeNameRule::Any,
            ..OutboxOptions::default()
        };
        let prepared = Prepared::new([message], &options).unwrap();
        let map = Shipped::find(map).unwrap().map().unwrap();
        map.accept(&prepared.rows[0])
            .err()
            .map(|error| error.to_string())
            .unwrap_or_default()
    }

    fn order(id: &str) -> Message {
        Message::new("order-events", "{}")
            .aggregate("Order", id)
            .event_type("OrderCreated")
    }

    const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    #[test]
    fn a_message_that_fits_is_accepted() {
        assert_eq!(refused("order-service", order(ID)), "");
        assert_eq!(refused("order-service", order(ID).key(ID).source("order-service")), "");
        assert_eq!(
            refused(
                "usage",
                Message::new("t", "{}").tenant(ID).dedupe_key(format!("{ID}/1"))
            ),
            ""
        );
    }

    #[test]
    fn what_would_be_lost_is_refused_by_name() {
        for (map, message, part) in [
            (
                "order-service",
                order(ID).header("a", "b"),
                "headers: the table map `order-service` has no column",
            ),
            (
                "order-service",
                order(ID).not_before(chrono::Utc::now()),
                "not_before: ",
            ),
            ("order-service", order(ID).tenant("t"), "tenant: "),
            (
                "order-service",
                order(ID).source("x"),
                "all rows of the table map `order-service` have `order-service`",
            ),
            ("order-service", order(ID).namespace("x"), "namespace: "),
            (
                "order-service",
                order("42"),
                "`42` does not fit the column aggregate_id",
            ),
            ("order-service", order(ID).key("42"), "ordering_key: "),
            (
                "order-service",
                Message {
                    topic: "x".into(),
                    ..order(ID)
                },
                "would go to `order-events`, not to `x`",
            ),
            (
                "order-service",
                Message::new("order-events", "{}"),
                "no topic: the row has no aggregate_type",
            ),
            (
                "order-service",
                Message {
                    payload: vec![255].into(),
                    ..order(ID)
                },
                "payload: it is not text",
            ),
            ("usage", Message::new("t", "{"), "payload: it is not JSON"),
            ("usage", Message::new("t", r#""\u0000""#), "NUL"),
            (
                "usage",
                Message::new("t", "{}").content_type("text/plain"),
                "content_type: ",
            ),
            ("usage", Message::new("t", "{}").key("k"), "ordering_key: "),
            (
                "donation",
                Message {
                    event_id: Some("x".repeat(51)),
                    ..Message::new("donation-events", "{}")
                },
                "too long",
            ),
        ] {
            let error = refused(map, message);
            assert!(error.contains(part), "{part}: {error}");
        }
        let other = "01890a5d-ac96-774b-bcce-b302099a8058";
        assert!(refused("order-service", order(ID).key(other)).contains("shares the column aggregate_id"));
    }

    #[test]
    fn a_column_of_two_roles_is_written_once() {
        let map = Shipped::find("order-service")
            .unwrap()
            .map()
            .unwrap()
            .with_each_column_once();
        assert!(map.has("ordering_key") && !map.has("aggregate_id"));
    }
}
