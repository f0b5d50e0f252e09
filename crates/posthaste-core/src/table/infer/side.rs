//! Tables beside the outbox.

use super::line;
use super::names::{NAMES, find as find_column, plain};
use crate::table::{Database, Kind, LiveColumn, LiveTable, find_role};

/// A table that probably belongs to the outbox.
pub(super) struct Side<'a> {
    pub(super) purpose: &'static str,
    pub(super) table: &'a LiveTable,
}

/// Roles of each table beside the outbox, with the names that are used there and not in an outbox.
const COLUMNS: [(&str, &[(&str, &[&str])]); 4] = [
    (
        "cursor",
        &[
            ("id", &[]),
            (
                "position",
                &[
                    "lastprocessedid",
                    "lastid",
                    "lastoffset",
                    "position",
                    "cursor",
                    "offset",
                ],
            ),
            ("created_at", &[]),
        ],
    ),
    (
        "failed",
        &[
            ("id", &[]),
            ("event_id", &[]),
            ("event_type", &[]),
            ("source", &[]),
            ("aggregate_type", &[]),
            ("aggregate_id", &[]),
            ("tenant", &[]),
            ("headers", &[]),
            ("payload", &[]),
            ("attempts", &[]),
            ("last_error", &[]),
            ("created_at", &["failedat"]),
            ("next_attempt_at", &[]),
            ("log_id", &["outboxid", "logid"]),
        ],
    ),
    (
        "handled",
        &[
            ("id", &[]),
            ("aggregate_type", &[]),
            ("aggregate_id", &[]),
            ("action", &["action", "handler"]),
            ("created_at", &["handledat", "processedat"]),
        ],
    ),
    (
        "dead_letter",
        &[
            ("id", &["originalid", "outboxid", "rowid", "sourceid"]),
            ("event_id", &[]),
            ("topic", &[]),
            ("ordering_key", &[]),
            ("tenant", &[]),
            ("event_type", &[]),
            ("source", &[]),
            ("aggregate_type", &[]),
            ("aggregate_id", &[]),
            ("payload", &[]),
            ("headers", &[]),
            ("content_hash", &[]),
            ("attempts", &[]),
            ("last_error", &[]),
            ("created_at", &["failedat", "diedat"]),
        ],
    ),
];

/// Those of the tables that look as if they belonged to the outbox. A table with a status has no cursor.
fn find_tables<'a>(table: &LiveTable, others: &'a [LiveTable], words: &[&str]) -> Option<&'a LiveTable> {
    let stem = plain(table.name.name.as_str());
    let likeness = |other: &LiveTable| {
        let name = plain(other.name.name.as_str());
        name.chars().zip(stem.chars()).take_while(|(a, b)| a == b).count()
    };
    let named = |other: &&LiveTable| {
        let name = plain(other.name.name.as_str());
        other.name != table.name
            && other.name.schema == table.name.schema
            && words.iter().any(|word| name.contains(word))
    };
    others
        .iter()
        .filter(named)
        .filter(|other| likeness(other) >= 3)
        .max_by_key(|other| likeness(other))
}

pub(super) fn find<'a>(table: &LiveTable, others: &'a [LiveTable], has_status: bool) -> Vec<Side<'a>> {
    let side = |purpose, words: &[&str]| {
        Some(Side {
            purpose,
            table: find_tables(table, others, words)?,
        })
    };
    if has_status {
        return side("dead_letter", &["dlq", "deadletter"]).into_iter().collect();
    }
    let (cursor, failed) = (
        side("cursor", &["cursor", "checkpoint", "offset"]),
        side("failed", &["fail", "retr"]),
    );
    match (cursor, failed) {
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
            let Some(column) = self.column(role, special, &taken) else {
                continue;
            };
            let usual = match *role {
                "id" | "position" | "log_id" => Kind::Integer,
                _ => find_role(role).map_or(Kind::Text, |role| role.kind),
            };
            let kinds = database.kinds(&column.type_name);
            let allowed = |kind: &Kind| {
                *kind == usual || find_role(role).is_none_or(|known| known.kind == *kind || known.others.contains(kind))
            };
            let kind = if kinds.contains(&usual) {
                Some(usual)
            } else {
                kinds.iter().copied().find(allowed)
            };
            match kind {
                Some(kind) => {
                    taken.push(&column.name);
                    let line = line(role, column, kind, Some(usual), &[]);
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

    fn column(&self, role: &str, special: &[&str], taken: &[&str]) -> Option<&LiveColumn> {
        if role == "id" && self.purpose != "dead_letter" {
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
