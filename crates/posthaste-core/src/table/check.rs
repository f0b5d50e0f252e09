//! Whether a live table is what its map says, and the SQL that mends it.

mod mend;
#[cfg(test)]
mod tests;

use serde::Serialize;

use super::{Column, Database, Kind, LiveColumn, LiveTable, Strategy, TableMap, TableName};
use mend::Mend;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The map cannot be used on this table.
    Error,
    /// It can, with a drawback.
    Warning,
}

/// One thing that is not as the map needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The field of the map, with dots.
    pub field: String,
    /// What is wrong, and the remedy where no SQL can be it.
    pub problem: String,
    /// The SQL that mends it.
    pub mend: Option<String>,
}

/// The characters of a claim's proof where a text holds it: the worker's id, a slash and the token.
const TEXT_FENCE: usize = 73;

/// The characters of a UUID where a text holds it.
const UUID_TEXT: usize = 36;

/// What holds so many characters holds any error.
const LONG: usize = 65_535;

/// Columns that the relay empties.
const EMPTIED: [&str; 4] = ["locked_by", "lease_token", "locked_until", "locked_at"];

/// Columns that are empty until something happens.
const EMPTY_AT_FIRST: [&str; 2] = ["last_error", "delivered_at"];

/// Compares a map with the tables that are there. Errors come first.
pub fn check(map: &TableMap, live: &[LiveTable], database: Database) -> Vec<Finding> {
    let mut checker = Checker {
        map,
        live,
        mend: Mend { map, database },
        database,
        findings: Vec::new(),
    };
    checker.strategy();
    for (purpose, table) in map.tables() {
        checker.table(purpose, table);
    }
    checker.findings.sort_by_key(|finding| finding.severity);
    checker.findings
}

struct Checker<'a> {
    map: &'a TableMap,
    live: &'a [LiveTable],
    mend: Mend<'a>,
    database: Database,
    findings: Vec<Finding>,
}

impl Checker<'_> {
    fn note(&mut self, severity: Severity, field: String, problem: String, mend: Option<String>) {
        self.findings.push(Finding {
            severity,
            field,
            problem,
            mend,
        });
    }

    fn error(&mut self, field: String, problem: String, mend: Option<String>) {
        self.note(Severity::Error, field, problem, mend);
    }

    fn strategy(&mut self) {
        let field = match self.map.strategy() {
            Strategy::Log => "layout",
            _ => "columns.locked_until",
        };
        if let Some(reason) = self.database.refuses(self.map.strategy()) {
            self.error(field.to_owned(), reason.to_owned(), None);
        }
    }

    fn table(&mut self, purpose: &str, name: &TableName) {
        let Some(live) = self.live.iter().find(|table| table.name == *name) else {
            let field = format!("tables.{purpose}");
            let (problem, mend) = if self.map.is_own() {
                let problem = format!("there is no table {name}; run `posthaste migrate up`");
                (problem, None)
            } else {
                (format!("there is no table {name}"), self.mend.create_table(purpose))
            };
            return self.error(field, problem, mend);
        };
        let columns: Vec<(&str, &Column)> = if purpose == "outbox" {
            self.map.columns().collect()
        } else {
            self.map.side_columns(purpose).collect()
        };
        let prefix = if purpose == "outbox" {
            String::new()
        } else {
            format!("{purpose}.")
        };
        for (role, column) in &columns {
            let field = format!("{prefix}columns.{role}");
            if let Some(found) = live.column(column.name.as_str()) {
                self.column(field, purpose, live, role, column, found);
            } else {
                let problem = format!("the table {name} has no column {}", column.name);
                let mend = self.mend.add_column(purpose, role, column, name);
                self.error(field, problem, Some(mend));
            }
        }
        if !columns.is_empty() {
            self.unmapped(purpose, live, &columns);
        }
        if purpose == "outbox" && !self.map.is_own() {
            self.indexes(live);
        }
    }

    /// A column that is there: whether it can keep what is put into it.
    fn column(
        &mut self,
        field: String,
        purpose: &str,
        table: &LiveTable,
        role: &str,
        column: &Column,
        live: &LiveColumn,
    ) {
        let name = &column.name;
        let kinds = self.database.kinds(&live.type_name, role);
        if !kinds.contains(&column.kind) {
            let mut problem = format!(
                "the column {name} is {}, which does not keep {}",
                live.type_name,
                column.kind.word()
            );
            match kinds {
                [] if !live.values.is_empty() => problem += "; turn it into text with a check constraint",
                [] => problem += "; map another column",
                kinds => {
                    let kinds: Vec<_> = kinds.iter().map(|kind| kind.word()).collect();
                    problem = format!("{problem}; say kind = \"{}\" in the map", kinds.join("\" or \""));
                }
            }
            return self.error(format!("{field}.kind"), problem, None);
        }
        if let Some((needed, why)) = self.length_needed(role, column, live) {
            let held = live.max_length.unwrap_or_default();
            let problem = format!("the column {name} holds {held} characters, and {why} has {needed}");
            let mend = self.mend.lengthen(table, column, needed);
            self.error(field.clone(), problem, mend);
        }
        if role == "status" && purpose == "outbox" {
            self.words_allowed(column, live);
        }
        if role == "last_error" && column.max.is_none() && self.database.keeps_lengths() {
            self.unlimited_error(&field, column, live);
        }
        let always = EMPTIED.contains(&role) || EMPTY_AT_FIRST.contains(&role);
        if purpose == "outbox" && always && !live.nullable && self.map.layout() == super::Layout::Queue {
            let when = if EMPTIED.contains(&role) {
                "empties it with every verdict"
            } else {
                "leaves it empty until there is something to say"
            };
            let problem = format!("the column {name} may not be NULL, but the relay {when}");
            let mend = self.mend.allow_null(table, column, live);
            self.error(field, problem, mend);
        }
    }

    /// Errors are cut only if the map says where.
    fn unlimited_error(&mut self, field: &str, column: &Column, live: &LiveColumn) {
        let Some(held) = live.max_length.filter(|held| *held < LONG) else {
            return;
        };
        let problem = format!(
            "the column {} holds {held} characters, and an error may be longer; say max = {held} in the map",
            column.name
        );
        self.error(field.to_owned(), problem, None);
    }

    /// How many characters a column must hold and does not.
    fn length_needed(&self, role: &str, column: &Column, live: &LiveColumn) -> Option<(usize, &'static str)> {
        let held = live.max_length.filter(|_| self.database.keeps_lengths())?;
        let (needed, why) = match (role, column.kind) {
            ("lease_token", Kind::Text) => (TEXT_FENCE, "the proof of a claim"),
            ("content_hash", Kind::Text) => (64, "a hash in hexadecimal digits"),
            ("content_hash", Kind::Bytes) => (32, "a hash"),
            ("status", Kind::Text) => (self.longest_word(), "the longest word of [states]"),
            ("last_error", _) => (column.max?, "an error by the map's max"),
            (_, Kind::Uuid) if live.type_name != "uuid" => (UUID_TEXT, "a UUID"),
            (_, Kind::UuidBytes) => (16, "a UUID in bytes"),
            _ => return None,
        };
        (held < needed).then_some((needed, why))
    }

    /// Words that a constraint of the column would refuse.
    fn words_allowed(&mut self, column: &Column, live: &LiveColumn) {
        for state in ["pending", "waiting", "processing", "delivered", "dead"] {
            let Some(word) = self.map.word(state).map(ToString::to_string) else {
                continue;
            };
            if !live.values.is_empty() && !live.values.contains(&word) {
                let allowed = live.values.join(", ");
                let problem = format!(
                    "the column {} takes {allowed}, and `{word}` is none of them",
                    column.name
                );
                self.note(Severity::Warning, format!("states.{state}"), problem, None);
            }
        }
    }

    fn longest_word(&self) -> usize {
        let words = ["pending", "waiting", "processing", "delivered", "dead"];
        let lengths = words
            .iter()
            .filter_map(|state| self.map.word(state))
            .map(|word| word.to_string().chars().count());
        lengths.max().unwrap_or_default()
    }

    /// Columns that want a value and are not in the map.
    fn unmapped(&mut self, purpose: &str, live: &LiveTable, mapped: &[(&str, &Column)]) {
        for column in &live.columns {
            let is_mapped = mapped.iter().any(|(_, there)| there.name.as_str() == column.name);
            if is_mapped || column.may_be_left_out() || purpose == "handled" {
                continue;
            }
            let (severity, who) = match purpose {
                "outbox" => (
                    Severity::Warning,
                    "enqueueing through Posthaste fails; a relay does not mind, where the application writes the rows",
                ),
                _ => (Severity::Error, "the relay cannot write its rows"),
            };
            let problem = format!(
                "the column {} may not be NULL, has no default and is in no role, so {who}",
                column.name
            );
            let field = if purpose == "outbox" {
                "columns".to_owned()
            } else {
                format!("{purpose}.columns")
            };
            let mend = self.mend.drop_not_null(live, column);
            self.note(severity, field, problem, mend);
        }
    }

    fn indexes(&mut self, live: &LiveTable) {
        let map = self.map;
        let name = |role: &str| map.column(role).map(|column| column.name.as_str());
        let id = name("id").unwrap_or_default();
        if !live
            .indexes
            .iter()
            .any(|index| index.unique && !index.partial && index.columns == [id])
        {
            let problem = format!("two rows could have the same {id}; make it the primary key");
            self.error("columns.id".to_owned(), problem, self.mend.primary_key(live));
        }
        if let (Some(key), false) = (name("dedupe_key"), map.has("dedupe")) {
            let mut wanted: Vec<&str> = ["namespace", "topic"].into_iter().filter_map(name).collect();
            wanted.push(key);
            let same = |columns: &[String]| {
                columns.len() == wanted.len() && wanted.iter().all(|column| columns.iter().any(|there| there == column))
            };
            if !live.indexes.iter().any(|index| index.unique && same(&index.columns)) {
                let problem = format!(
                    "there is no unique index on ({}), so equal keys would be enqueued twice",
                    wanted.join(", ")
                );
                let mend = self.mend.unique_index(live, &wanted, key);
                self.error("columns.dedupe_key".to_owned(), problem, Some(mend));
            }
        }
        if map.layout() == super::Layout::Queue {
            self.claim_order(live);
        }
    }

    /// Claims ask for rows of some states in the table's order.
    fn claim_order(&mut self, live: &LiveTable) {
        let names = |role: &&str| self.map.column(role).map(|column| column.name.as_str());
        let (Some(status), order) = (
            names(&"status"),
            self.map.order().iter().filter_map(names).collect::<Vec<_>>(),
        ) else {
            return;
        };
        let first = order.first().copied().unwrap_or_default();
        let begins = |with: &[&str]| {
            live.indexes
                .iter()
                .any(|index| with.len() <= index.columns.len() && with.iter().zip(&index.columns).all(|(a, b)| a == b))
        };
        let partial = live
            .indexes
            .iter()
            .any(|index| index.partial && index.columns.first().is_some_and(|column| column == first));
        if begins(&[status, first]) || partial {
            return;
        }
        let cost = if begins(&[status]) {
            "every claim sorts all rows that wait, which takes long when many do"
        } else {
            "every claim reads the whole table"
        };
        let problem = format!("there is no index on ({status}, {}), so {cost}", order.join(", "));
        let mend = self.mend.claim_index(live, status, &order);
        self.note(Severity::Warning, "order".to_owned(), problem, Some(mend));
    }
}
