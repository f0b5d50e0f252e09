//! How MySQL and MariaDB say what all databases have. Moments are `DATETIME(6)` in UTC.

use posthaste_sql::dialect::{Dialect, Form};
use posthaste_sql::table::Kind;

pub(crate) struct MySqlDialect;

const EPOCH: &str = "cast('1970-01-01' as datetime(6))";

impl Dialect for MySqlDialect {
    fn quote(&self) -> char {
        '`'
    }

    fn literal(&self, text: &str) -> String {
        // Whether a backslash escapes depends on the session's sql_mode.
        if text.contains('\\') {
            let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
            let digits: String = text
                .bytes()
                .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)])
                .collect();
            format!("_utf8mb4 x'{digits}'")
        } else {
            format!("'{}'", text.replace('\'', "''"))
        }
    }

    fn read(&self, column: &str, kind: Kind, form: Form, zone: &str) -> String {
        match (form, kind) {
            (Form::Text, Kind::Text) | (Form::Integer, Kind::Integer) | (Form::Bytes, Kind::Bytes) => column.to_owned(),
            (Form::Text, Kind::UuidBytes) => format!("lower(hex({column}))"),
            (Form::Text, Kind::Bytes) => format!("convert({column} using utf8mb4)"),
            (Form::Text, _) => format!("cast({column} as char)"),
            (Form::Bytes, Kind::Text) => format!("cast(convert({column} using utf8mb4) as binary)"),
            (Form::Bytes, _) => format!("cast(cast({column} as char) as binary)"),
            (Form::Integer, _) => format!("cast({column} as signed)"),
            (Form::Time, Kind::Timestamp) => in_zone(column, &self.zone(zone), UTC),
            (Form::Time, Kind::EpochS) => format!("timestampadd(second, {column}, {EPOCH})"),
            (Form::Time, Kind::EpochMs) => format!("timestampadd(microsecond, {column} * 1000, {EPOCH})"),
            (Form::Time, Kind::EpochUs) => format!("timestampadd(microsecond, {column}, {EPOCH})"),
            (Form::Time, _) => in_zone(column, SESSION, UTC),
            (Form::Fence, _) => format!("right({column}, 36)"),
        }
    }

    fn missing(&self, form: Form) -> &'static str {
        match form {
            Form::Time => "utc_timestamp(6)",
            Form::Text | Form::Bytes | Form::Integer | Form::Fence => "null",
        }
    }

    fn keep_time(&self, moment: &str, kind: Kind, zone: &str) -> String {
        match kind {
            Kind::Timestamp => in_zone(moment, UTC, &self.zone(zone)),
            Kind::EpochS => format!("timestampdiff(second, {EPOCH}, {moment})"),
            Kind::EpochMs => format!("timestampdiff(microsecond, {EPOCH}, {moment}) div 1000"),
            Kind::EpochUs => format!("timestampdiff(microsecond, {EPOCH}, {moment})"),
            _ => in_zone(moment, UTC, SESSION),
        }
    }

    fn part(&self, name: &str) -> Option<&'static str> {
        Some(match name {
            "and_in_scope" => include_str!("../queries/parts/and_in_scope.sql"),
            "max_attempts" => include_str!("../queries/parts/max_attempts.sql"),
            _ => return None,
        })
    }

    fn type_name(&self, kind: Kind) -> &'static str {
        match kind {
            Kind::Integer | Kind::Boolean | Kind::EpochS | Kind::EpochMs | Kind::EpochUs => "signed",
            Kind::Bytes | Kind::UuidBytes => "binary",
            _ => "char",
        }
    }
}

const UTC: &str = "'+00:00'";

/// What a `TIMESTAMP` column is read and written in.
const SESSION: &str = "@@session.time_zone";

impl MySqlDialect {
    /// `UTC` is a name that only servers with time zone tables know.
    fn zone(&self, zone: &str) -> String {
        match zone {
            "UTC" => UTC.to_owned(),
            zone => self.literal(zone),
        }
    }
}

fn in_zone(moment: &str, from: &str, to: &str) -> String {
    if from == to {
        moment.to_owned()
    } else {
        format!("convert_tz({moment}, {from}, {to})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_literal_means_the_same_in_every_sql_mode() {
        assert_eq!(MySqlDialect.literal("it's"), "'it''s'");
        assert_eq!(MySqlDialect.literal(r"\'"), "_utf8mb4 x'5c27'");
    }

    #[test]
    fn only_times_of_another_zone_are_converted() {
        let read = |kind, zone| MySqlDialect.read("t", kind, Form::Time, zone);
        assert_eq!(read(Kind::Timestamp, "UTC"), "t");
        assert_eq!(read(Kind::Timestamp, "+09:00"), "convert_tz(t, '+09:00', '+00:00')");
        assert_eq!(
            MySqlDialect.keep_time("now", Kind::Timestamp, "+09:00"),
            "convert_tz(now, '+00:00', '+09:00')"
        );
    }
}
