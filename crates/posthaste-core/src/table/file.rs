//! Table maps as people write them.
//!
//! ```toml
//! name = "orders"
//! order = ["created_at", "id"]            # roles, in the order in which rows are delivered
//! topic = { template = "{aggregate_type:lower}-events" }   # or "column", "event_type", { fixed = "orders" }
//!
//! [tables]
//! outbox = "outbox"                        # or { schema = "shop", name = "outbox" }
//!
//! [columns]                                # role = "column", or with its kind
//! id = "id"
//! ordering_key = { column = "aggregate_id", kind = "uuid" }
//! payload = { column = "payload", kind = "text" }
//! status = "status"
//! created_at = { column = "created_at", kind = "timestamp" }
//!
//! [states]                                 # the table's words
//! pending = "NEW"
//! delivered = "SENT"
//! dead = "FAILED"
//!
//! [policy]                                 # the relay's settings that suit this table
//! poll_interval = "5s"
//! ```

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use super::{Column, Counts, Identifier, Kind, Layout, ROLES, TableMap, TableName, TopicRule, Word, find_role};
use crate::integrity::{HashPart, HashRecipe};
use crate::lifecycle::State;

/// A map that cannot be used: which field, what is wrong, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapError {
    /// The field, with dots; empty if the file is not TOML of the right shape.
    pub field: String,
    /// What is wrong, and the remedy.
    pub problem: String,
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_str() {
            "" => write!(f, "table map: {}", self.problem),
            field => write!(f, "table map: {field}: {}", self.problem),
        }
    }
}

impl std::error::Error for MapError {}

fn refuse<T>(field: impl Into<String>, problem: impl Into<String>) -> Result<T, MapError> {
    Err(MapError {
        field: field.into(),
        problem: problem.into(),
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    #[serde(default)]
    #[expect(dead_code, reason = "for readers of the file")]
    about: Option<String>,
    #[serde(default)]
    layout: Layout,
    #[serde(default)]
    ids: Option<String>,
    #[serde(default)]
    zone: Option<String>,
    order: Vec<String>,
    topic: TopicFile,
    tables: BTreeMap<String, TableFile>,
    columns: BTreeMap<String, ColumnFile>,
    #[serde(default)]
    constants: BTreeMap<String, String>,
    #[serde(default)]
    states: BTreeMap<String, Word>,
    #[serde(default)]
    hash: Option<HashFile>,
    #[serde(default)]
    split_index: bool,
    #[serde(default)]
    cursor: SideFile,
    #[serde(default)]
    failed: SideFile,
    #[serde(default)]
    handled: SideFile,
    #[serde(default)]
    dead_letter: SideFile,
    #[serde(default)]
    policy: serde_json::Map<String, serde_json::Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum TopicFile {
    Word(String),
    Rule(TopicRule),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum TableFile {
    Name(String),
    InSchema { schema: String, name: String },
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ColumnFile {
    Name(String),
    Column(ColumnSettings),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnSettings {
    column: String,
    kind: Option<Kind>,
    max: Option<usize>,
    #[serde(default)]
    generated: bool,
    counts: Option<Counts>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SideFile {
    #[serde(default)]
    columns: BTreeMap<String, ColumnFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HashFile {
    parts: Vec<HashPart>,
}

/// Tables that a map may name, and the roles that each beside the outbox may have.
const SIDE_TABLES: [(&str, &[&str]); 4] = [
    ("cursor", &["id", "position", "created_at"]),
    (
        "failed",
        &[
            "id",
            "event_id",
            "event_type",
            "source",
            "aggregate_type",
            "aggregate_id",
            "ordering_key",
            "tenant",
            "headers",
            "payload",
            "attempts",
            "last_error",
            "created_at",
            "next_attempt_at",
            "log_id",
        ],
    ),
    (
        "handled",
        &["id", "aggregate_type", "aggregate_id", "action", "created_at"],
    ),
    (
        "dead_letter",
        &[
            "id",
            "event_id",
            "topic",
            "ordering_key",
            "tenant",
            "event_type",
            "source",
            "aggregate_type",
            "aggregate_id",
            "payload",
            "headers",
            "content_hash",
            "attempts",
            "last_error",
            "created_at",
        ],
    ),
];

/// Roles that may have one value for all rows.
const CONSTANTS: [&str; 5] = ["namespace", "source", "content_type", "event_type", "aggregate_type"];

impl TableMap {
    /// Reads a map, or says which field is wrong and why.
    pub fn from_toml(text: &str) -> Result<Self, MapError> {
        let file: File = toml::from_str(text).map_err(|error| MapError {
            field: String::new(),
            problem: error.to_string().trim_end().to_owned(),
        })?;
        file.into_map()
    }
}

impl File {
    fn into_map(self) -> Result<TableMap, MapError> {
        let mut counts = Counts::default();
        let mut columns = BTreeMap::new();
        for (name, given) in self.columns {
            let field = format!("columns.{name}");
            let Some(role) = find_role(&name) else {
                let known: Vec<_> = ROLES.iter().map(|role| role.name).collect();
                return refuse(
                    field,
                    format!("there is no such role; the roles are {}", known.join(", ")),
                );
            };
            if let ColumnFile::Column(ColumnSettings {
                counts: Some(given), ..
            }) = &given
            {
                if name != "attempts" {
                    return refuse(format!("{field}.counts"), "only the role attempts counts; leave it out");
                }
                counts = *given;
            }
            let column = given.into_column(&field, role.kind)?;
            if column.kind != role.kind && !role.others.contains(&column.kind) {
                let mut kinds = vec![role.kind.word()];
                kinds.extend(role.others.iter().map(|kind| kind.word()));
                let problem = format!(
                    "`{}` does not suit this role; use {}",
                    column.kind.word(),
                    kinds.join(", ")
                );
                return refuse(format!("{field}.kind"), problem);
            }
            columns.insert(role.name, column);
        }
        // Without a column of its own the proof of a claim is kept where the table says who has it.
        if !columns.contains_key("lease_token")
            && let Some(locked_by) = columns.remove("locked_by")
        {
            columns.insert("lease_token", locked_by);
        }
        let mut map = TableMap {
            name: self.name,
            layout: self.layout,
            schema: None,
            tables: tables(self.tables)?,
            columns,
            side_columns: BTreeMap::new(),
            words: words(self.states)?,
            order: order(&self.order)?,
            topic: topic(self.topic)?,
            constants: self.constants,
            hash: self
                .hash
                .map_or_else(HashRecipe::default, |hash| HashRecipe(hash.parts)),
            counts,
            split_index: self.split_index,
            trusted_ids: trusted_ids(self.ids.as_deref(), self.layout)?,
            zone: zone(self.zone)?,
            policy: self.policy,
        };
        let sides = [
            ("cursor", self.cursor),
            ("failed", self.failed),
            ("handled", self.handled),
            ("dead_letter", self.dead_letter),
        ];
        for (purpose, side) in sides {
            map.add_side(purpose, side)?;
        }
        map.check_constants()?;
        map.check_roles()?;
        Ok(map)
    }
}

impl ColumnFile {
    fn into_column(self, field: &str, default: Kind) -> Result<Column, MapError> {
        let settings = match self {
            Self::Name(column) => ColumnSettings {
                column,
                kind: None,
                max: None,
                generated: false,
                counts: None,
            },
            Self::Column(settings) => settings,
        };
        Ok(Column {
            name: identifier(field, settings.column)?,
            kind: settings.kind.unwrap_or(default),
            max: settings.max,
            generated: settings.generated,
        })
    }
}

impl TableMap {
    fn add_side(&mut self, purpose: &str, side: SideFile) -> Result<(), MapError> {
        let allowed = SIDE_TABLES
            .iter()
            .find(|(name, _)| *name == purpose)
            .map_or(&[][..], |(_, roles)| roles);
        if !side.columns.is_empty() && !self.tables.contains_key(purpose) {
            return refuse(
                format!("tables.{purpose}"),
                format!("[{purpose}.columns] needs this table's name"),
            );
        }
        if side.columns.is_empty() && self.tables.contains_key(purpose) {
            return refuse(
                format!("{purpose}.columns"),
                format!("say which columns the table {purpose} has"),
            );
        }
        for (role, given) in side.columns {
            let field = format!("{purpose}.columns.{role}");
            if !allowed.contains(&role.as_str()) {
                return refuse(
                    field,
                    format!("there is no such role; the roles are {}", allowed.join(", ")),
                );
            }
            let default = match role.as_str() {
                "id" | "position" | "log_id" => Kind::Integer,
                _ => find_role(&role).map_or(Kind::Text, |role| role.kind),
            };
            let column = given.into_column(&field, default)?;
            self.side_columns.insert((purpose.to_owned(), role), column);
        }
        Ok(())
    }

    fn check_constants(&self) -> Result<(), MapError> {
        for role in self.constants.keys() {
            let field = format!("constants.{role}");
            if !CONSTANTS.contains(&role.as_str()) {
                return refuse(
                    field,
                    format!("only these may be the same for all rows: {}", CONSTANTS.join(", ")),
                );
            }
            if self.has(role) {
                return refuse(field, "the role has a column too; choose one of them");
            }
        }
        Ok(())
    }

    /// Whether the roles that are there make a table that can be served.
    fn check_roles(&self) -> Result<(), MapError> {
        let needed: &[&str] = match self.layout {
            Layout::Queue => &["id", "payload", "status"],
            Layout::Log => &["id", "payload"],
        };
        for role in needed {
            if !self.columns.contains_key(role) {
                return refuse(format!("columns.{role}"), "every map needs this role; name its column");
            }
        }
        if !self.tables.contains_key("outbox") {
            return refuse("tables.outbox", "name the outbox table");
        }
        for role in &self.order {
            if !self.columns.contains_key(role) {
                return refuse(
                    "order",
                    format!("there is no column for `{role}`; name it under [columns]"),
                );
            }
        }
        if self.topic == TopicRule::Column && !self.columns.contains_key("topic") {
            return refuse(
                "topic",
                "there is no column for it; name it under [columns], or choose another rule",
            );
        }
        if self.columns.contains_key("content_hash") && self.column("payload").is_some_and(|p| p.kind == Kind::Jsonb) {
            return refuse(
                "columns.content_hash",
                "a jsonb payload is rewritten by the database, so a hash that was made before it was stored cannot match; \
                 keep the payload as json, text or bytes",
            );
        }
        match self.layout {
            Layout::Queue => self.check_queue(),
            Layout::Log => self.check_log(),
        }
    }

    fn check_queue(&self) -> Result<(), MapError> {
        let leased = self.has("locked_until") || self.has("locked_at");
        for state in State::ALL {
            let needed = leased || state != State::Processing;
            let field = format!("states.{}", state.word());
            match (self.words.contains_key(state.word()), needed) {
                (false, true) => return refuse(field, "say which word the table has for this state"),
                (true, false) => {
                    return refuse(
                        field,
                        "the table has no column that says until or since when a row is claimed, so no \
                         row is ever in this state; map locked_until or locked_at, or leave it out",
                    );
                }
                _ => {}
            }
        }
        let fenced = self.has("lease_token");
        match (leased, fenced) {
            (true, false) => refuse(
                "columns.lease_token",
                "a table with leases needs a column for the proof of a claim; map lease_token or locked_by",
            ),
            (false, true) => refuse(
                "columns.locked_until",
                "a table that says who has a row must say until or since when; map locked_until or locked_at",
            ),
            (true, true) if !self.has("attempts") => refuse(
                "columns.attempts",
                "a table with leases needs a count of attempts, or a message that kills its relay is tried for ever",
            ),
            _ => Ok(()),
        }
    }

    fn check_log(&self) -> Result<(), MapError> {
        if let Some(state) = self.words.keys().next() {
            return refuse(format!("states.{state}"), "rows of a log have no state; leave it out");
        }
        if self.column("id").is_some_and(|id| id.kind != Kind::Integer) {
            return refuse(
                "columns.id.kind",
                "a cursor needs whole numbers that go up; use integer",
            );
        }
        for (purpose, role) in [
            ("cursor", "position"),
            ("failed", "id"),
            ("failed", "event_id"),
            ("failed", "payload"),
            ("failed", "attempts"),
            ("failed", "next_attempt_at"),
        ] {
            if self.side_column(purpose, role).is_none() {
                return refuse(format!("{purpose}.columns.{role}"), "a log needs this column; name it");
            }
        }
        Ok(())
    }
}

fn identifier(field: &str, name: String) -> Result<Identifier, MapError> {
    Identifier::new(name).or_else(|error| refuse(field, error.to_string()))
}

fn tables(given: BTreeMap<String, TableFile>) -> Result<BTreeMap<String, TableName>, MapError> {
    let mut tables = BTreeMap::new();
    for (purpose, table) in given {
        let field = format!("tables.{purpose}");
        let known = || SIDE_TABLES.iter().map(|(name, _)| *name).chain(["outbox"]);
        if !known().any(|name| name == purpose) {
            let known: Vec<_> = known().collect();
            return refuse(
                field,
                format!("there is no such table; a map may name {}", known.join(", ")),
            );
        }
        let (schema, name) = match table {
            TableFile::Name(name) => (None, name),
            TableFile::InSchema { schema, name } => (Some(identifier(&field, schema)?), name),
        };
        let name = identifier(&field, name)?;
        tables.insert(purpose, TableName { schema, name });
    }
    Ok(tables)
}

fn words(given: BTreeMap<String, Word>) -> Result<BTreeMap<&'static str, Word>, MapError> {
    let mut words: BTreeMap<&'static str, Word> = BTreeMap::new();
    let names = || State::ALL.iter().map(|state| state.word()).chain(["waiting"]);
    for (state, word) in given {
        let field = format!("states.{state}");
        let Some(state) = names().find(|name| *name == state) else {
            let known: Vec<_> = names().collect();
            return refuse(
                field,
                format!("there is no such state; the states are {}", known.join(", ")),
            );
        };
        if matches!(&word, Word::Text(text) if text.contains(|c: char| c.is_control())) {
            return refuse(field, "the word contains a control character");
        }
        if let Some((other, _)) = words.iter().find(|(_, there)| **there == word) {
            return refuse(
                field,
                format!("`{word}` is the word for {other} already; each state needs its own"),
            );
        }
        words.insert(state, word);
    }
    if let Some(pending) = words.get("pending").cloned() {
        words.entry("waiting").or_insert(pending);
    }
    Ok(words)
}

fn order(given: &[String]) -> Result<Vec<&'static str>, MapError> {
    if given.is_empty() {
        return refuse("order", "name at least one role, such as [\"created_at\", \"id\"]");
    }
    given
        .iter()
        .map(|name| match find_role(name) {
            Some(role) => Ok(role.name),
            None => refuse("order", format!("`{name}` is not a role; name roles, not columns")),
        })
        .collect()
}

fn topic(given: TopicFile) -> Result<TopicRule, MapError> {
    let rule = match given {
        TopicFile::Rule(rule) => rule,
        TopicFile::Word(word) => match word.as_str() {
            "column" => TopicRule::Column,
            "event_type" => TopicRule::EventType,
            _ => {
                return refuse(
                    "topic",
                    format!(
                        "`{word}` is not a rule; write \"column\", \"event_type\", \
                     {{ fixed = \"{word}\" }} or {{ template = \"{{aggregate_type}}-events\" }}"
                    ),
                );
            }
        },
    };
    match rule.unknown_name() {
        Some(name) => refuse(
            "topic.template",
            format!(
                "there is no `{name}`; a template may have {}",
                TopicRule::NAMES.join(", ")
            ),
        ),
        None => Ok(rule),
    }
}

/// Whether the map's owner vouches that ids go up and are used in the transaction that took them.
fn trusted_ids(given: Option<&str>, layout: Layout) -> Result<bool, MapError> {
    match given {
        None => Ok(false),
        Some("trusted") if layout == Layout::Log => Ok(true),
        Some("trusted") => refuse("ids", "only a log is read by its ids; leave it out"),
        Some(other) => refuse(
            "ids",
            format!("`{other}` is not a choice; write \"trusted\", or leave it out"),
        ),
    }
}

fn zone(given: Option<String>) -> Result<String, MapError> {
    let zone = given.unwrap_or_else(|| "UTC".to_owned());
    let allowed = |c: char| c.is_ascii_alphanumeric() || "/_+-:".contains(c);
    if zone.is_empty() || zone.len() > 40 || !zone.chars().all(allowed) {
        return refuse(
            "zone",
            format!("`{zone}` is not a time zone; write UTC, +09:00 or Asia/Seoul"),
        );
    }
    Ok(zone)
}
