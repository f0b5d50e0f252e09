//! What stands for a name of the table map. Taken apart when the statement is built, whichever parts of it a map then chooses,
//! so that a misspelt name is an error for every map.

use posthaste_core::lifecycle::State;

use super::{TemplateError, no_such_part};
use crate::dialect::Form;
use crate::table::{Part, Role, Table};

/// `"@[alias.]what[:form]"`
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Placeholder<'a> {
    /// With its dot, or nothing.
    pub(super) alias: &'a str,
    pub(super) what: What<'a>,
}

/// What a placeholder stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum What<'a> {
    /// `schema`
    Schema,
    /// `order`, `order:as`, `order:ref`
    Order(OrderForm),
    /// `message`
    Message,
    /// `dead_letter:values`
    DeadLetterValues,
    /// `dead_letter/*`
    AllColumns(Table),
    /// `outbox`
    Table(Table),
    /// `outbox+fresh`
    Index(Table, &'a str),
    /// `topic`, `topic:text`, `failed/last_error`
    Column(ColumnName, Option<Form>),
}

/// How the columns by which a table is ordered are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OrderForm {
    Columns,
    As,
    Ref,
}

/// A column of the outbox, or of a table beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnName {
    Outbox(Role),
    Side(Table, Role),
}

impl ColumnName {
    /// `topic` or `failed/last_error`
    pub(super) fn parse(place: &str, name: &str) -> Result<Self, TemplateError> {
        match Part::named(name) {
            Some(Part::Role(role)) => Ok(Self::Outbox(role)),
            Some(Part::SideColumn(table, role)) => Ok(Self::Side(table, role)),
            Some(Part::Table(_) | Part::Property(_)) | None => Err(no_such_part(place, name)),
        }
    }
}

/// `'@…'`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatePlaceholder<'a> {
    /// `schema`: not a state, but a literal as well.
    Schema,
    /// `schema.log_segment`: what stands in the schema under this name, as `regclass` reads it.
    InSchema(&'a str),
    /// `open`
    Open,
    /// `waiting`
    Waiting,
    State(State),
}

impl<'a> StatePlaceholder<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, TemplateError> {
        if let Some(name) = text.strip_prefix("schema.") {
            return Ok(Self::InSchema(name));
        }
        let state = State::ALL.into_iter().find(|state| state.as_str() == text);
        match (text, state) {
            ("schema", _) => Ok(Self::Schema),
            ("open", _) => Ok(Self::Open),
            ("waiting", _) => Ok(Self::Waiting),
            (_, Some(state)) => Ok(Self::State(state)),
            (_, None) => Err(no_such_part(&format!("'@{text}'"), text)),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Schema | Self::InSchema(_) => "schema",
            Self::Open => "open",
            Self::Waiting => "waiting",
            Self::State(state) => state.as_str(),
        }
    }
}

impl<'a> Placeholder<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, TemplateError> {
        let place = format!("\"@{text}\"");
        let (path, form) = match text.split_once(':') {
            Some((path, form)) => (path, Some(form)),
            None => (text, None),
        };
        let (alias, name) = path.find('.').map_or(("", path), |dot| path.split_at(dot + 1));
        let what = match (name, form) {
            ("schema", None) => What::Schema,
            ("message", None) => What::Message,
            ("order", None) => What::Order(OrderForm::Columns),
            ("order", Some("as")) => What::Order(OrderForm::As),
            ("order", Some("ref")) => What::Order(OrderForm::Ref),
            ("dead_letter", Some("values")) => What::DeadLetterValues,
            (name, None) if name.ends_with("/*") => {
                let table = Table::named(name.trim_end_matches("/*"));
                What::AllColumns(table.ok_or_else(|| no_such_part(&place, name))?)
            }
            (name, None) if name.contains('+') => {
                let (table, purpose) = name.split_once('+').unwrap_or_default();
                What::Index(Table::named(table).ok_or_else(|| no_such_part(&place, table))?, purpose)
            }
            (name, form) => {
                if let (Some(table), None) = (Table::named(name), form) {
                    What::Table(table)
                } else {
                    let column = ColumnName::parse(&place, name)?;
                    let form = form.map(|form| Form::named(form).ok_or_else(|| no_such_part(&place, form)));
                    What::Column(column, form.transpose()?)
                }
            }
        };
        Ok(Self { alias, what })
    }
}
