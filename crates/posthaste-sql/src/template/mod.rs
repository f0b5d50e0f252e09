//! Statements as whole SQL files, finished with the names of a table map.
//!
//! A file stays readable SQL, so that a DBA can open it and an editor can colour it:
//!
//! - `"@outbox"` is the quoted table of that purpose, with its schema; `"@schema"` the schema alone;
//! - `"@outbox+fresh"` is the quoted name of an index that is named after its table;
//! - `"@topic"` is the quoted column of that role, `"@o.topic"` the same behind the alias `o`;
//! - `"@o.payload:bytes"` is an expression that reads the column in a form (`text`, `bytes`, `int`, `time`, `fence`),
//!   however it is kept, and nothing where the table has no such column;
//! - `"@o.order"` are the columns by which the table is ordered; `"@o.order:as"` names them for the statement around,
//!   which says `"@x.order:ref"`;
//! - `"@failed/last_error"` is a column of a table beside the outbox, with alias and form as above;
//!   `"@dead_letter/*"` are all its columns, `"@o.dead_letter:values"` what is put into them;
//! - `'@pending'` is the table's label for that state, as a literal; `'@open'` all labels of rows that may be claimed, for
//!   `in (…)`; `'@schema'` the schema as a literal, `'@schema.log_segment'` what stands in it under that name, as
//!   `regclass` reads it;
//! - `/*if tenant*/ … /*else*/ … /*end*/` keeps the first part if the table has that role (or table, or property, see
//!   [`Part::named`](crate::table::Part::named)), else the second. `/*if a and b*/` and `/*if a or b*/` ask for several;
//! - `"@o.message"` are the columns that make a message, each read in its form and named after its role;
//! - `/*put o.in_scope*/` is a part that several statements of a database have in common, with its columns behind the alias
//!   `o`; see [`Dialect::part`];
//! - `/*as next_attempt_at*/ now() /*end*/` turns a moment into what that column keeps;
//! - `/*type id*/ uuid /*end*/` is the type of that column's parameter.
//!
//! Parts may be nested. What is put in is never read again, so no name can smuggle in a placeholder.

mod choice;
mod common;
mod condition;
mod parse;
mod placeholder;
#[cfg(test)]
mod tests;

use thiserror::Error;

pub use choice::Choice;

use posthaste_core::StoreError;

use crate::closest::closest;
use crate::dialect::{Dialect, Form};
use crate::table::{Column, Identifier, Part, Role, StateLabel, Table, TableMap};
use parse::{Piece, parse};
use placeholder::{ColumnName, OrderForm, Placeholder, StatePlaceholder, What};

/// A statement that cannot be finished.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// The map has nothing for a placeholder.
    #[error("{}", unknown(map, kind, name))]
    Unknown {
        /// The map.
        map: String,
        /// `table or column`, or `state`.
        kind: &'static str,
        /// The placeholder.
        name: String,
    },
    /// A part or a placeholder asks for what no table can have.
    #[error("`{place}` asks for `{name}`, which no table can have{}", meant.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default())]
    NoSuchPart {
        /// The part or the placeholder.
        place: String,
        /// What is not known.
        name: String,
        /// What is nearest to it.
        meant: Option<&'static str>,
    },
    /// `if`, `else` and `end` do not match.
    #[error("the part that begins with `{part}` has no end, or an end has no beginning")]
    Unbalanced {
        /// How it begins.
        part: String,
    },
}

/// Of what a whole layout needs, the field of the map says more than a statement.
fn unknown(map: &str, kind: &str, name: &str) -> String {
    if name == Role::CreatedAt.to_string() {
        return format!("columns.{name}: every queue needs it, and the table map `{map}` names no column for it");
    }
    format!("the table map `{map}` has no {kind} for `{name}`, which this statement needs")
}

impl From<TemplateError> for StoreError {
    fn from(error: TemplateError) -> Self {
        Self {
            source: Some(Box::new(error.clone())),
            ..Self::unsupported(error.to_string(), Some("map the column, or leave out what needs it"))
        }
    }
}

/// The columns that make a message, and how they are read.
const MESSAGE: [(Role, Form); 15] = [
    (Role::Id, Form::Text),
    (Role::EventId, Form::Text),
    (Role::Namespace, Form::Text),
    (Role::Topic, Form::Text),
    (Role::OrderingKey, Form::Text),
    (Role::Tenant, Form::Text),
    (Role::DedupeKey, Form::Text),
    (Role::EventType, Form::Text),
    (Role::Source, Form::Text),
    (Role::AggregateType, Form::Text),
    (Role::AggregateId, Form::Text),
    (Role::ContentType, Form::Text),
    (Role::Payload, Form::Bytes),
    (Role::Headers, Form::Text),
    (Role::ContentHash, Form::Bytes),
];

/// Puts a map's names into a statement.
pub fn render(sql: &str, map: &TableMap, dialect: &dyn Dialect) -> Result<String, TemplateError> {
    let sql = common::put_in(sql, dialect)?;
    let mut out = String::with_capacity(sql.len() * 2);
    Renderer { map, dialect }.pieces(&parse(&sql)?, &mut out)?;
    // What parts that were left out leave behind. No name contains a line break.
    let lines = out.lines().map(str::trim_end).filter(|line| !line.is_empty());
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

struct Renderer<'a> {
    map: &'a TableMap,
    dialect: &'a dyn Dialect,
}

impl Renderer<'_> {
    fn pieces(&self, pieces: &[Piece<'_>], out: &mut String) -> Result<(), TemplateError> {
        for piece in pieces {
            match piece {
                Piece::Sql(sql) => out.push_str(sql),
                Piece::Name(name) => out.push_str(&self.name(name)?),
                Piece::StateLabel(label) => out.push_str(&self.label(*label)?),
                Piece::If {
                    condition,
                    then,
                    otherwise,
                } => {
                    let mut chosen = String::new();
                    self.pieces(if condition.holds(self.map) { then } else { otherwise }, &mut chosen)?;
                    out.push_str(chosen.trim());
                }
                Piece::As { column, inside } => {
                    let mut moment = String::new();
                    self.pieces(inside, &mut moment)?;
                    let kind = self.column(*column)?.kind;
                    out.push_str(&self.dialect.keep_time(moment.trim(), kind, self.map.zone()));
                }
                Piece::Type { column } => out.push_str(self.dialect.type_name(self.column(*column)?.kind)),
            }
        }
        Ok(())
    }

    fn label(&self, label: StatePlaceholder<'_>) -> Result<String, TemplateError> {
        let labels = match label {
            StatePlaceholder::Schema => {
                let schema = self.map.schema().ok_or_else(|| self.unknown("schema", label.name()))?;
                return Ok(self.dialect.literal(schema.as_str()));
            }
            StatePlaceholder::InSchema(name) => {
                let schema = self.map.schema().ok_or_else(|| self.unknown("schema", label.name()))?;
                let schema = schema.quoted(self.dialect.quote());
                return Ok(self.dialect.literal(&format!("{schema}.{name}")));
            }
            StatePlaceholder::Open => self.map.claimable_labels(),
            StatePlaceholder::Waiting | StatePlaceholder::State(_) => {
                self.map.label(label.name()).into_iter().collect()
            }
        };
        if labels.is_empty() {
            return Err(self.unknown("state", label.name()));
        }
        let literals: Vec<String> = labels.into_iter().map(|label| self.literal(label)).collect();
        Ok(literals.join(", "))
    }

    fn literal(&self, label: &StateLabel) -> String {
        match label {
            StateLabel::Text(text) => self.dialect.literal(text),
            StateLabel::Number(_) | StateLabel::Boolean(_) => label.to_string(),
        }
    }

    fn name(&self, name: &Placeholder<'_>) -> Result<String, TemplateError> {
        let quote = self.dialect.quote();
        let quoted = |column: &Column| format!("{}{}", name.alias, column.name.quoted(quote));
        match &name.what {
            What::Schema => {
                let schema = self.map.schema().map(|schema: &Identifier| schema.quoted(quote));
                schema.ok_or_else(|| self.unknown("schema", "schema"))
            }
            What::Order(form) => self.order(name.alias, *form),
            What::DeadLetterValues => self.dead_letter_values(name.alias),
            What::AllColumns(table) => {
                let columns: Vec<_> = self
                    .map
                    .side_columns(*table)
                    .map(|(_, column)| quoted(column))
                    .collect();
                Ok(columns.join(", "))
            }
            What::Table(table) => {
                let found = self.map.table(*table).map(|table| table.quoted(quote));
                found.ok_or_else(|| self.unknown("table or column", table.name()))
            }
            What::Index(table, purpose) => {
                let table = self
                    .map
                    .table(*table)
                    .ok_or_else(|| self.unknown("table or column", table.name()))?;
                Ok(table.name.quoted_with(&format!("_{purpose}"), quote))
            }
            What::Message => {
                let columns = MESSAGE.map(|(role, form)| {
                    let read = self.read(name.alias, ColumnName::Outbox(role), form);
                    format!("{read} as {role}")
                });
                Ok(columns.join(", "))
            }
            What::Column(column, None) => self.column(*column).map(quoted),
            What::Column(column, Some(form)) => Ok(self.read(name.alias, *column, *form)),
        }
    }

    fn order(&self, alias: &str, form: OrderForm) -> Result<String, TemplateError> {
        let mut columns = Vec::new();
        for (place, role) in self.map.order().iter().enumerate() {
            let name = self
                .column(ColumnName::Outbox(*role))?
                .name
                .quoted(self.dialect.quote());
            columns.push(match form {
                OrderForm::Columns => format!("{alias}{name}"),
                OrderForm::As => format!("{alias}{name} as order_{place}"),
                OrderForm::Ref => format!("{alias}order_{place}"),
            });
        }
        Ok(columns.join(", "))
    }

    /// What goes into each of the columns that `"@dead_letter/*"` lists: the same role of the outbox, but the time is now.
    fn dead_letter_values(&self, alias: &str) -> Result<String, TemplateError> {
        let mut values = Vec::new();
        for (role, column) in self.map.side_columns(Table::DeadLetter) {
            values.push(if role == Role::CreatedAt {
                let moment = self.dialect.missing(Form::Time);
                self.dialect.keep_time(moment, column.kind, self.map.zone())
            } else {
                format!(
                    "{alias}{}",
                    self.column(ColumnName::Outbox(role))?.name.quoted(self.dialect.quote())
                )
            });
        }
        Ok(values.join(", "))
    }

    fn read(&self, alias: &str, column: ColumnName, form: Form) -> String {
        let Some(column) = self.find(column) else {
            return self.dialect.missing(form).to_owned();
        };
        let quoted = format!("{alias}{}", column.name.quoted(self.dialect.quote()));
        self.dialect.read(&quoted, column.kind, form, self.map.zone())
    }

    fn find(&self, column: ColumnName) -> Option<&Column> {
        match column {
            ColumnName::Outbox(role) => self.map.column(role),
            ColumnName::Side(table, role) => self.map.side_column(table, role),
        }
    }

    fn column(&self, column: ColumnName) -> Result<&Column, TemplateError> {
        let (ColumnName::Outbox(role) | ColumnName::Side(_, role)) = column;
        self.find(column)
            .ok_or_else(|| self.unknown("table or column", role.name()))
    }

    fn unknown(&self, kind: &'static str, name: &str) -> TemplateError {
        TemplateError::Unknown {
            map: self.map.name().to_owned(),
            kind,
            name: name.to_owned(),
        }
    }
}

fn unbalanced(part: &str) -> TemplateError {
    TemplateError::Unbalanced { part: part.to_owned() }
}

fn no_such_part(place: &str, name: &str) -> TemplateError {
    TemplateError::NoSuchPart {
        place: place.to_owned(),
        name: name.to_owned(),
        meant: closest(name, &Part::names().collect::<Vec<_>>()),
    }
}
