//! A table's labels for the states.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// A label for a state, as the column keeps it.
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
                f.write_str("a label: a text, a whole number, true or false")
            }

            fn visit_bool<E: Error>(self, label: bool) -> Result<StateLabel, E> {
                Ok(StateLabel::Boolean(label))
            }

            fn visit_i64<E: Error>(self, label: i64) -> Result<StateLabel, E> {
                Ok(StateLabel::Number(label))
            }

            fn visit_u64<E: Error>(self, label: u64) -> Result<StateLabel, E> {
                i64::try_from(label).map(StateLabel::Number).map_err(E::custom)
            }

            fn visit_str<E: Error>(self, label: &str) -> Result<StateLabel, E> {
                Ok(StateLabel::Text(label.to_owned()))
            }
        }
        input.deserialize_any(Reader)
    }
}

impl StateLabel {
    /// Whether a column that was read as text holds this label.
    pub(super) fn is(&self, text: &str) -> bool {
        match self {
            Self::Boolean(true) => matches!(text, "true" | "t" | "1"),
            Self::Boolean(false) => matches!(text, "false" | "f" | "0"),
            Self::Number(number) => text.parse() == Ok(*number),
            Self::Text(label) => label == text,
        }
    }
}

impl fmt::Display for StateLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean(label) => label.fmt(f),
            Self::Number(label) => label.fmt(f),
            Self::Text(label) => label.fmt(f),
        }
    }
}
