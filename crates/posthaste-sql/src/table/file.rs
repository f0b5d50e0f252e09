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
//! [states]                                 # the table's labels
//! pending = "NEW"
//! delivered = "SENT"
//! dead = "FAILED"
//!
//! [policy]                                 # the relay's settings that suit this table
//! poll_interval = "5s"
//! ```

mod shape;

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;

use self::shape::{TextOr, field_at, line_of};
use crate::closest::closest;

use super::{Column, Counts, Identifier, Kind, Layout, Role, StateLabel, Table, TableMap, TableName, TopicRule};
use posthaste_core::integrity::{HashPart, HashRecipe};
use posthaste_core::lifecycle::State;

/// A map that cannot be used: which field, what is wrong, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapError {
    /// The field, with dots; empty if the file is not TOML of the right shape.
    pub field: String,
    /// What is wrong, and the remedy.
    pub problem: String,
    /// The line of the file, counted from one, where the field or what is nearest to it stands.
    pub line: Option<usize>,
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.problem)?;
        self.line.map_or(Ok(()), |line| write!(f, " (line {line})"))
    }
}

impl std::error::Error for MapError {}

fn refuse<T>(field: impl Into<String>, problem: impl Into<String>) -> Result<T, MapError> {
    Err(MapError {
        field: field.into(),
        problem: problem.into(),
        line: None,
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
    states: BTreeMap<String, StateLabel>,
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

type TopicFile = TextOr<TopicRule>;

type TableFile = TextOr<InSchema>;

type ColumnFile = TextOr<ColumnSettings>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct InSchema {
    schema: String,
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnSettings {
    column: String,
    kind: Option<String>,
    max: Option<usize>,
    #[serde(default)]
    generated: bool,
    counts: Option<String>,
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

/// Roles that may have one value for all rows.
const CONSTANTS: [Role; 5] = [
    Role::Namespace,
    Role::Source,
    Role::ContentType,
    Role::EventType,
    Role::AggregateType,
];

impl TableMap {
    /// Reads a map, or says which field is wrong and why.
    pub fn from_toml(text: &str) -> Result<Self, MapError> {
        let file: File = toml::from_str(text).map_err(|error| {
            let at = error.span().map(|span| field_at(text, &span));
            MapError {
                field: at.clone().unwrap_or_default(),
                problem: error.message().trim_end().replace('\n', "; "),
                line: error.span().map(|span| shape::line(text, span.start)),
            }
        })?;
        file.into_map().map_err(|error| MapError {
            line: line_of(text, &error.field),
            ..error
        })
    }
}

impl File {
    fn into_map(self) -> Result<TableMap, MapError> {
        let mut counts = Counts::default();
        let mut columns = BTreeMap::new();
        for (name, given) in self.columns {
            let field = format!("columns.{name}");
            let Some(role) = Role::named(&name) else {
                return refuse(field, no_such_role(&name, Role::of_outbox()));
            };
            if let TextOr::Table(ColumnSettings {
                counts: Some(given), ..
            }) = &given
            {
                if role != Role::Attempts {
                    return refuse(format!("{field}.counts"), "only the role attempts counts; leave it out");
                }
                counts = match given.as_str() {
                    "attempts" => Counts::Attempts,
                    "retries" => Counts::Retries,
                    other => {
                        let problem = format!("\"{other}\" cannot be counted; use attempts or retries");
                        return refuse(format!("{field}.counts"), problem);
                    }
                };
            }
            let kinds = [&[role.kind()], role.others()].concat();
            let column = column(given, &field, &kinds)?;
            columns.insert(role, column);
        }
        // Without a column of its own the proof of a claim is kept where the table says who has it.
        if !columns.contains_key(&Role::LeaseToken)
            && let Some(locked_by) = columns.remove(&Role::LockedBy)
        {
            columns.insert(Role::LeaseToken, locked_by);
        }
        let mut map = TableMap {
            name: self.name,
            layout: self.layout,
            schema: None,
            tables: tables(self.tables)?,
            columns,
            side_columns: BTreeMap::new(),
            labels: labels(self.states)?,
            order: order(&self.order)?,
            topic: topic(self.topic)?,
            constants: constants(self.constants)?,
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
            (Table::Cursor, self.cursor),
            (Table::Failed, self.failed),
            (Table::Handled, self.handled),
            (Table::DeadLetter, self.dead_letter),
        ];
        for (table, side) in sides {
            map.add_side(table, side)?;
        }
        map.check_constants()?;
        map.check_roles()?;
        Ok(map)
    }
}

/// A column of one of these kinds, the first unless the file says otherwise.
fn column(given: ColumnFile, field: &str, kinds: &[Kind]) -> Result<Column, MapError> {
    let settings = match given {
        TextOr::Text(column) => ColumnSettings {
            column,
            kind: None,
            max: None,
            generated: false,
            counts: None,
        },
        TextOr::Table(settings) => settings,
    };
    let name = settings.kind.as_deref();
    let meant = name.map_or(kinds.first(), |name| kinds.iter().find(|kind| kind.as_str() == name));
    let Some(kind) = meant.copied() else {
        let name = name.unwrap_or_default();
        let problem = if Kind::ALL.iter().any(|kind| kind.as_str() == name) {
            "does not suit this role"
        } else {
            "is no kind"
        };
        let names: Vec<_> = kinds.iter().map(|kind| kind.as_str()).collect();
        let problem = format!("\"{name}\" {problem}; use {}", names.join(", "));
        return refuse(format!("{field}.kind"), problem);
    };
    Ok(Column {
        name: identifier(field, settings.column)?,
        kind,
        max: settings.max,
        generated: settings.generated,
    })
}

fn no_such_role(given: &str, known: &[Role]) -> String {
    let known: Vec<_> = known.iter().map(|role| role.name()).collect();
    let meant = closest(given, &known).map_or_else(String::new, |role| format!("did you mean {role}? "));
    format!("there is no such role; {meant}The roles are {}", known.join(", "))
}

impl TableMap {
    fn add_side(&mut self, table: Table, side: SideFile) -> Result<(), MapError> {
        if !side.columns.is_empty() && !self.has(table) {
            return refuse(
                format!("tables.{table}"),
                format!("[{table}.columns] needs this table's name"),
            );
        }
        if side.columns.is_empty() && self.has(table) {
            return refuse(
                format!("{table}.columns"),
                format!("say which columns the table {table} has"),
            );
        }
        for (name, given) in side.columns {
            let field = format!("{table}.columns.{name}");
            let known = table.side_roles();
            let Some(role) = known.iter().copied().find(|role| role.name() == name) else {
                return refuse(field, no_such_role(&name, known));
            };
            let usual = Table::usual_kind(role);
            // Tables beside the outbox may keep a role in any way that the statements can read.
            let mut kinds = vec![usual];
            kinds.extend(Kind::ALL.iter().filter(|kind| **kind != usual));
            let column = column(given, &field, &kinds)?;
            self.side_columns.insert((table, role), column);
        }
        Ok(())
    }

    fn check_constants(&self) -> Result<(), MapError> {
        match self.constants.keys().find(|role| self.has(**role)) {
            Some(role) => refuse(
                format!("constants.{role}"),
                "the role has a column too; choose one of them",
            ),
            None => Ok(()),
        }
    }

    /// Whether the roles that are there make a table that can be served.
    fn check_roles(&self) -> Result<(), MapError> {
        let needed: &[Role] = match self.layout {
            Layout::Queue => &[Role::Id, Role::Payload, Role::Status],
            Layout::Log => &[Role::Id, Role::Payload],
        };
        for role in needed {
            if !self.has(*role) {
                return refuse(format!("columns.{role}"), "every map needs this role; name its column");
            }
        }
        if !self.has(Table::Outbox) {
            return refuse("tables.outbox", "name the outbox table");
        }
        for role in &self.order {
            if !self.has(*role) {
                return refuse(
                    "order",
                    format!("there is no column for `{role}`; name it under [columns]"),
                );
            }
        }
        if self.topic == TopicRule::Column && !self.has(Role::Topic) {
            return refuse(
                "topic",
                "there is no column for it; name it under [columns], or choose another rule",
            );
        }
        if self.has(Role::ContentHash) && self.column(Role::Payload).is_some_and(|p| p.kind == Kind::Jsonb) {
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

    /// Whether the column of the status can keep its labels.
    fn check_labels(&self) -> Result<(), MapError> {
        let kind = self.column(Role::Status).map(|status| status.kind);
        for (state, label) in &self.labels {
            let problem = match (kind, label) {
                (Some(Kind::Boolean), StateLabel::Boolean(_))
                | (Some(Kind::Integer), StateLabel::Number(_))
                | (Some(Kind::Text) | None, _) => continue,
                (Some(Kind::Boolean), _) => {
                    "the column keeps true or false only, which tell two states apart, and a queue has three; make it a text \
                     or a number"
                }
                _ => "the column keeps whole numbers; say which number stands for this state, or kind = \"text\"",
            };
            return refuse(
                format!("states.{state}"),
                format!("`{label}` cannot be kept: {problem}"),
            );
        }
        Ok(())
    }

    fn check_queue(&self) -> Result<(), MapError> {
        self.check_labels()?;
        let leased = self.has(Role::LockedUntil) || self.has(Role::LockedAt);
        for state in State::ALL {
            let needed = leased || state != State::Processing;
            let field = format!("states.{}", state.as_str());
            match (self.labels.contains_key(state.as_str()), needed) {
                (false, true) => return refuse(field, "say which label the table has for this state"),
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
        let fenced = self.has(Role::LeaseToken);
        match (leased, fenced) {
            (true, false) => refuse(
                "columns.lease_token",
                "a table with leases needs a column for the proof of a claim; map lease_token or locked_by",
            ),
            (false, true) => refuse(
                "columns.locked_until",
                "a table that says who has a row must say until or since when; map locked_until or locked_at",
            ),
            (true, true) if !self.has(Role::Attempts) => refuse(
                "columns.attempts",
                "a table with leases needs a count of attempts, or a message that kills its relay is tried forever",
            ),
            _ => Ok(()),
        }
    }

    fn check_log(&self) -> Result<(), MapError> {
        if let Some(state) = self.labels.keys().next() {
            return refuse(format!("states.{state}"), "rows of a log have no state; leave it out");
        }
        if self.column(Role::Id).is_some_and(|id| id.kind != Kind::Integer) {
            return refuse(
                "columns.id.kind",
                "a cursor needs whole numbers that go up; use integer",
            );
        }
        for (table, role) in [
            (Table::Cursor, Role::Position),
            (Table::Failed, Role::Id),
            (Table::Failed, Role::EventId),
            (Table::Failed, Role::Payload),
            (Table::Failed, Role::Attempts),
            (Table::Failed, Role::NextAttemptAt),
        ] {
            if !self.has((table, role)) {
                return refuse(format!("{table}.columns.{role}"), "a log needs this column; name it");
            }
        }
        Ok(())
    }
}

fn identifier(field: &str, name: String) -> Result<Identifier, MapError> {
    Identifier::new(name).or_else(|error| refuse(field, error.to_string()))
}

fn constants(given: BTreeMap<String, String>) -> Result<BTreeMap<Role, String>, MapError> {
    let constant = |(name, value): (String, String)| match CONSTANTS.into_iter().find(|role| role.name() == name) {
        Some(role) => Ok((role, value)),
        None => refuse(
            format!("constants.{name}"),
            format!(
                "only these may be the same for all rows: {}",
                CONSTANTS.map(Role::name).join(", ")
            ),
        ),
    };
    given.into_iter().map(constant).collect()
}

fn tables(given: BTreeMap<String, TableFile>) -> Result<BTreeMap<Table, TableName>, MapError> {
    let mut tables = BTreeMap::new();
    for (purpose, given) in given {
        let field = format!("tables.{purpose}");
        let known = || Table::sides().chain([Table::Outbox]);
        let Some(table) = known().find(|table| table.name() == purpose) else {
            let known: Vec<_> = known().map(Table::name).collect();
            return refuse(
                field,
                format!("there is no such table; a map may name {}", known.join(", ")),
            );
        };
        let (schema, name) = match given {
            TextOr::Text(name) => (None, name),
            TextOr::Table(InSchema { schema, name }) => (Some(identifier(&field, schema)?), name),
        };
        let name = identifier(&field, name)?;
        tables.insert(table, TableName { schema, name });
    }
    Ok(tables)
}

fn labels(given: BTreeMap<String, StateLabel>) -> Result<BTreeMap<&'static str, StateLabel>, MapError> {
    let mut labels: BTreeMap<&'static str, StateLabel> = BTreeMap::new();
    let names = || State::ALL.iter().map(|state| state.as_str()).chain(["waiting"]);
    for (state, label) in given {
        let field = format!("states.{state}");
        let Some(state) = names().find(|name| *name == state) else {
            let known: Vec<_> = names().collect();
            return refuse(
                field,
                format!("there is no such state; the states are {}", known.join(", ")),
            );
        };
        if matches!(&label, StateLabel::Text(text) if text.contains(|c: char| c.is_control())) {
            return refuse(field, "the label contains a control character");
        }
        if let Some((other, _)) = labels.iter().find(|(_, there)| **there == label) {
            return refuse(
                field,
                format!("`{label}` is the label for {other} already; each state needs its own"),
            );
        }
        labels.insert(state, label);
    }
    if let Some(pending) = labels.get("pending").cloned() {
        labels.entry("waiting").or_insert(pending);
    }
    Ok(labels)
}

fn order(given: &[String]) -> Result<Vec<Role>, MapError> {
    if given.is_empty() {
        return refuse("order", "name at least one role, such as [\"created_at\", \"id\"]");
    }
    given
        .iter()
        .map(|name| match Role::named(name) {
            Some(role) => Ok(role),
            None => refuse("order", format!("`{name}` is not a role; name roles, not columns")),
        })
        .collect()
}

fn topic(given: TopicFile) -> Result<TopicRule, MapError> {
    let rule = match given {
        TextOr::Table(rule) => rule,
        TextOr::Text(text) => match text.as_str() {
            "column" => TopicRule::Column,
            "event_type" => TopicRule::EventType,
            _ => {
                return refuse(
                    "topic",
                    format!(
                        "`{text}` is not a rule; write \"column\", \"event_type\", \
                     {{ fixed = \"{text}\" }} or {{ template = \"{{aggregate_type}}-events\" }}"
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
