//! Names in a database.

use std::fmt;

use thiserror::Error;

/// A name in a database, safe to put between quotes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identifier(String);

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{name}` cannot be used as a name in a database: {reason}")]
pub struct BadIdentifier {
    name: String,
    reason: &'static str,
}

/// Longest identifier. PostgreSQL cuts longer ones off silently.
const MAX_IDENTIFIER_BYTES: usize = 63;

impl Identifier {
    /// Accepts a name that a database can have.
    pub fn new(name: impl Into<String>) -> Result<Self, BadIdentifier> {
        let name = name.into();
        let reason = match name.as_str() {
            "" => "it is empty",
            name if name.len() > MAX_IDENTIFIER_BYTES => "it is longer than 63 bytes",
            name if name.contains(|c: char| c.is_control()) => "it contains a control character",
            _ => return Ok(Self(name)),
        };
        Err(BadIdentifier { name, reason })
    }

    /// The name without quotes.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name with more behind it, in quotes.
    pub(crate) fn quoted_with(&self, suffix: &str, quote: char) -> String {
        Self(format!("{}{suffix}", self.0)).quoted(quote)
    }

    /// The name in quotes, with quotes inside it doubled.
    pub fn quoted(&self, quote: char) -> String {
        let doubled = self.0.replace(quote, &format!("{quote}{quote}"));
        format!("{quote}{doubled}{quote}")
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A table, or another object that lives in a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableName {
    /// The schema, where the database has them and one was chosen.
    pub schema: Option<Identifier>,
    /// The table.
    pub name: Identifier,
}

impl TableName {
    /// The name in quotes, with its schema.
    pub fn quoted(&self, quote: char) -> String {
        let schema = self.schema.as_ref().map(|schema| schema.quoted(quote) + ".");
        schema.unwrap_or_default() + &self.name.quoted(quote)
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(schema) = &self.schema {
            write!(f, "{schema}.")?;
        }
        self.name.fmt(f)
    }
}
