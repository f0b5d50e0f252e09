//! How PostgreSQL says what all databases have.

use posthaste_sql::dialect::{Dialect, Form};
use posthaste_sql::table::Kind;

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

const FIRST_TIME: &str = "timestamptz '0001-01-01 00:00+00'";
const LAST_TIME: &str = "timestamptz '9999-12-31 00:00+00'";

/// A time that a program can hold. Columns can hold more, above all `infinity`, a usual word for "until I say so".
fn in_our_time(time: &str, first: &str, last: &str) -> String {
    format!("case when {time} > {last} then {last} when {time} < {first} then {first} else {time} end")
}

fn epoch(seconds: &str) -> String {
    format!("to_timestamp({})", in_our_time(seconds, "-62135596800", "253402214400"))
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
            (Form::Integer, _) | (Form::Bytes, Kind::Bytes) => column.to_owned(),
            (Form::Time, Kind::Timestamptz) => in_our_time(column, FIRST_TIME, LAST_TIME),
            (Form::Fence, Kind::Text) => format!("right({column}, 36)"),
            (Form::Text, Kind::UuidBytes) => format!("encode({column}, 'hex')"),
            (Form::Text, Kind::Bytes) => format!("convert_from({column}, 'UTF8')"),
            // Also for texts, which may have a type of their own: an enum, varchar, citext.
            (Form::Text | Form::Fence, _) => format!("{column}::text"),
            (Form::Bytes, _) => format!("convert_to({column}::text, 'UTF8')"),
            (Form::Time, Kind::Timestamp) => in_our_time(
                &format!("({column} at time zone {})", self.zone(zone)),
                FIRST_TIME,
                LAST_TIME,
            ),
            (Form::Time, Kind::EpochS) => epoch(column),
            (Form::Time, Kind::EpochMs) => epoch(&format!("{column} / 1000.0")),
            (Form::Time, _) => epoch(&format!("{column} / 1000000.0")),
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

    fn part(&self, name: &str) -> Option<&'static str> {
        Some(match name {
            "and_due" => include_str!("../queries/parts/and_due.sql"),
            "in_scope" => include_str!("../queries/parts/in_scope.sql"),
            "max_attempts" => include_str!("../queries/parts/max_attempts.sql"),
            _ => return None,
        })
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
