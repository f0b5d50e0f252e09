//! What a message must be before any SQL runs, so that a refusal leaves the caller's transaction usable.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::envelope;
use crate::message::Message;
use crate::type_name::{MalformedTypeName, TypeName};

/// Longest topic, namespace, key or other name, in bytes. Below the 2,704 bytes that an index entry may have in the
/// strictest of the databases, since several of them share one index.
pub const MAX_NAME_BYTES: usize = 512;

/// Sizes above which a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of one payload. Brokers have a limit of their own (Kafka's default is 1 MB). Defaults to 1 MiB.
    pub payload_bytes: usize,
    /// Bytes of all header names and values together. Defaults to 16 KiB.
    pub header_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_bytes: 1 << 20,
            header_bytes: 16 << 10,
        }
    }
}

impl Limits {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets [`Limits::payload_bytes`].
    #[must_use]
    pub fn payload_bytes(mut self, bytes: usize) -> Self {
        self.payload_bytes = bytes;
        self
    }

    /// Sets [`Limits::header_bytes`].
    #[must_use]
    pub fn header_bytes(mut self, bytes: usize) -> Self {
        self.header_bytes = bytes;
        self
    }
}

/// Which type names are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TypeNameRule {
    /// Only `{company}.{domain}.{action}.v{n}`.
    #[default]
    Strict,
    /// Any non-empty name, for producers with a convention of their own.
    Any,
}

/// A message that was refused, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidMessage {
    /// A field that must have a value has none.
    #[error("{field} is empty; give it a value or leave it out")]
    Empty {
        /// The message's field.
        field: &'static str,
    },
    /// A field is too long.
    #[error("{field} has {actual} bytes and may have {limit}; shorten it{}", raise_limit(field))]
    TooLong {
        /// The message's field.
        field: &'static str,
        /// Its size.
        actual: usize,
        /// The largest size allowed.
        limit: usize,
    },
    /// NUL bytes cannot be stored as text.
    #[error("{field} contains a NUL character, which databases cannot store as text; remove it")]
    Nul {
        /// The message's field.
        field: &'static str,
    },
    /// Producers name events by UUID; tables that count give their rows other ids themselves.
    #[error("id `{id}` is not a UUID; leave it out to have one made")]
    NotUuid {
        /// The id that was given.
        id: String,
    },
    /// The dedupe key does not belong to the tenant.
    #[error("dedupe_key `{dedupe_key}` does not begin with `{tenant}/`; prefix it with the message's tenant")]
    ForeignDedupeKey {
        /// The message's tenant.
        tenant: String,
        /// The key that was given.
        dedupe_key: String,
    },
    /// The event type breaks the naming rule.
    #[error("event_type: {0}")]
    TypeName(#[from] MalformedTypeName),
    /// The table has no place for it.
    #[error("{field}: {reason}")]
    Table {
        /// The message's field.
        field: &'static str,
        /// What is wrong, and the remedy.
        reason: String,
    },
    /// A header cannot be carried.
    #[error("header `{name}` {reason}")]
    Header {
        /// The header's name.
        name: String,
        /// What is wrong, and the remedy.
        reason: &'static str,
    },
}

/// The limits of names are those of database indexes, and cannot be raised.
fn raise_limit(field: &str) -> &'static str {
    match field {
        "payload" => " or raise limits.payload_bytes",
        "headers" => " or raise limits.header_bytes",
        _ => "",
    }
}

/// Checks everything about one message that can be known without a database.
///
/// # Errors
/// The first rule that it breaks, which names the field and says what to do.
pub fn validate(message: &Message, limits: &Limits, types: TypeNameRule) -> Result<(), InvalidMessage> {
    if message.id.uuid().is_none() {
        return Err(InvalidMessage::NotUuid {
            id: message.id.to_string(),
        });
    }
    name("topic", &message.topic)?;
    name("content_type", &message.content_type)?;
    for (field, value) in [
        ("namespace", &message.namespace),
        ("ordering_key", &message.ordering_key),
        ("tenant", &message.tenant),
        ("dedupe_key", &message.dedupe_key),
        ("event_type", &message.event_type),
        ("source", &message.source),
        ("aggregate_type", &message.aggregate_type),
        ("aggregate_id", &message.aggregate_id),
    ] {
        if let Some(value) = value {
            name(field, value)?;
        }
    }
    at_most("payload", message.payload.len(), limits.payload_bytes)?;
    headers(message, limits)?;
    tenant_owns_dedupe_key(message)?;
    if let (Some(event_type), TypeNameRule::Strict) = (&message.event_type, types) {
        TypeName::parse(event_type)?;
    }
    Ok(())
}

fn name(field: &'static str, value: &str) -> Result<(), InvalidMessage> {
    if value.trim().is_empty() {
        return Err(InvalidMessage::Empty { field });
    }
    if value.contains('\0') {
        return Err(InvalidMessage::Nul { field });
    }
    at_most(field, value.len(), MAX_NAME_BYTES)
}

fn at_most(field: &'static str, actual: usize, limit: usize) -> Result<(), InvalidMessage> {
    if actual > limit {
        Err(InvalidMessage::TooLong { field, actual, limit })
    } else {
        Ok(())
    }
}

fn headers(message: &Message, limits: &Limits) -> Result<(), InvalidMessage> {
    let bytes = message
        .headers
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    at_most("headers", bytes, limits.header_bytes)?;
    let mut attributes = std::collections::BTreeSet::new();
    for (name, value) in &message.headers {
        let refuse = |reason| {
            Err(InvalidMessage::Header {
                name: name.clone(),
                reason,
            })
        };
        if value.contains(|c: char| c.is_ascii_control() && c != '\t') {
            return refuse("has a value with a line break or another control character; remove it");
        }
        let Some(attribute) = envelope::attribute_name(name) else {
            return refuse(
                "has a name that cannot be carried; use letters, digits, `-`, `_` and `.`, with at least one letter or digit",
            );
        };
        if envelope::is_reserved(&attribute) {
            return refuse("has the name of an envelope attribute; set the message's own field or rename it");
        }
        if !attributes.insert(attribute) {
            return refuse("differs from another header only in case or punctuation; rename one of them");
        }
    }
    Ok(())
}

fn tenant_owns_dedupe_key(message: &Message) -> Result<(), InvalidMessage> {
    match (&message.tenant, &message.dedupe_key) {
        (Some(tenant), Some(key))
            if !key
                .strip_prefix(tenant.as_str())
                .is_some_and(|rest| rest.starts_with('/')) =>
        {
            Err(InvalidMessage::ForeignDedupeKey {
                tenant: tenant.to_string(),
                dedupe_key: key.to_string(),
            })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(message: impl std::borrow::Borrow<Message>) -> String {
        validate(message.borrow(), &Limits::default(), TypeNameRule::Strict)
            .expect_err("must be refused")
            .to_string()
    }

    fn plain() -> Message {
        Message::new("t", "x")
    }

    /// Proves B5.
    #[test]
    fn a_dedupe_key_must_belong_to_its_tenant() {
        assert!(refused(plain().tenant("t1").dedupe_key("t2/a")).contains("`t1/`"));
        assert!(refused(plain().tenant("t1").dedupe_key("t1")).contains("t1"));
        assert!(refused(plain().tenant("t1").dedupe_key("t1x/a")).contains("t1"));
        let fine = plain().tenant("t1").dedupe_key("t1/a");
        assert_eq!(validate(&fine, &Limits::default(), TypeNameRule::Strict), Ok(()));
    }

    #[test]
    fn each_refusal_names_its_field() {
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        assert!(refused(Message::new("", "x")).starts_with("topic is empty"));
        assert!(refused(Message::new(long.as_str(), "x")).starts_with("topic has 513 bytes"));
        assert!(refused(plain().key("")).starts_with("ordering_key is empty"));
        assert!(refused(plain().key(long.as_str())).starts_with("ordering_key has"));
        assert!(refused(plain().dedupe_key(" ")).starts_with("dedupe_key is empty"));
        assert!(refused(plain().key("a\0b")).contains("NUL"));
        assert!(refused(Message::new("t", vec![0; (1 << 20) + 1])).starts_with("payload has 1048577 bytes"));
        assert!(refused(plain().header("a", "v".repeat(20_000))).starts_with("headers has"));
        assert!(refused(plain().header("é", "v")).contains("header `é`"));
        assert!(refused(plain().header("id", "v")).contains("envelope attribute"));
        assert!(refused(plain().header("X-Req", "1").header("xreq", "2")).contains("differs"));
        assert!(refused(plain().header("a", "1\r\n2")).contains("line break"));
        assert!(refused(plain().header("a", "\x1b[2J")).contains("control character"));
        assert!(refused(plain().event_type("OrderCreated")).starts_with("event_type: `OrderCreated`"));
        let own = plain().event_type("OrderCreated");
        assert_eq!(validate(&own, &Limits::default(), TypeNameRule::Any), Ok(()));
    }
}
