//! Proposes a map for an existing table, from its catalogue.
//!
//! Names and types say most of it. What they cannot say is guessed where a guess is useful, and put on a list of things to
//! decide; nothing is guessed silently.

mod headers;
mod labels;
mod names;
mod side;
#[cfg(test)]
mod tests;

use std::fmt::Write;

use super::{Database, Kind, LiveColumn, LiveTable, Role, Table, TableName};
use names::{NAMES, plain};

/// A map to begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The map as TOML, with what is to be decided as comments.
    pub toml: String,
    /// What is to be decided.
    pub notes: Vec<String>,
}

/// The column of a live table that probably says where a row stands.
pub fn status_column(table: &LiveTable) -> Option<&LiveColumn> {
    let (_, names) = NAMES.iter().find(|(role, _)| *role == Role::Status)?;
    names::find(table, names, &[])
}

/// The column of a live table that may have the headers. What its rows have in it says whether it does.
pub fn headers_column(table: &LiveTable) -> Option<&LiveColumn> {
    let (_, names) = NAMES.iter().find(|(role, _)| *role == Role::Headers)?;
    names::find(table, names, &[])
}

/// Whether a table may belong to an outbox, by its name alone.
pub fn may_belong(outbox: &TableName, other: &TableName) -> bool {
    outbox != other && side::may_belong(outbox, other)
}

/// Proposes a map. `others` are tables that may belong to it: a cursor, failures, dead letters.
pub fn infer(table: &LiveTable, others: &[LiveTable], database: Database) -> Proposal {
    let mut draft = Draft {
        table,
        database,
        columns: Vec::new(),
        remarks: Vec::new(),
        notes: Vec::new(),
    };
    draft.find_columns();
    let sides = side::find(table, others, draft.has(Role::Status));
    let is_log = sides.iter().any(|side| side.purpose == Table::Cursor);
    draft.find_created_at(is_log);
    draft.settle_lease();
    let toml = draft.toml(&sides, is_log);
    let mut head = String::new();
    say(
        &mut head,
        &format!("# Proposed for the table {} on {}.", table.name, database.product()),
    );
    for note in &draft.notes {
        let end = if note.ends_with('?') { "" } else { "." };
        say(&mut head, &format!("# To decide: {note}{end}"));
    }
    Proposal {
        toml: head + &toml,
        notes: draft.notes,
    }
}

/// A column that was found for a role.
struct Found<'a> {
    role: Role,
    column: &'a LiveColumn,
    kind: Kind,
}

struct Draft<'a> {
    table: &'a LiveTable,
    database: Database,
    columns: Vec<Found<'a>>,
    /// Why a column that looks like a role was not given it, by the column's name.
    remarks: Vec<(&'a str, String)>,
    notes: Vec<String>,
}

impl<'a> Draft<'a> {
    fn has(&self, role: Role) -> bool {
        self.columns.iter().any(|found| found.role == role)
    }

    fn get(&self, role: Role) -> Option<&Found<'a>> {
        self.columns.iter().find(|found| found.role == role)
    }

    fn find_columns(&mut self) {
        let table = self.table;
        let id = match table.primary_key() {
            [id] => table.column(id),
            _ => table.column("id").or(table.columns.first()),
        };
        if let Some(id) = id {
            self.take(Role::Id, id);
        }
        for (role, names) in NAMES {
            let taken: Vec<&str> = self.columns.iter().map(|found| found.column.name.as_str()).collect();
            let Some(column) = names::find(table, names, &taken) else {
                continue;
            };
            match doubt(role, column) {
                Some(doubt) => self.remarks.push((column.name.as_str(), doubt)),
                None => self.take(role, column),
            }
        }
        if let Some(column) = names::find(table, names::VERSION, &[]) {
            let remark = "as version the relay would add 1 to it with every claim and verdict; map it only if it is the row's own \
                          optimistic lock";
            self.remarks.push((column.name.as_str(), remark.to_owned()));
        }
        if !self.has(Role::OrderingKey)
            && let Some(aggregate) = self.get(Role::AggregateId).map(|found| found.column)
        {
            self.take(Role::OrderingKey, aggregate);
        }
        if !self.has(Role::OrderingKey) {
            self.note(
                "which column has the key within which order is kept (ordering_key)? Without one there is no order",
            );
        }
    }

    /// A queue needs the time at which a row was created, whatever it is called.
    fn find_created_at(&mut self, is_log: bool) {
        if self.has(Role::CreatedAt) {
            return;
        }
        let used = |column: &LiveColumn| self.columns.iter().any(|found| found.column.name == column.name);
        let times: Vec<_> = self
            .table
            .columns
            .iter()
            .filter(|column| is_time(column) && !used(column))
            .collect();
        match times[..] {
            [time] => {
                self.note(&format!(
                    "is {} the time at which a row was created (created_at)? It is the only time that is in no other role",
                    plain_comment(&time.name)
                ));
                self.take(Role::CreatedAt, time);
            }
            _ if is_log => {}
            [] => self.note("which column says when a row was created (created_at)? Every queue needs one, and nothing looks like it"),
            _ => {
                let names: Vec<_> = times.iter().map(|time| plain_comment(&time.name)).collect();
                self.note(&format!(
                    "which of {} says when a row was created (created_at)? Every queue needs one",
                    names.join(", ")
                ));
            }
        }
    }

    /// Gives a column a role if it can keep what the role needs.
    fn take(&mut self, role: Role, column: &'a LiveColumn) {
        let kinds = self.database.kinds(&column.type_name, role);
        // Texts are as long as UUIDs only if they are UUIDs.
        let is_uuid = column.max_length == Some(36) && kinds.contains(&Kind::Uuid) && role.suits(Kind::Uuid);
        let kind = if is_uuid {
            Some(&Kind::Uuid)
        } else {
            kinds.iter().find(|kind| role.suits(**kind))
        };
        let Some(kind) = kind.copied() else {
            let problem = format!(
                "the column {} looks like {role}, but its type {} does not suit that",
                column.name, column.type_name
            );
            return self.notes.push(problem);
        };
        if matches!(kind, Kind::EpochMs) {
            self.note(&format!(
                "is {} in milliseconds since 1970, or in seconds (epoch_s) or microseconds (epoch_us)?",
                column.name
            ));
        }
        self.columns.push(Found { role, column, kind });
    }

    fn note(&mut self, note: &str) {
        self.notes.push(note.trim_end_matches('.').to_owned());
    }

    /// A lease needs an owner, a time and a count of attempts; without all of them rows are locked while publishing.
    fn settle_lease(&mut self) {
        let timed = self.has(Role::LockedUntil) || self.has(Role::LockedAt);
        let owned = self.has(Role::LockedBy) || self.has(Role::LeaseToken);
        if !timed && !owned {
            return;
        }
        let missing = match (owned, timed, self.has(Role::Attempts)) {
            (false, ..) => "a column that says who has a row (locked_by)",
            (_, false, _) => "a column that says until when (locked_until)",
            (.., false) => "a count of attempts (attempts)",
            _ => return,
        };
        let lease = [Role::LockedBy, Role::LeaseToken, Role::LockedUntil, Role::LockedAt];
        self.columns.retain(|found| !lease.contains(&found.role));
        self.note(&format!(
            "for leases the table lacks {missing}; as it is, rows are locked while they are published"
        ));
    }

    fn leased(&self) -> bool {
        self.has(Role::LockedUntil) || self.has(Role::LockedAt)
    }

    fn toml(&mut self, sides: &[side::Side<'_>], is_log: bool) -> String {
        let mut out = String::new();
        let name = self.table.name.name.as_str();
        let own_name = kebab(name);
        say(&mut out, &format!("name = {}", text(&own_name)));
        if is_log {
            say(&mut out, "layout = \"log\"");
        }
        let topic = self.topic(&own_name);
        let order = self.order(is_log);
        say(&mut out, &format!("order = [{order}]"));
        say(&mut out, &format!("topic = {topic}"));
        if self.columns.iter().any(|found| found.kind == Kind::Timestamp) {
            say(&mut out, "zone = \"UTC\"");
            self.note("in which zone are the times without one (zone)? UTC is a guess");
        }
        say(&mut out, "\n[tables]");
        say(&mut out, &format!("outbox = {}", table_name(&self.table.name)));
        let sides: Vec<_> = sides
            .iter()
            .filter(|side| side.purpose != Table::DeadLetter || !is_log)
            .collect();
        for side in &sides {
            say(
                &mut out,
                &format!("{} = {}", side.purpose, table_name(&side.table.name)),
            );
        }
        say(&mut out, "\n[columns]");
        for found in &self.columns {
            say(&mut out, &own_line(found));
        }
        self.remark_unused(&mut out);
        for side in &sides {
            say(&mut out, &format!("\n[{}.columns]", side.purpose));
            for line in side.lines(self.database, &mut self.notes) {
                say(&mut out, &line);
            }
        }
        if !self.has(Role::Source) {
            say(&mut out, "\n[constants]");
            say(&mut out, &format!("source = {}", text(&own_name)));
            self.note("under which name does this service speak (constants.source)?");
        }
        if self.has(Role::ContentHash) {
            say(&mut out, "\n[hash]\nparts = [\"payload\"]");
            self.note("what is the hash made over, and in which order (hash.parts: event_id, event_type, payload …)?");
        }
        if !is_log {
            self.states(&mut out);
        }
        out
    }

    fn topic(&mut self, own_name: &str) -> String {
        if self.has(Role::Topic) {
            return "\"column\"".to_owned();
        }
        if self.has(Role::AggregateType) {
            self.note("are the topics named after the aggregate's type? Else write topic = \"event_type\" or { fixed = \"…\" }");
            return "{ template = \"{aggregate_type:lower}-events\" }".to_owned();
        }
        self.note("to which topic do all messages go (topic)?");
        format!("{{ fixed = {} }}", text(&format!("{own_name}-events")))
    }

    fn order(&mut self, is_log: bool) -> &'static str {
        let numbered = self
            .get(Role::Id)
            .is_some_and(|id| id.kind == Kind::Integer && (id.column.generated || is_log));
        match (numbered, self.has(Role::Seq), self.has(Role::CreatedAt)) {
            (true, ..) => "\"id\"",
            (_, true, _) => "\"seq\"",
            (.., true) => "\"created_at\", \"id\"",
            _ => {
                self.note("by which columns are rows ordered? There is no time at which they were created");
                "\"id\""
            }
        }
    }

    /// Columns without a role, for the reader of the proposal.
    fn remark_unused(&mut self, out: &mut String) {
        let used = |name: &str| self.columns.iter().any(|found| found.column.name == name);
        let unused: Vec<&LiveColumn> = self.table.columns.iter().filter(|column| !used(&column.name)).collect();
        for column in &unused {
            let remark = self.remarks.iter().find(|(name, _)| *name == column.name);
            let remark = remark.map(|(_, remark)| format!("; {remark}")).unwrap_or_default();
            let name = plain_comment(&column.name);
            say(out, &format!("# in no role: {name} ({}){remark}", column.type_name));
        }
        let wanted: Vec<_> = unused.iter().filter(|column| !column.may_be_left_out()).collect();
        for column in wanted {
            self.notes.push(format!(
                "the column {} wants a value and is in no role, so only your application can write rows",
                plain_comment(&column.name)
            ));
        }
    }

    fn states(&mut self, out: &mut String) {
        say(out, "\n[states]");
        let Some(status) = self.get(Role::Status) else {
            say(out, "# To decide: a queue needs a column for its status.");
            return self.note("which column says whether a row is delivered (status)? Nothing looks like it");
        };
        let labels = labels::of(status.column, status.kind, self.leased());
        for line in &labels.lines {
            say(out, line);
        }
        self.notes.extend(labels.notes);
    }
}

/// Why a column is not given a role that its name suggests, where the role could do harm.
fn doubt(role: Role, column: &LiveColumn) -> Option<String> {
    match role {
        Role::Seq if !column.generated => Some(
            "it is no seq: the database does not give it, and numbers that are counted per aggregate would let new aggregates \
             go before old ones"
                .to_owned(),
        ),
        Role::Headers => headers::doubt(column),
        _ => None,
    }
}

/// Whether a column has a time by its type alone.
fn is_time(column: &LiveColumn) -> bool {
    let type_name = column.type_name.to_lowercase();
    type_name.starts_with("timestamp") || type_name.starts_with("datetime")
}

/// One line of a map for a column of the outbox.
fn own_line(found: &Found<'_>) -> String {
    let mut settings = Vec::new();
    if found.role == Role::Id && found.column.generated {
        settings.push("generated = true");
    }
    if found.role == Role::Attempts && plain(&found.column.name).contains("retr") {
        settings.push("counts = \"retries\"");
    }
    line(found.role, found.column, found.kind, found.role.kind(), &settings)
}

/// One line of a map for a column of any table.
fn line(role: Role, column: &LiveColumn, kind: Kind, usual: Kind, more: &[&str]) -> String {
    let mut settings = Vec::new();
    if usual != kind {
        settings.push(format!("kind = {:?}", kind.as_str()));
    }
    settings.extend(more.iter().map(ToString::to_string));
    if let (Role::LastError, Some(max)) = (role, column.max_length) {
        settings.push(format!("max = {max}"));
    }
    if settings.is_empty() {
        return format!("{role} = {}", text(&column.name));
    }
    format!(
        "{role} = {{ column = {}, {} }}",
        text(&column.name),
        settings.join(", ")
    )
}

fn table_name(name: &TableName) -> String {
    match &name.schema {
        Some(schema) => format!(
            "{{ schema = {}, name = {} }}",
            text(schema.as_str()),
            text(name.name.as_str())
        ),
        None => text(name.name.as_str()),
    }
}

/// A text as TOML.
fn text(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

/// A name in small letters with hyphens between its words.
pub(super) fn kebab(name: &str) -> String {
    let letters = name.to_lowercase().replace(|c: char| !c.is_alphanumeric(), "-");
    let words: Vec<_> = letters.split('-').filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        "outbox".to_owned()
    } else {
        words.join("-")
    }
}

/// A name that cannot end a comment.
fn plain_comment(name: &str) -> String {
    name.replace(|c: char| c.is_control(), " ")
}

fn say(out: &mut String, line: &str) {
    writeln!(out, "{line}").expect("a String takes all that is written");
}
