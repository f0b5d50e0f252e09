//! Content hashes: what was stored is what is sent.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::message::Message;

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

    /// The recipe of Posthaste's own tables: `id|event type|payload`.
    pub fn of_message(message: &Message) -> Self {
        let id = message.id.to_string();
        let event_type = message.event_type.as_deref().unwrap_or_default();
        Self::of(&[id.as_bytes(), event_type.as_bytes(), &message.payload])
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
    fn a_changed_byte_changes_the_hash() {
        let message = Message::new("t", r#"{"a":1}"#);
        let spaced = Message {
            payload: r#"{"a": 1}"#.into(),
            ..message.clone()
        };
        assert_ne!(ContentHash::of_message(&message), ContentHash::of_message(&spaced));
    }
}
