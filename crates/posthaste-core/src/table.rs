//! Table maps: which tables and columns play which role, and which words the states have.
//!
//! Stores take every name from a map. Posthaste's own schema is the map that ships as default; a table that somebody
//! already has is another map, and may lack a role: statements mark the parts that need it (see [`crate::template`]).

use std::collections::BTreeMap;
use std::fmt;

use thiserror::Error;

use crate::lifecycle::State;

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

/// What a column of the outbox table may be for, by the name that statements use. Posthaste's own table has a column of
/// the same name for each.
pub const ROLES: [&str; 25] = [
    "id",
    "seq",
    "namespace",
    "topic",
    "ordering_key",
    "tenant",
    "dedupe_key",
    "event_type",
    "source",
    "aggregate_type",
    "aggregate_id",
    "content_type",
    "payload",
    "headers",
    "content_hash",
    "status",
    "attempts",
    "next_attempt_at",
    "locked_by",
    "lease_token",
    "locked_until",
    "last_error",
    "created_at",
    "updated_at",
    "delivered_at",
];

/// The description of one outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMap {
    schema: Option<Identifier>,
    tables: BTreeMap<&'static str, TableName>,
    columns: BTreeMap<&'static str, Identifier>,
    words: BTreeMap<&'static str, String>,
}

impl TableMap {
    /// Posthaste's own tables in a schema of their own: `outbox`, `outbox_dedupe`, `inbox` and so on.
    pub fn in_schema(schema: &str) -> Result<Self, BadIdentifier> {
        Self::own(Some(Identifier::new(schema)?), "")
    }

    /// Posthaste's own tables with a prefix, for databases without schemas: `posthaste_outbox` and so on.
    pub fn with_prefix(prefix: &str) -> Result<Self, BadIdentifier> {
        Self::own(None, prefix)
    }

    fn own(schema: Option<Identifier>, prefix: &str) -> Result<Self, BadIdentifier> {
        let mut tables = BTreeMap::new();
        for (role, name) in [
            ("outbox", "outbox"),
            ("dedupe", "outbox_dedupe"),
            ("inbox", "inbox"),
            ("relays", "relays"),
            ("leaders", "leaders"),
            ("migrations", "schema_version"),
        ] {
            let name = Identifier::new(format!("{prefix}{name}"))?;
            tables.insert(
                role,
                TableName {
                    schema: schema.clone(),
                    name,
                },
            );
        }
        let column = |role: &'static str| Ok((role, Identifier::new(role)?));
        Ok(Self {
            schema,
            tables,
            columns: ROLES.into_iter().map(column).collect::<Result<_, _>>()?,
            words: State::ALL
                .into_iter()
                .map(|state| (state.word(), state.word().to_owned()))
                .collect(),
        })
    }

    /// The same map for a table that has no column for `role`.
    #[must_use]
    pub fn without(mut self, role: &str) -> Self {
        self.columns.remove(role);
        self
    }

    /// The schema, if one was chosen.
    pub fn schema(&self) -> Option<&Identifier> {
        self.schema.as_ref()
    }

    /// The table for a purpose, by its name in statements.
    pub fn table(&self, purpose: &str) -> Option<&TableName> {
        self.tables.get(purpose)
    }

    /// The column of a role, by its name in statements, if the table has one.
    pub fn column(&self, role: &str) -> Option<&Identifier> {
        self.columns.get(role)
    }

    /// The table's word for a state, by its name in statements.
    pub fn word(&self, state: &str) -> Option<&str> {
        self.words.get(state).map(String::as_str)
    }

    /// The state that the table has this word for.
    pub fn state(&self, word: &str) -> Option<State> {
        State::ALL
            .into_iter()
            .find(|state| self.words.get(state.word()).is_some_and(|w| w == word))
    }
}
