//! One message as a line of JSON.

use anyhow::anyhow;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use posthaste_core::message::Headers;
use posthaste_core::{Message, MessageId};
use posthaste_sql::TableMap;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::payload::Payload;
use super::topic;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: Option<MessageId>,
    namespace: Option<String>,
    topic: Option<String>,
    #[serde(alias = "key")]
    ordering_key: Option<String>,
    tenant: Option<String>,
    dedupe_key: Option<String>,
    #[serde(alias = "type")]
    event_type: Option<String>,
    source: Option<String>,
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    content_type: Option<String>,
    #[serde(default, deserialize_with = "present")]
    payload: Option<Box<RawValue>>,
    payload_base64: Option<String>,
    #[serde(default)]
    headers: Headers,
    not_before: Option<DateTime<Utc>>,
    // What `dead list --json` says of a row beyond its message is passed over: a message that is enqueued begins anew.
    #[serde(rename = "sequence")]
    _sequence: Option<IgnoredAny>,
    #[serde(rename = "state")]
    _state: Option<IgnoredAny>,
    #[serde(rename = "attempts")]
    _attempts: Option<IgnoredAny>,
    #[serde(rename = "last_error")]
    _last_error: Option<IgnoredAny>,
    #[serde(rename = "created_at")]
    _created_at: Option<IgnoredAny>,
    #[serde(rename = "updated_at")]
    _updated_at: Option<IgnoredAny>,
}

/// `null` is a payload like any other.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

fn read(text: &str) -> anyhow::Result<Line> {
    let mut json = serde_json::Deserializer::from_str(text);
    let line = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let field = error.path().to_string();
        complaint(&field, error.inner())
    })?;
    json.end().map_err(|error| complaint(".", &error))?;
    Ok(line)
}

/// Serde's words with the field in front of them, and without a line number: a line of input is one line of JSON.
fn complaint(field: &str, error: &serde_json::Error) -> anyhow::Error {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let reason = text.strip_suffix(&place).unwrap_or(&text);
    let column = error.column();
    if field == "." || reason.contains(&format!("`{field}`")) {
        anyhow!("{reason} (column {column})")
    } else {
        anyhow!("{field}: {reason} (column {column})")
    }
}

/// The message of a line, whose topic may be left to the table map.
pub(super) fn parse(text: &str, map: Option<&TableMap>) -> anyhow::Result<Message> {
    let line = read(text)?;
    let payload = match (&line.payload, &line.payload_base64) {
        (Some(value), None) => Payload::from_json(value)?,
        (None, Some(base64)) => Payload::from_bytes(
            STANDARD
                .decode(base64)
                .map_err(|error| anyhow!("payload_base64 is not base64: {error}"))?,
        ),
        (None, None) => anyhow::bail!("payload is missing; give payload or payload_base64"),
        (Some(_), Some(_)) => anyhow::bail!("payload is given twice; give payload or payload_base64"),
    };
    let mut message = payload.into_message(line.topic.clone().unwrap_or_default(), line.content_type);
    message.id = line.id.unwrap_or(message.id);
    message.namespace = line.namespace.map(Into::into);
    message.ordering_key = line.ordering_key.map(Into::into);
    message.tenant = line.tenant.map(Into::into);
    message.dedupe_key = line.dedupe_key.map(Into::into);
    message.event_type = line.event_type.map(Into::into);
    message.source = line.source.map(Into::into);
    message.aggregate_type = line.aggregate_type.map(Into::into);
    message.aggregate_id = line.aggregate_id.map(Into::into);
    message.headers = line.headers;
    message.not_before = line.not_before;
    if line.topic.is_none() {
        message.topic = topic::derived(&message, map)
            .map_err(|reason| anyhow!("topic: {reason}"))?
            .into();
    }
    Ok(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_fields_of_a_message() {
        let line = r#"{"topic": "orders", "key": "42", "type": "acme.orders.created.v1", "payload": {"n": 1},
            "headers": {"a": "b"}, "aggregate_type": "Order", "aggregate_id": "42", "not_before": "2030-01-01T00:00:00Z"}"#;
        let message = parse(line, None).unwrap();
        let expected = Message::new("orders", r#"{"n": 1}"#)
            .key("42")
            .event_type("acme.orders.created.v1")
            .header("a", "b")
            .aggregate("Order", "42")
            .not_before("2030-01-01T00:00:00Z".parse().unwrap());
        assert_eq!(
            Message {
                id: expected.id,
                ..message
            },
            expected
        );
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said() {
        for (line, complaint) in [
            ("{", "EOF"),
            (r#"{"payload": 1}"#, "topic: is missing"),
            (r#"{"topic": "a"}"#, "payload is missing"),
            (
                r#"{"topic": "a", "payload": 1, "payload_base64": "YQ=="}"#,
                "given twice",
            ),
            (r#"{"topic": "a", "payload_base64": "%"}"#, "not base64"),
            (r#"{"topic": "a", "payload": 1, "topik": "b"}"#, "unknown field `topik`"),
            (
                r#"{"topic": "a", "payload": 1, "key": 1}"#,
                "key: invalid type: integer `1`, expected a string (column 3",
            ),
            (
                r#"{"topic": "a", "payload": 1, "headers": {"h": 2}}"#,
                "headers.h: invalid type",
            ),
            (r#"{"topic": "a", "payload": 1} x"#, "trailing characters (column 30)"),
        ] {
            let error = parse(line, None).unwrap_err().to_string();
            assert!(error.contains(complaint), "{line}: {error}");
        }
        assert_eq!(
            parse(r#"{"topic": "a", "payload": null}"#, None).unwrap().payload,
            "null"
        );
    }
}
