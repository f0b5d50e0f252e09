//! How SQLite says what all databases have. Moments are milliseconds since 1970.

use posthaste_sql::dialect::{Dialect, Form};
use posthaste_sql::table::Kind;

pub(crate) struct SqliteDialect;

impl Dialect for SqliteDialect {
    fn quote(&self) -> char {
        '"'
    }

    fn literal(&self, text: &str) -> String {
        format!("'{}'", text.replace('\'', "''"))
    }

    /// All but times is cast, because what a column holds need not be of its declared type. A time in milliseconds is compared
    /// with what an index has, and read with care.
    fn read(&self, column: &str, kind: Kind, form: Form, zone: &str) -> String {
        match (form, kind) {
            (Form::Time, Kind::EpochMs) | (Form::Fence, Kind::Uuid) => column.to_owned(),
            (Form::Integer, _) => format!("cast({column} as integer)"),
            (Form::Text, Kind::UuidBytes) => hyphenated(column),
            (Form::Text, _) => format!("cast({} as text)", json(column, kind)),
            (Form::Bytes, _) => format!("cast({} as blob)", json(column, kind)),
            (Form::Time, Kind::EpochS) => format!("cast({column} * 1000 as integer)"),
            (Form::Time, Kind::EpochUs) => format!("cast({column} / 1000 as integer)"),
            (Form::Time, Kind::Timestamp) => {
                format!(
                    "cast(round(unixepoch({column}, '{}', 'subsec') * 1000) as integer)",
                    shift(zone, true)
                )
            }
            (Form::Time, _) => format!("cast(round(unixepoch({column}, 'subsec') * 1000) as integer)"),
            (Form::Fence, _) => format!("substr({column}, -36)"),
        }
    }

    fn missing(&self, form: Form) -> &'static str {
        match form {
            Form::Time => "cast(unixepoch('subsec') * 1000 as integer)",
            _ => "null",
        }
    }

    /// What is not a time comes as text: an id, a key, a hash in hexadecimal digits.
    fn keep_time(&self, value: &str, kind: Kind, zone: &str) -> String {
        match kind {
            Kind::EpochS => format!("(({value}) / 1000)"),
            Kind::EpochUs => format!("(({value}) * 1000)"),
            Kind::Timestamptz => format!("strftime('%Y-%m-%d %H:%M:%f', ({value}) / 1000.0, 'unixepoch')"),
            Kind::Timestamp => format!(
                "strftime('%Y-%m-%d %H:%M:%f', ({value}) / 1000.0, 'unixepoch', '{}')",
                shift(zone, false)
            ),
            // A text that is no number must not become 0.
            Kind::Integer => {
                format!("iif(cast(cast({value} as integer) as text) = {value}, cast({value} as integer), null)")
            }
            Kind::UuidBytes => format!("unhex(replace({value}, '-', ''))"),
            Kind::Bytes => format!("unhex({value})"),
            Kind::EpochMs | Kind::Uuid | Kind::Text | Kind::Json | Kind::Jsonb | Kind::Boolean => value.to_owned(),
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
            Kind::Integer | Kind::Boolean | Kind::EpochS | Kind::EpochMs | Kind::EpochUs => "integer",
            Kind::Bytes | Kind::UuidBytes => "blob",
            _ => "text",
        }
    }
}

/// JSON may be kept in SQLite's own binary form.
fn json(column: &str, kind: Kind) -> String {
    match kind {
        Kind::Jsonb => format!("iif(json_valid({column}, 8), json({column}), {column})"),
        _ => column.to_owned(),
    }
}

fn hyphenated(column: &str) -> String {
    let part = |start: u8, length: u8| format!("substr(hex({column}), {start}, {length})");
    let parts = [part(1, 8), part(9, 4), part(13, 4), part(17, 4), part(21, 12)];
    format!("iif({column} is null, null, lower({}))", parts.join(" || '-' || "))
}

/// How far a zone's clocks are from UTC, as SQLite has it; or how far UTC is from them.
fn shift(zone: &str, back: bool) -> String {
    match (offset(zone), back) {
        (Some(offset), true) if offset.starts_with('-') => offset.replacen('-', "+", 1),
        (Some(offset), true) => offset.replacen('+', "-", 1),
        (Some(offset), false) => offset,
        (None, _) => "+00:00".to_owned(),
    }
}

/// `+09:00` for `+09:00`, and nothing for what SQLite does not know: it has no list of zones.
pub(crate) fn offset(zone: &str) -> Option<String> {
    if matches!(zone, "UTC" | "Z") {
        return Some("+00:00".to_owned());
    }
    let (hours, minutes) = zone.strip_prefix(['+', '-'])?.split_once(':')?;
    let is_number = |text: &str| text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
    (is_number(hours) && is_number(minutes)).then(|| zone.to_owned())
}
