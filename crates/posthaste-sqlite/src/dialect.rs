//! How SQLite says what all databases have. Moments are milliseconds since 1970.

use posthaste_core::dialect::{Dialect, Form};
use posthaste_core::table::Kind;

pub(crate) struct SqliteDialect;

impl Dialect for SqliteDialect {
    fn quote(&self) -> char {
        '"'
    }

    fn literal(&self, text: &str) -> String {
        format!("'{}'", text.replace('\'', "''"))
    }

    fn read(&self, column: &str, kind: Kind, form: Form, _zone: &str) -> String {
        match (form, kind) {
            (Form::Integer, _) | (Form::Time, Kind::EpochMs) | (Form::Bytes, Kind::Bytes) => column.to_owned(),
            (Form::Text, Kind::Text | Kind::Uuid) => column.to_owned(),
            (Form::Text, Kind::UuidBytes) => format!("lower(hex({column}))"),
            (Form::Text, _) => format!("cast({column} as text)"),
            (Form::Bytes, _) => format!("cast({column} as blob)"),
            (Form::Time, Kind::EpochS) => format!("({column} * 1000)"),
            (Form::Time, Kind::EpochUs) => format!("({column} / 1000)"),
            (Form::Time, _) => format!("cast(unixepoch({column}, 'subsec') * 1000 as integer)"),
            (Form::Fence, _) => format!("substr({column}, -36)"),
        }
    }

    fn missing(&self, form: Form) -> &'static str {
        match form {
            Form::Time => "cast(unixepoch('subsec') * 1000 as integer)",
            _ => "null",
        }
    }

    fn keep_time(&self, moment: &str, kind: Kind, _zone: &str) -> String {
        match kind {
            Kind::EpochMs => moment.to_owned(),
            Kind::EpochS => format!("(({moment}) / 1000)"),
            Kind::EpochUs => format!("(({moment}) * 1000)"),
            _ => format!("strftime('%Y-%m-%d %H:%M:%f', ({moment}) / 1000.0, 'unixepoch')"),
        }
    }

    fn type_name(&self, kind: Kind) -> &'static str {
        match kind {
            Kind::Integer | Kind::Boolean | Kind::EpochS | Kind::EpochMs | Kind::EpochUs => "integer",
            Kind::Bytes | Kind::UuidBytes => "blob",
            _ => "text",
        }
    }
}
