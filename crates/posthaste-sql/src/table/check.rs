//! Whether a live table is what its map says, and the SQL that fixes it.

mod ddl_fix;
mod indexes;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use super::{
    Column, Database, Kind, LiveColumn, LiveTable, Property, Role, Shape, Strategy, Table, TableMap, TableName,
};
use ddl_fix::DdlFix;

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
    /// The SQL that fixes it.
    pub fix: Option<String>,
}

/// The characters of a claim's proof where a text holds it: the worker's id, a slash and the token.
const TEXT_FENCE: usize = 73;

/// The characters of a UUID where a text holds it.
const UUID_TEXT: usize = 36;

/// What holds so many characters holds any error.
const LONG: usize = 65_535;

/// Columns that the relay empties.
const EMPTIED: [Role; 4] = [Role::LockedBy, Role::LeaseToken, Role::LockedUntil, Role::LockedAt];

/// Columns that are empty until something happens.
const EMPTY_AT_FIRST: [Role; 2] = [Role::LastError, Role::DeliveredAt];

/// Compares a map with the tables that are there. Errors come first.
pub fn check(map: &TableMap, live: &[LiveTable], database: Database) -> Vec<Finding> {
    let mut checker = Checker {
        map,
        live,
        ddl: DdlFix { map, database },
        database,
        stands_for: None,
        findings: Vec::new(),
    };
    checker.strategy();
    checker.identity();
    for (table, name) in map.tables() {
        checker.table(table, name);
    }
    checker.findings.sort_by_key(|finding| finding.severity);
    checker.findings
}

struct Checker<'a> {
    map: &'a TableMap,
    live: &'a [LiveTable],
    ddl: DdlFix<'a>,
    database: Database,
    /// What the table is that is looked at, unless it can be changed itself.
    stands_for: Option<String>,
    findings: Vec<Finding>,
}

impl Checker<'_> {
    fn note(&mut self, severity: Severity, field: String, mut problem: String, mut fix: Option<String>) {
        if let (Some(_), Some(what)) = (&fix, &self.stands_for) {
            problem =
                format!("{problem}; {what}: look at the table behind it, change that if need be, and map it instead");
            fix = None;
        }
        self.findings.push(Finding {
            severity,
            field,
            problem,
            fix,
        });
    }

    fn error(&mut self, field: String, problem: String, fix: Option<String>) {
        self.note(Severity::Error, field, problem, fix);
    }

    fn strategy(&mut self) {
        let field = match self.map.strategy() {
            Strategy::Log => "layout",
            _ => "columns.locked_until",
        };
        if let Some(reason) = self.database.refuses(self.map.strategy()) {
            let fix = match self.map.strategy() {
                Strategy::RowLocks => self.ddl.lease_columns(self.live),
                _ => None,
            };
            self.error(field.to_owned(), reason.to_owned(), fix);
        }
        if self.map.has(Property::TrustedIds) {
            let problem = "it is taken on trust that ids go up and are used in the transaction that took them; a row that comes \
                           otherwise is delivered late and out of order if a relay finds it within 24 hours, and else not \
                           at all: see the net in docs/log-layout.md";
            self.note(Severity::Warning, "ids".to_owned(), problem.to_owned(), None);
        }
    }

    /// Consumers tell events apart by source and id.
    fn identity(&mut self) {
        let event_id = self.map.column(Role::EventId).or_else(|| self.map.column(Role::Id));
        // Texts are mostly ULIDs and the like.
        let unique_everywhere = event_id.is_none_or(|id| id.kind != Kind::Integer);
        if unique_everywhere || self.map.has(Role::Source) || self.map.is_native() {
            return;
        }
        let table = self
            .map
            .table(Table::Outbox)
            .map(|table| super::infer::kebab(table.name.as_str()));
        let source = self.map.constant(Role::Source).map(str::to_owned);
        if source.is_some() && source != table {
            return;
        }
        let given = source.map_or_else(
            || "and there is none".to_owned(),
            |name| format!("and `{name}` is the table's name"),
        );
        let problem = format!(
            "ids such as 1 are unique in this table only; consumers tell events apart by id and source, {given}; \
             write the name of your service, which no other has"
        );
        self.note(Severity::Warning, "constants.source".to_owned(), problem, None);
    }

    fn table(&mut self, table: Table, name: &TableName) {
        let Some(live) = self.live.iter().find(|live| live.name == *name) else {
            let field = format!("tables.{table}");
            let (problem, fix) = if self.map.is_native() {
                let problem = format!("there is no table {name}; run `posthaste migrate up`");
                (problem, None)
            } else {
                (format!("there is no table {name}"), self.ddl.create_table(table))
            };
            return self.error(field, problem, fix);
        };
        self.stands_for = match live.shape {
            Shape::Other(what) => Some(format!("{name} is {what}")),
            _ => None,
        };
        let columns = self.map.columns_of(table);
        let prefix = match table {
            Table::Outbox => String::new(),
            table => format!("{table}."),
        };
        let mut fixed: HashMap<&str, LiveColumn> = HashMap::new();
        let mut added: HashSet<&str> = HashSet::new();
        for (role, column) in &columns {
            let field = format!("{prefix}columns.{role}");
            let name_of_column = column.name.as_str();
            // One column may play two roles; what is said of it for the second is said of it as fixed for the first.
            let found = fixed.get(name_of_column).or_else(|| live.column(name_of_column));
            if let Some(found) = found.cloned() {
                let after = self.column(field, (table, *role), live, column, found);
                fixed.insert(name_of_column, after);
            } else if added.insert(name_of_column) {
                let mut problem = format!("the table {name} has no column {}", column.name);
                let fix = self.ddl.add_column(table, *role, column, live);
                if fix.is_none() {
                    problem += ", and cannot be given one that counts: create it anew";
                }
                self.error(field, problem, fix);
            }
        }
        if !columns.is_empty() {
            self.unmapped(table, live, &columns);
        }
        if table == Table::Outbox && !self.map.is_native() {
            self.indexes(live);
        }
        if table == Table::Failed {
            self.failed_indexes(live);
        }
        self.stands_for = None;
    }

    /// A column that is there: whether it can keep what is put into it. Returns it as it is once that is fixed.
    fn column(
        &mut self,
        field: String,
        (of, role): (Table, Role),
        table: &LiveTable,
        column: &Column,
        mut live: LiveColumn,
    ) -> LiveColumn {
        let name = &column.name;
        let kinds = self.database.kinds(&live.type_name, role);
        if !kinds.contains(&column.kind) {
            let mut problem = format!(
                "the column {name} is {}, which does not keep {}",
                live.type_name,
                column.kind.as_str()
            );
            match kinds {
                [] if !live.values.is_empty() => problem += "; turn it into text with a check constraint",
                [] => problem += "; map another column",
                kinds => {
                    let kinds: Vec<_> = kinds.iter().map(|kind| kind.as_str()).collect();
                    problem = format!("{problem}; say kind = \"{}\" in the map", kinds.join("\" or \""));
                }
            }
            self.error(format!("{field}.kind"), problem, None);
            return live;
        }
        if let Some((needed, why)) = self.length_needed(role, column, &live) {
            let held = live.max_length.unwrap_or_default();
            let problem = format!("the column {name} holds {held} characters, and {why} has {needed}");
            let fix = self.ddl.lengthen(table, column, &live, needed);
            self.error(field.clone(), problem, fix);
            live.definition = DdlFix::lengthened(column, &live, needed);
            live.max_length = Some(needed);
        }
        if role == Role::Status && of == Table::Outbox {
            self.words_allowed(column, &live);
        }
        if role == Role::LastError && column.max.is_none() && self.database.keeps_lengths() {
            self.unlimited_error(&field, column, &live);
        }
        let always = EMPTIED.contains(&role) || EMPTY_AT_FIRST.contains(&role);
        if of == Table::Outbox && always && !live.nullable && self.map.layout() == super::Layout::Queue {
            let when = if EMPTIED.contains(&role) {
                "empties it with every verdict"
            } else {
                "leaves it empty until there is something to say"
            };
            let problem = format!("the column {name} may not be NULL, but the relay {when}");
            let fix = self.ddl.drop_not_null(table, &live);
            self.error(field, problem, fix);
            live.nullable = true;
        }
        live
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
    fn length_needed(&self, role: Role, column: &Column, live: &LiveColumn) -> Option<(usize, &'static str)> {
        let held = live.max_length.filter(|_| self.database.keeps_lengths())?;
        let (needed, why) = match (role, column.kind) {
            (Role::LeaseToken, Kind::Text) => (TEXT_FENCE, "the proof of a claim"),
            (Role::ContentHash, Kind::Text) => (64, "a hash in hexadecimal digits"),
            (Role::ContentHash, Kind::Bytes) => (32, "a hash"),
            (Role::Status, Kind::Text) => (self.longest_label(), "the longest label of [states]"),
            (Role::LastError, _) => (column.max?, "an error by the map's max"),
            (_, Kind::Uuid) if live.type_name != "uuid" => (UUID_TEXT, "a UUID"),
            (_, Kind::UuidBytes) => (16, "a UUID in bytes"),
            _ => return None,
        };
        (held < needed).then_some((needed, why))
    }

    /// Labels that a constraint of the column would refuse.
    fn words_allowed(&mut self, column: &Column, live: &LiveColumn) {
        for state in ["pending", "waiting", "processing", "delivered", "dead"] {
            let Some(label) = self.map.label(state).map(ToString::to_string) else {
                continue;
            };
            if !live.values.is_empty() && !live.values.contains(&label) {
                let allowed = live.values.join(", ");
                // A list that has the label for new rows is a list of what is allowed; another constraint may mean
                // anything.
                let is_list = self
                    .map
                    .label("pending")
                    .is_some_and(|label| live.values.contains(&label.to_string()));
                let severity = if is_list { Severity::Error } else { Severity::Warning };
                let problem = format!(
                    "the column {} takes {allowed}, and `{label}` is none of them",
                    column.name
                );
                self.note(severity, format!("states.{state}"), problem, None);
            }
        }
    }

    fn longest_label(&self) -> usize {
        let labels = ["pending", "waiting", "processing", "delivered", "dead"];
        let lengths = labels
            .iter()
            .filter_map(|state| self.map.label(state))
            .map(|label| label.to_string().chars().count());
        lengths.max().unwrap_or_default()
    }

    /// Columns that want a value and are not in the map.
    fn unmapped(&mut self, table: Table, live: &LiveTable, mapped: &[(Role, &Column)]) {
        for column in &live.columns {
            let is_mapped = mapped.iter().any(|(_, there)| there.name.as_str() == column.name);
            if is_mapped || column.may_be_left_out() || table == Table::Handled {
                continue;
            }
            let (severity, who) = match table {
                Table::Outbox => (
                    Severity::Warning,
                    "enqueueing through Posthaste fails; a relay does not mind, where the application writes the rows",
                ),
                _ => (Severity::Error, "the relay cannot write its rows"),
            };
            let mut problem = format!(
                "the column {} may not be NULL, has no default and is in no role, so {who}",
                column.name
            );
            let field = match table {
                Table::Outbox => "columns".to_owned(),
                table => format!("{table}.columns"),
            };
            let fix = self.ddl.drop_not_null(live, column);
            if fix.is_none() {
                problem += "; map it, or give it a default";
            }
            self.note(severity, field, problem, fix);
        }
    }
}
