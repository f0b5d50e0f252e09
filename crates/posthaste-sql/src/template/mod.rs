//! Statements as whole SQL files, finished with the names of a table map.
//!
//! A file stays readable SQL, so that a DBA can open it and an editor can colour it:
//!
//! - `"@outbox"` is the quoted table of that purpose, with its schema; `"@schema"` the schema alone;
//! - `"@topic"` is the quoted column of that role, `"@o.topic"` the same behind the alias `o`;
//! - `"@o.payload:bytes"` is an expression that reads the column in a form (`text`, `bytes`, `int`, `time`, `fence`),
//!   however it is kept, and nothing where the table has no such column;
//! - `"@o.order"` are the columns by which the table is ordered; `"@o.order:as"` names them for the statement around,
//!   which says `"@x.order:ref"`;
//! - `"@failed/last_error"` is a column of a table beside the outbox, with alias and form as above;
//!   `"@dead_letter/*"` are all its columns, `"@o.dead_letter:values"` what is put into them;
//! - `'@pending'` is the table's word for that state, as a literal; `'@open'` all words of rows that may be claimed, for
//!   `in (…)`; `'@schema'` the schema as a literal;
//! - `/*if tenant*/ … /*else*/ … /*end*/` keeps the first part if the table has that role (or table, or property, see
//!   [`Part::named`](crate::table::Part::named)), else the second. `/*if a and b*/` and `/*if a or b*/` ask for several;
//! - `/*as next_attempt_at*/ now() /*end*/` turns a moment into what that column keeps;
//! - `/*type id*/ uuid /*end*/` is the type of that column's parameter.
//!
//! Parts may be nested. What is put in is never read again, so no name can smuggle in a placeholder.

mod condition;
mod parse;
#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::dialect::{Dialect, Form};
use crate::table::{Column, Identifier, TableMap, Word};
use parse::{Piece, parse};

/// A statement that cannot be finished.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TemplateError {
    /// The map has nothing for a placeholder.
    #[error("the table map `{map}` has no {kind} for `{name}`, which this statement needs")]
    Unknown {
        /// The map.
        map: String,
        /// `table or column`, or `state`.
        kind: &'static str,
        /// The placeholder.
        name: String,
    },
    /// A part asks for what no table can have.
    #[error("`/*if {condition}*/` asks for `{name}`, which no table can have{}", meant.map(|name| format!("; did you mean `{name}`?")).unwrap_or_default())]
    NoSuchPart {
        /// What stands behind `if`.
        condition: String,
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

/// Puts a map's names into a statement.
pub fn render(sql: &str, map: &TableMap, dialect: &dyn Dialect) -> Result<String, TemplateError> {
    let mut out = String::with_capacity(sql.len() * 2);
    Renderer { map, dialect }.pieces(&parse(sql)?, &mut out)?;
    Ok(out)
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
                Piece::Word(name) => out.push_str(&self.word(name)?),
                Piece::If {
                    condition,
                    then,
                    otherwise,
                } => {
                    let mut chosen = String::new();
                    self.pieces(if condition.holds(self.map) { then } else { otherwise }, &mut chosen)?;
                    out.push_str(chosen.trim());
                }
                Piece::As { role, inside } => {
                    let mut moment = String::new();
                    self.pieces(inside, &mut moment)?;
                    let kind = self.column(role)?.kind;
                    out.push_str(&self.dialect.keep_time(moment.trim(), kind, self.map.zone()));
                }
                Piece::Type { role } => out.push_str(self.dialect.type_name(self.column(role)?.kind)),
            }
        }
        Ok(())
    }

    fn word(&self, name: &str) -> Result<String, TemplateError> {
        let words = match name {
            "schema" => {
                let schema = self.map.schema().ok_or_else(|| self.unknown("schema", name))?;
                return Ok(self.dialect.literal(schema.as_str()));
            }
            "open" => self.map.open_words(),
            _ => self.map.word(name).into_iter().collect(),
        };
        if words.is_empty() {
            return Err(self.unknown("state", name));
        }
        let literals: Vec<String> = words.into_iter().map(|word| self.literal(word)).collect();
        Ok(literals.join(", "))
    }

    fn literal(&self, word: &Word) -> String {
        match word {
            Word::Text(text) => self.dialect.literal(text),
            Word::Number(_) | Word::Boolean(_) => word.to_string(),
        }
    }

    /// `[alias.][table/]role[:form]`
    fn name(&self, name: &str) -> Result<String, TemplateError> {
        let quote = self.dialect.quote();
        let (path, form) = match name.split_once(':') {
            Some((path, form)) => (path, Some(form)),
            None => (name, None),
        };
        let (alias, role) = match path.split_once('.') {
            Some((alias, role)) => (format!("{alias}."), role),
            None => (String::new(), path),
        };
        let quoted = |column: &Column| alias.clone() + &column.name.quoted(quote);
        match (role, form) {
            ("order", _) => return self.order(&alias, form),
            ("dead_letter", Some("values")) => return self.dead_letter_values(&alias),
            ("schema", None) => {
                let schema = self.map.schema().map(|schema: &Identifier| schema.quoted(quote));
                return schema.ok_or_else(|| self.unknown("schema", role));
            }
            _ => {}
        }
        if let (Some(table), None) = (self.map.table(role), form) {
            return Ok(table.quoted(quote));
        }
        if let Some(purpose) = role.strip_suffix("/*") {
            let columns: Vec<_> = self
                .map
                .side_columns(purpose)
                .map(|(_, column)| quoted(column))
                .collect();
            return Ok(columns.join(", "));
        }
        let column = match role.split_once('/') {
            Some((purpose, role)) => self.map.side_column(purpose, role),
            None => self.map.column(role),
        };
        let form = form
            .map(|form| Form::named(form).ok_or_else(|| self.unknown("form", form)))
            .transpose()?;
        match (column, form) {
            (Some(column), None) => Ok(quoted(column)),
            (Some(column), Some(form)) => Ok(self.dialect.read(&quoted(column), column.kind, form, self.map.zone())),
            (None, Some(form)) => Ok(self.dialect.missing(form).to_owned()),
            (None, None) => Err(self.unknown("table or column", role)),
        }
    }

    fn order(&self, alias: &str, form: Option<&str>) -> Result<String, TemplateError> {
        let mut columns = Vec::new();
        for (place, role) in self.map.order().iter().enumerate() {
            let name = self.column(role)?.name.quoted(self.dialect.quote());
            columns.push(match form {
                None => format!("{alias}{name}"),
                Some("as") => format!("{alias}{name} as order_{place}"),
                Some("ref") => format!("{alias}order_{place}"),
                Some(other) => return Err(self.unknown("form", other)),
            });
        }
        Ok(columns.join(", "))
    }

    /// What goes into each of the columns that `"@dead_letter/*"` lists: the same role of the outbox, but the time is now.
    fn dead_letter_values(&self, alias: &str) -> Result<String, TemplateError> {
        let mut values = Vec::new();
        for (role, column) in self.map.side_columns("dead_letter") {
            values.push(if role == "created_at" {
                let moment = self.dialect.missing(Form::Time);
                self.dialect.keep_time(moment, column.kind, self.map.zone())
            } else {
                format!("{alias}{}", self.column(role)?.name.quoted(self.dialect.quote()))
            });
        }
        Ok(values.join(", "))
    }

    fn column(&self, role: &str) -> Result<&Column, TemplateError> {
        let column = match role.split_once('/') {
            Some((purpose, role)) => self.map.side_column(purpose, role),
            None => self.map.column(role),
        };
        column.ok_or_else(|| self.unknown("table or column", role))
    }

    fn unknown(&self, kind: &'static str, name: &str) -> TemplateError {
        TemplateError::Unknown {
            map: self.map.name().to_owned(),
            kind,
            name: name.to_owned(),
        }
    }
}
