//! Whether a message fits an existing table.
//!
//! Everything here is known before any SQL runs, so that a refusal leaves the caller's transaction usable and nothing of
//! a message is lost without a word.

use uuid::Uuid;

use super::{Kind, Layout, Property, Role, Table, TableMap, TopicRule};
use posthaste_core::enqueue::{EnqueueError, NewRow, Prepared};
use posthaste_core::integrity::HashPart;
use posthaste_core::message::{DEFAULT_NAMESPACE, Text};
use posthaste_core::validate::InvalidMessage;

/// Roles in the order in which a column that plays several is written: the first stands for all, and those by which a row is
/// found again come before others.
const WRITTEN: [Role; 12] = [
    Role::Id,
    Role::EventId,
    Role::DedupeKey,
    Role::OrderingKey,
    Role::AggregateId,
    Role::AggregateType,
    Role::Topic,
    Role::EventType,
    Role::Tenant,
    Role::Namespace,
    Role::Source,
    Role::ContentType,
];

/// The media type of tables that do not say.
const JSON: &str = "application/json";

/// What the message itself says for a role.
fn given(row: &NewRow, role: Role) -> Option<&str> {
    let message = &row.message;
    match role {
        Role::EventId => message.event_id.as_deref(),
        Role::Namespace => Some(&row.namespace),
        Role::Topic => Some(&message.topic),
        Role::OrderingKey => message.ordering_key.as_deref(),
        Role::Tenant => message.tenant.as_deref(),
        Role::DedupeKey => message.dedupe_key.as_deref(),
        Role::EventType => message.event_type.as_deref(),
        Role::Source => message.source.as_deref(),
        Role::AggregateType => message.aggregate_type.as_deref(),
        Role::AggregateId => message.aggregate_id.as_deref(),
        Role::ContentType => Some(&message.content_type),
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
    pub fn new_text<'a>(&self, row: &'a NewRow, role: Role) -> Option<&'a str> {
        let shared = |other: &Role| self.share_a_column(role, *other);
        given(row, role).or_else(|| {
            Role::TEXTS
                .into_iter()
                .filter(shared)
                .find_map(|other| given(row, other))
        })
    }

    /// The same map with each column named once, for statements that write all of them.
    #[must_use]
    pub fn with_each_column_once(&self) -> Self {
        let mut once = self.clone();
        for (place, role) in WRITTEN.into_iter().enumerate() {
            if WRITTEN[..place]
                .iter()
                .any(|earlier| self.share_a_column(role, *earlier))
            {
                once = once.without(role);
            }
        }
        once
    }

    /// Whether the table can keep all messages of a call without losing a part of one. Called before any SQL runs.
    pub fn validate_messages(&self, prepared: &Prepared) -> Result<(), EnqueueError> {
        let shared = self.shared_columns();
        for (place, row) in prepared.rows.iter().enumerate() {
            self.validate_message(row, &shared)
                .map_err(|reason| EnqueueError::Invalid {
                    position: prepared.position(place),
                    reason,
                })?;
        }
        Ok(())
    }

    fn validate_message(&self, row: &NewRow, shared: &[(Role, Role)]) -> Result<(), InvalidMessage> {
        for role in Role::TEXTS {
            if let Some(value) = given(row, role) {
                self.validate_text(row, role, value, shared)?;
            }
        }
        let message = &row.message;
        if row.has_own_headers() && !self.has(Role::Headers) {
            return refuse("headers", self.no_column(Role::Headers));
        }
        // What has a time of its own waits in Posthaste's own log beside what failed.
        let waits_beside = self.layout == Layout::Log && self.is_native();
        if message.not_before.is_some() && !self.has(Role::NextAttemptAt) && !waits_beside {
            return refuse("not_before", self.no_column(Role::NextAttemptAt));
        }
        let id = self.column(Role::Id);
        if id.is_some_and(|id| id.kind == Kind::Integer && !id.generated) {
            let reason = "the table counts; say `generated = true` for its column if the database gives the numbers";
            return refuse("id", reason);
        }
        if self.has(Role::Shard) && message.event_id.is_none() && message.id.uuid().is_none() {
            return refuse("id", "the log keeps UUIDs; leave it out, or give one");
        }
        let no_event_id = message.event_id.is_none() && !self.has(Role::EventId);
        let over_id = |part: &HashPart| *part == HashPart::Id || (*part == HashPart::EventId && no_event_id);
        if self.has(Role::ContentHash) && self.has(Property::GeneratedId) && self.hash_recipe().0.iter().any(over_id) {
            let reason =
                "it would be made over an id that the database has not given yet; name other parts under [hash]";
            return refuse("content_hash", reason);
        }
        self.validate_payload(row)?;
        self.validate_topic(row)
    }

    fn validate_text(
        &self,
        row: &NewRow,
        role: Role,
        value: &str,
        shared: &[(Role, Role)],
    ) -> Result<(), InvalidMessage> {
        let Some(column) = self.column(role) else {
            return match (role, self.constant(role)) {
                (Role::Topic, _) => Ok(()),
                // Whoever serves Posthaste's own log serves all of it.
                (Role::Namespace, None) if self.is_native() && value != DEFAULT_NAMESPACE => refuse(
                    role.name(),
                    format!("a log has no namespaces, and `{value}` would be served with all others; leave it out"),
                ),
                // The outbox's own namespace says nothing about a table that has none.
                (Role::Namespace, constant) => match &row.message.namespace {
                    Some(given) if given != constant.unwrap_or(DEFAULT_NAMESPACE) => {
                        refuse(role.name(), self.no_column(role))
                    }
                    _ => Ok(()),
                },
                (_, Some(constant)) if constant == value => Ok(()),
                (Role::ContentType, None) if value == JSON => Ok(()),
                (Role::DedupeKey, None) if self.has(Table::Dedupe) => Ok(()),
                (_, Some(constant)) => refuse(
                    role.name(),
                    format!(
                        "all rows of the table map `{}` have `{constant}`; leave it out",
                        self.name()
                    ),
                ),
                (_, None) => refuse(role.name(), self.no_column(role)),
            };
        };
        let fits = match column.kind {
            Kind::Uuid | Kind::UuidBytes => value.parse::<Uuid>().is_ok(),
            Kind::Integer => value.parse().is_ok_and(|number: i64| number.to_string() == value),
            _ => true,
        };
        if !fits {
            let kind = column.kind.as_str();
            return refuse(
                role.name(),
                format!(
                    "`{value}` does not fit the column {}, which is of kind {kind}",
                    column.name
                ),
            );
        }
        if column.max.is_some_and(|max| value.chars().count() > max) {
            return refuse(
                role.name(),
                format!("`{value}` is too long for the column {}; shorten it", column.name),
            );
        }
        for (_, other) in shared.iter().filter(|(one, _)| *one == role) {
            if given(row, *other).is_some_and(|there| there != value) {
                let reason = format!(
                    "it shares the column {} with {other}, which differs; give one of them",
                    column.name
                );
                return refuse(role.name(), reason);
            }
        }
        Ok(())
    }

    fn validate_payload(&self, row: &NewRow) -> Result<(), InvalidMessage> {
        let payload = &row.message.payload;
        let kind = self.column(Role::Payload).map_or(Kind::Bytes, |column| column.kind);
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

    fn validate_topic(&self, row: &NewRow) -> Result<(), InvalidMessage> {
        if *self.topic_rule() == TopicRule::Column {
            return Ok(());
        }
        let mut message = row.message.clone();
        let or_constant = |value: Option<Text>, role| value.or_else(|| self.constant(role).map(Text::from));
        message.event_type = or_constant(message.event_type, Role::EventType);
        message.source = or_constant(message.source, Role::Source);
        message.aggregate_type = or_constant(message.aggregate_type, Role::AggregateType);
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

    /// Roles whose columns other roles have, too. Looked up once for all messages of a call.
    fn shared_columns(&self) -> Vec<(Role, Role)> {
        let pairs = |role| Role::TEXTS.into_iter().map(move |other| (role, other));
        let pairs = Role::TEXTS.into_iter().flat_map(pairs);
        pairs
            .filter(|(role, other)| self.share_a_column(*role, *other))
            .collect()
    }

    fn share_a_column(&self, role: Role, other: Role) -> bool {
        let name = |role: Role| self.column(role).map(|column| &column.name);
        role != other && name(role).is_some() && name(role) == name(other)
    }

    fn no_column(&self, role: Role) -> String {
        format!(
            "the table map `{}` has no column for {role}, so it would be lost; leave it out, or map a column",
            self.name()
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::table::{BuiltinMap, Role, TableMap};
    use posthaste_core::enqueue::{OutboxOptions, Prepared};
    use posthaste_core::message::Message;
    use posthaste_core::validate::TypeNameRule;

    fn refused(map: &str, message: Message) -> String {
        let options = OutboxOptions::new().type_names(TypeNameRule::Any);
        let prepared = Prepared::new([message], &options).unwrap();
        let map = BuiltinMap::find(map).unwrap().map().unwrap();
        map.validate_message(&prepared.rows[0], &map.shared_columns())
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
    fn a_trace_that_has_no_place_is_lost_and_refuses_nothing() {
        let message = order(ID).header("traceparent", "00-1");
        let options = OutboxOptions::new().type_names(TypeNameRule::Any);
        let mut prepared = Prepared::new([message], &options).unwrap();
        let map = BuiltinMap::find("order-service").unwrap().map().unwrap();
        assert!(map.validate_messages(&prepared).is_err(), "the caller set it");
        prepared.rows[0].captured = vec!["traceparent"];
        map.validate_messages(&prepared).unwrap();
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
                    event_id: Some("x".repeat(51).into()),
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
        let map = BuiltinMap::find("order-service")
            .unwrap()
            .map()
            .unwrap()
            .with_each_column_once();
        assert!(map.has(Role::OrderingKey) && !map.has(Role::AggregateId));
    }

    /// Else a row that is in the way of another could not be found by its key.
    #[test]
    fn a_dedupe_key_stands_for_every_other_role_of_its_column() {
        let toml = BuiltinMap::find("usage").unwrap().toml;
        for role in ["ordering_key", "tenant", "aggregate_id"] {
            let line = format!("[columns]\n{role} = \"dedupe_key\"");
            let others = toml.lines().filter(|line| !line.starts_with(&format!("{role} =")));
            let toml = others.collect::<Vec<_>>().join("\n").replace("[columns]", &line);
            let map = TableMap::from_toml(&toml).unwrap().with_each_column_once();
            assert!(map.has(Role::DedupeKey), "{role}");
        }
    }
}
