//! Content hashes: what was stored is what is sent.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::message::{Message, Text};

/// SHA-256 over a message's stored bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ContentHash([u8; 32]);

impl ContentHash {
    /// The hash of `parts` joined by `|`.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for (place, part) in parts.iter().enumerate() {
            if place > 0 {
                hasher.update(b"|");
            }
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    /// The hash by the recipe of Posthaste's own tables.
    pub fn of_message(message: &Message) -> Self {
        HashRecipe::default().hash(message)
    }

    /// The hash as bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl TryFrom<&[u8]> for ContentHash {
    type Error = std::array::TryFromSliceError;

    fn try_from(bytes: &[u8]) -> Result<Self, Self::Error> {
        bytes.try_into().map(Self)
    }
}

impl FromStr for ContentHash {
    type Err = ();

    /// Reads 64 hexadecimal digits of either case.
    fn from_str(hex: &str) -> Result<Self, ()> {
        let digit = |c: char| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let digits: Vec<u8> = hex.chars().map_while(digit).collect();
        if digits.len() != 64 || hex.len() != 64 {
            return Err(());
        }
        Ok(Self(std::array::from_fn(|place| {
            digits[2 * place] << 4 | digits[2 * place + 1]
        })))
    }
}

/// A part of a message that a hash is made over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HashPart {
    /// The row's id.
    Id,
    /// What the event is published under.
    EventId,
    /// The type name.
    EventType,
    /// The topic.
    Topic,
    /// The ordering key.
    OrderingKey,
    /// Kind of thing the event is about.
    AggregateType,
    /// Which one of them.
    AggregateId,
    /// The bytes.
    Payload,
}

/// What a table's hashes are made over: the parts, joined by `|`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashRecipe(pub Vec<HashPart>);

/// The recipe of Posthaste's own tables: `id|event type|payload`.
impl Default for HashRecipe {
    fn default() -> Self {
        Self(vec![HashPart::Id, HashPart::EventType, HashPart::Payload])
    }
}

impl HashRecipe {
    /// The hash of a message.
    pub fn hash(&self, message: &Message) -> ContentHash {
        let (id, event_id) = (message.id.to_string(), message.effective_event_id());
        let parts: Vec<&[u8]> = self
            .0
            .iter()
            .map(|part| match part {
                HashPart::Id => id.as_bytes(),
                HashPart::EventId => event_id.as_bytes(),
                HashPart::EventType => bytes(message.event_type.as_ref()),
                HashPart::Topic => message.topic.as_bytes(),
                HashPart::OrderingKey => bytes(message.ordering_key.as_ref()),
                HashPart::AggregateType => bytes(message.aggregate_type.as_ref()),
                HashPart::AggregateId => bytes(message.aggregate_id.as_ref()),
                HashPart::Payload => &message.payload,
            })
            .collect();
        ContentHash::of(&parts)
    }
}

fn bytes(text: Option<&Text>) -> &[u8] {
    text.map_or(&[], |text| text.as_bytes())
}

/// The hash that was stored with a row, and how it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredHash {
    /// The hash, unless what is stored is none.
    pub expected: Option<ContentHash>,
    /// What it was made over.
    pub recipe: Arc<HashRecipe>,
}

impl StoredHash {
    /// A hash by the recipe of Posthaste's own tables.
    pub fn native(expected: Option<ContentHash>) -> Self {
        Self {
            expected,
            recipe: Arc::default(),
        }
    }

    /// Whether the message is the one that was enqueued, or else what is wrong.
    pub fn verify(&self, message: &Message) -> Result<(), String> {
        let found = self.recipe.hash(message);
        match self.expected {
            Some(expected) if expected == found => Ok(()),
            Some(expected) => Err(format!(
                "the stored bytes do not match their hash: expected {expected}, found {found}"
            )),
            None => Err("the stored hash is not a SHA-256".to_owned()),
        }
    }
}

impl fmt::Display for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves D3.
    #[test]
    fn the_hash_is_sha_256_over_the_parts_joined_by_bars() {
        // printf 'r-1|DONATION_COMPLETED|{"a":1}' | sha256sum
        let hash = ContentHash::of(&[b"r-1", b"DONATION_COMPLETED", br#"{"a":1}"#]);
        assert_eq!(
            hash.to_string(),
            "abe2481dfd34beaace01dde0df5999a200ccfbb17a135e4400f3b8a76d07dddb"
        );
    }

    #[test]
    fn a_hash_is_read_from_its_digits_alone() {
        let hash = ContentHash::of(&[b"x"]);
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(hash.to_string().to_uppercase().parse(), Ok(hash));
        for bad in ["", "00", &"g".repeat(64), &"0".repeat(65), &"é".repeat(32)] {
            assert_eq!(bad.parse::<ContentHash>(), Err(()), "{bad}");
        }
    }

    #[test]
    fn a_changed_byte_changes_the_hash() {
        let message = Message::new("t", r#"{"a":1}"#);
        let spaced = Message {
            payload: r#"{"a": 1}"#.into(),
            ..message.clone()
        };
        assert_ne!(ContentHash::of_message(&message), ContentHash::of_message(&spaced));
    }
}
