//! A table's words for the states.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A word for a state, as the column keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Word {
    /// True or false.
    Boolean(bool),
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

impl Word {
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

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean(word) => word.fmt(f),
            Self::Number(word) => word.fmt(f),
            Self::Text(word) => word.fmt(f),
        }
    }
}
