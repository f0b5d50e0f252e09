//! How PostgreSQL says what all databases have.

use posthaste_core::dialect::{Dialect, Form};
use posthaste_core::table::Kind;

pub(crate) struct PostgresDialect;

impl PostgresDialect {
    /// A zone for `at time zone`. As a text an offset would count the wrong way: PostgreSQL takes it as POSIX does.
    fn zone(&self, zone: &str) -> String {
        match zone.starts_with(['+', '-']) {
            true if zone.contains(':') => format!("interval {}", self.literal(zone)),
            true => format!("interval {}", self.literal(&format!("{zone}:00"))),
            false => self.literal(zone),
        }
    }
}

impl Dialect for PostgresDialect {
    fn quote(&self) -> char {
        '"'
    }

    fn literal(&self, text: &str) -> String {
        let doubled = text.replace('\'', "''");
        // Whatever standard_conforming_strings says.
        if doubled.contains('\\') {
            format!("E'{}'", doubled.replace('\\', "\\\\"))
        } else {
            format!("'{doubled}'")
        }
    }

    fn read(&self, column: &str, kind: Kind, form: Form, zone: &str) -> String {
        match (form, kind) {
            (Form::Integer, _) | (Form::Time, Kind::Timestamptz) | (Form::Bytes, Kind::Bytes) => column.to_owned(),
            (Form::Fence, Kind::Text) => format!("right({column}, 36)"),
            (Form::Text, Kind::UuidBytes) => format!("encode({column}, 'hex')"),
            (Form::Text, Kind::Bytes) => format!("convert_from({column}, 'UTF8')"),
            // Also for texts, which may have a type of their own: an enum, varchar, citext.
            (Form::Text | Form::Fence, _) => format!("{column}::text"),
            (Form::Bytes, _) => format!("convert_to({column}::text, 'UTF8')"),
            (Form::Time, Kind::Timestamp) => format!("({column} at time zone {})", self.zone(zone)),
            (Form::Time, Kind::EpochS) => format!("to_timestamp({column})"),
            (Form::Time, Kind::EpochMs) => format!("to_timestamp({column} / 1000.0)"),
            (Form::Time, _) => format!("to_timestamp({column} / 1000000.0)"),
        }
    }

    fn missing(&self, form: Form) -> &'static str {
        match form {
            Form::Text | Form::Fence => "null::text",
            Form::Bytes => "null::bytea",
            Form::Integer => "null::bigint",
            Form::Time => "now()",
        }
    }

    fn keep_time(&self, moment: &str, kind: Kind, zone: &str) -> String {
        let epoch = |factor: u32| format!("(extract(epoch from {moment}) * {factor})::bigint");
        match kind {
            Kind::Timestamp => format!("(({moment}) at time zone {})", self.zone(zone)),
            Kind::EpochS => epoch(1),
            Kind::EpochMs => epoch(1_000),
            Kind::EpochUs => epoch(1_000_000),
            _ => moment.to_owned(),
        }
    }

    fn type_name(&self, kind: Kind) -> &'static str {
        match kind {
            Kind::Uuid => "uuid",
            Kind::Integer => "bigint",
            Kind::Json => "json",
            Kind::Jsonb => "jsonb",
            Kind::Bytes | Kind::UuidBytes => "bytea",
            Kind::Boolean => "boolean",
            _ => "text",
        }
    }
}
