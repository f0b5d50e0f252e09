//! The identity of a row.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;
use uuid::Uuid;

use super::id_text::IdText;

/// The identity of one row of an outbox, whatever the table's primary key is.
///
/// Posthaste makes `UUIDv7`: they sort roughly by time, which keeps primary-key indexes dense. They carry no
/// promise of order; the table's own order does. Existing tables may count, or have texts of any length.
///
/// There is no `Default`: an id that could not be read must never be replaced by one that no row has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MessageId {
    /// A UUID.
    Uuid(Uuid),
    /// A number that the database gave.
    Number(i64),
    /// Any other text.
    Text(IdText),
}

impl MessageId {
    /// A new id that no other message has.
    #[expect(
        clippy::new_without_default,
        reason = "an id is made on purpose, never because one is missing"
    )]
    pub fn new() -> Self {
        Self::Uuid(Uuid::now_v7())
    }

    /// The id of a row whose key is this text, also if it looks like a number or a UUID.
    pub fn text(text: &str) -> Self {
        Self::Text(IdText::new(text))
    }

    /// The id as a UUID, if it is one.
    pub fn uuid(self) -> Option<Uuid> {
        match self {
            Self::Uuid(id) => Some(id),
            Self::Number(_) | Self::Text(_) => None,
        }
    }

    /// The id as a number, if it is one.
    pub fn number(self) -> Option<i64> {
        match self {
            Self::Number(id) => Some(id),
            Self::Uuid(_) | Self::Text(_) => None,
        }
    }

    /// A text for what it looks like: a UUID, a number, or else a text. As a table gave it, so it may be empty.
    pub fn guess(text: &str) -> Self {
        if let Ok(id) = text.parse::<Uuid>() {
            return Self::Uuid(id);
        }
        match text.parse::<i64>() {
            Ok(number) if number.to_string() == text => Self::Number(number),
            _ => Self::text(text),
        }
    }
}

impl From<Uuid> for MessageId {
    fn from(id: Uuid) -> Self {
        Self::Uuid(id)
    }
}

impl From<i64> for MessageId {
    fn from(id: i64) -> Self {
        Self::Number(id)
    }
}

/// Takes a text for what it looks like: a UUID, a number, or else a text.
impl FromStr for MessageId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        if text.is_empty() {
            return Err(BadId);
        }
        Ok(Self::guess(text))
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(id) => id.fmt(f),
            Self::Number(id) => id.fmt(f),
            Self::Text(id) => f.write_str(id.as_str()),
        }
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for MessageId {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MessageId {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let text = String::deserialize(input)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A text that cannot be an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("an id has at least one character")]
pub struct BadId;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_id_is_taken_for_what_it_looks_like() {
        assert!(matches!("42".parse(), Ok(MessageId::Number(42))));
        assert!(matches!("-7".parse(), Ok(MessageId::Number(-7))));
        assert!(matches!("042".parse(), Ok(MessageId::Text(_))));
        assert!(matches!("01ARZ3NDEKTSV4RRFFQ69G5FAV".parse(), Ok(MessageId::Text(_))));
        assert!(
            MessageId::new()
                .to_string()
                .parse::<MessageId>()
                .is_ok_and(|id| id.uuid().is_some())
        );
        assert_eq!("".parse::<MessageId>(), Err(BadId));
    }

    proptest! {
        #[test]
        fn every_id_survives_being_written_and_read(text in "\\PC{1,200}", number: i64, uuid: u128) {
            for id in [text.parse().unwrap(), MessageId::Number(number), MessageId::Uuid(Uuid::from_u128(uuid))] {
                prop_assert_eq!(id.to_string().parse::<MessageId>().unwrap(), id);
            }
        }
    }
}
