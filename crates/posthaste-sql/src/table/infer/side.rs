//! Tables beside the outbox.

use super::line;
use super::names::{NAMES, find as find_column, plain};
use crate::table::{Database, Kind, LiveColumn, LiveTable, Role, Table, TableName};

/// A table that probably belongs to the outbox.
pub(super) struct Side<'a> {
    pub(super) purpose: Table,
    pub(super) table: &'a LiveTable,
}

/// A role, and names for its column.
type Names = (Role, &'static [&'static str]);

/// Roles of each table beside the outbox, with the names that are used there and not in an outbox.
const COLUMNS: [(Table, &[Names]); 3] = [
    (
        Table::Cursor,
        &[
            (Role::Id, &[]),
            (
                Role::Position,
                &[
                    "lastprocessedid",
                    "lastid",
                    "lastoffset",
                    "position",
                    "cursor",
                    "offset",
                ],
            ),
            (Role::CreatedAt, &[]),
        ],
    ),
    (
        Table::Failed,
        &[
            (Role::Id, &[]),
            (Role::EventId, &[]),
            (Role::EventType, &[]),
            (Role::Source, &[]),
            (Role::AggregateType, &[]),
            (Role::AggregateId, &[]),
            (Role::Tenant, &[]),
            (Role::Headers, &[]),
            (Role::Payload, &[]),
            (Role::Attempts, &[]),
            (Role::LastError, &[]),
            (Role::CreatedAt, &["failedat"]),
            (Role::NextAttemptAt, &[]),
            (Role::LogId, &["outboxid", "logid"]),
        ],
    ),
    (
        Table::DeadLetter,
        &[
            (Role::Id, &["originalid", "outboxid", "rowid", "sourceid"]),
            (Role::EventId, &[]),
            (Role::Topic, &[]),
            (Role::OrderingKey, &[]),
            (Role::Tenant, &[]),
            (Role::EventType, &[]),
            (Role::Source, &[]),
            (Role::AggregateType, &[]),
            (Role::AggregateId, &[]),
            (Role::Payload, &[]),
            (Role::Headers, &[]),
            (Role::ContentHash, &[]),
            (Role::Attempts, &[]),
            (Role::LastError, &[]),
            (Role::CreatedAt, &["failedat", "diedat"]),
        ],
    ),
];

/// What people call tables beside an outbox.
const CURSOR: &[&str] = &["cursor", "checkpoint", "offset"];
const FAILED: &[&str] = &["fail", "retr"];
const DEAD_LETTER: &[&str] = &["dlq", "deadletter"];

/// Letters with which two names must begin alike.
const ALIKE: usize = 3;

fn likeness(outbox: &TableName, other: &TableName) -> usize {
    let (outbox, other) = (plain(outbox.name.as_str()), plain(other.name.as_str()));
    outbox.chars().zip(other.chars()).take_while(|(a, b)| a == b).count()
}

fn is_called(table: &TableName, words: &[&str]) -> bool {
    let name = plain(table.name.as_str());
    words.iter().any(|word| name.contains(word))
}

pub(super) fn may_belong(outbox: &TableName, other: &TableName) -> bool {
    let words = [CURSOR, FAILED, DEAD_LETTER];
    likeness(outbox, other) >= ALIKE && words.iter().any(|words| is_called(other, words))
}

/// Those of the tables that look as if they belonged to the outbox. A table with a status has no cursor.
pub(super) fn find<'a>(table: &LiveTable, others: &'a [LiveTable], has_status: bool) -> Vec<Side<'a>> {
    let side = |purpose, words: &[&str]| {
        let named = others
            .iter()
            .filter(|other| other.name != table.name && other.name.schema == table.name.schema)
            .filter(|other| is_called(&other.name, words) && likeness(&table.name, &other.name) >= ALIKE);
        let table = named.max_by_key(|other| likeness(&table.name, &other.name))?;
        Some(Side { purpose, table })
    };
    if has_status {
        return side(Table::DeadLetter, DEAD_LETTER).into_iter().collect();
    }
    match (side(Table::Cursor, CURSOR), side(Table::Failed, FAILED)) {
        (Some(cursor), Some(failed)) => vec![cursor, failed],
        _ => Vec::new(),
    }
}

impl Side<'_> {
    /// The lines of its section.
    pub(super) fn lines(&self, database: Database, notes: &mut Vec<String>) -> Vec<String> {
        let mut taken: Vec<&str> = Vec::new();
        let mut lines = Vec::new();
        let roles = COLUMNS.iter().find(|(purpose, _)| *purpose == self.purpose);
        for (role, special) in roles.map_or(&[][..], |(_, roles)| roles) {
            let Some(column) = self.column(*role, special, &taken) else {
                continue;
            };
            let usual = Table::usual_kind(*role);
            let kinds = database.kinds(&column.type_name, *role);
            let allowed = |kind: &Kind| *kind == usual || role.suits(*kind);
            let kind = kinds.iter().copied().find(allowed);
            match kind {
                Some(kind) => {
                    taken.push(&column.name);
                    let line = line(*role, column, kind, usual, &[]);
                    lines.push(line);
                }
                None => notes.push(format!(
                    "the column {} of {} looks like {role}, but its type {} does not suit that",
                    column.name, self.table.name, column.type_name
                )),
            }
        }
        for column in &self.table.columns {
            if !taken.contains(&column.name.as_str()) && !column.may_be_left_out() {
                notes.push(format!(
                    "the column {} of {} wants a value and is in no role; give it one or a default",
                    column.name, self.table.name
                ));
            }
        }
        lines
    }

    fn column(&self, role: Role, special: &[&str], taken: &[&str]) -> Option<&LiveColumn> {
        if role == Role::Id && self.purpose != Table::DeadLetter {
            return match self.table.primary_key() {
                [id] => self.table.column(id),
                _ => None,
            };
        }
        let usual = NAMES
            .iter()
            .find(|(name, _)| *name == role)
            .map_or(&[][..], |(_, names)| names);
        find_column(self.table, special, taken).or_else(|| find_column(self.table, usual, taken))
    }
}
