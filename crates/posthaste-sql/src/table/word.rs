//! A table's words for the states.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// A word for a state, as the column keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum StateLabel {
    /// True or false.
    Boolean(bool),
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

impl<'de> Deserialize<'de> for StateLabel {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Reader;
        impl Visitor<'_> for Reader {
            type Value = StateLabel;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a word: a text, a whole number, true or false")
            }

            fn visit_bool<E: Error>(self, word: bool) -> Result<StateLabel, E> {
                Ok(StateLabel::Boolean(word))
            }

            fn visit_i64<E: Error>(self, word: i64) -> Result<StateLabel, E> {
                Ok(StateLabel::Number(word))
            }

            fn visit_u64<E: Error>(self, word: u64) -> Result<StateLabel, E> {
                i64::try_from(word).map(StateLabel::Number).map_err(E::custom)
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<StateLabel, E> {
                Ok(StateLabel::Text(word.to_owned()))
            }
        }
        input.deserialize_any(Reader)
    }
}

impl StateLabel {
    /// Whether a column that was read as text holds this word.
    pub(super) fn is(&self, text: &str) -> bool {
        match self {
            Self::Boolean(true) => matches!(text, "true" | "t" | "1"),
            Self::Boolean(false) => matches!(text, "false" | "f" | "0"),
            Self::Number(number) => text.parse() == Ok(*number),
            Self::Text(word) => word == text,
        }
    }
}

impl fmt::Display for StateLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean(word) => word.fmt(f),
            Self::Number(word) => word.fmt(f),
            Self::Text(word) => word.fmt(f),
        }
    }
}
