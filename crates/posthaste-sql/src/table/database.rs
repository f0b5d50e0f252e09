//! What the databases call their types, and what they can do.

use super::{Kind, Role, Strategy};

/// A kind of database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database {
    /// PostgreSQL.
    Postgres,
    /// SQLite.
    Sqlite,
    /// MySQL and MariaDB.
    MySql,
}

impl Database {
    /// The name of the product.
    pub fn product(self) -> &'static str {
        match self {
            Self::Postgres => "PostgreSQL",
            Self::Sqlite => "SQLite",
            Self::MySql => "MySQL/MariaDB",
        }
    }

    /// The quote for identifiers.
    pub fn quote(self) -> char {
        match self {
            Self::MySql => '`',
            _ => '"',
        }
    }

    /// Why rows cannot be claimed in this way, if they cannot.
    pub fn refuses(self, strategy: Strategy) -> Option<&'static str> {
        match (self, strategy) {
            (Self::Sqlite, Strategy::RowLocks) => Some(
                "SQLite has no row locks to hold while publishing; add columns for a lease (locked_by, locked_until and \
                 attempts) and map them",
            ),
            (Self::Sqlite | Self::MySql, Strategy::Log) => Some(
                "a log with a cursor is served on PostgreSQL only, which alone can tell a gap from a transaction that is \
                 still open; use a table with a status",
            ),
            _ => None,
        }
    }

    /// Whether it keeps to the lengths of its columns.
    pub fn keeps_lengths(self) -> bool {
        self != Self::Sqlite
    }

    /// The type of a column of some kind, for one that has to be made. `length` is the most characters it must hold.
    pub fn column_type(self, kind: Kind, length: Option<usize>) -> String {
        let text = |otherwise: &str| match length {
            Some(length) if self != Self::Sqlite => format!("varchar({length})"),
            _ => otherwise.to_owned(),
        };
        match (self, kind) {
            (Self::Postgres | Self::Sqlite, Kind::Text) => text("text"),
            (Self::MySql, Kind::Text) => text("varchar(255)"),
            (Self::Postgres, Kind::Uuid) => "uuid".to_owned(),
            (Self::MySql, Kind::Uuid) => "char(36)".to_owned(),
            (Self::Sqlite, Kind::Uuid | Kind::Json | Kind::Jsonb | Kind::Timestamptz | Kind::Timestamp) => {
                "text".to_owned()
            }
            (Self::Sqlite, Kind::Bytes | Kind::UuidBytes) => "blob".to_owned(),
            (Self::Sqlite, _) => "integer".to_owned(),
            (Self::Postgres, Kind::Bytes | Kind::UuidBytes) => "bytea".to_owned(),
            (Self::MySql, Kind::UuidBytes) => "binary(16)".to_owned(),
            (Self::MySql, Kind::Bytes) => "longblob".to_owned(),
            (Self::MySql, Kind::Json | Kind::Jsonb) => "json".to_owned(),
            (Self::MySql, Kind::Timestamp | Kind::Timestamptz) => "datetime(6)".to_owned(),
            (_, Kind::Integer | Kind::EpochS | Kind::EpochMs | Kind::EpochUs) => "bigint".to_owned(),
            (_, kind) => kind.word().to_owned(),
        }
    }

    /// The kinds that a column of this type can keep in some role, the most likely first; none if the type is not known
    /// here.
    pub fn kinds(self, type_name: &str, role: Role) -> &'static [Kind] {
        match self {
            // Statements name the words of the states, and take any other text from a parameter.
            Self::Postgres if role == Role::Status && type_name.starts_with("enum ") => &[Kind::Text],
            Self::Postgres => postgres(type_name),
            Self::Sqlite => sqlite(type_name),
            Self::MySql => mysql(type_name),
        }
    }
}

const NUMBERS: &[Kind] = &[Kind::Integer, Kind::EpochMs, Kind::EpochS, Kind::EpochUs];
const BYTES: &[Kind] = &[Kind::Bytes, Kind::UuidBytes];

fn postgres(type_name: &str) -> &'static [Kind] {
    match type_name {
        "uuid" => &[Kind::Uuid],
        "smallint" => &[Kind::Integer],
        "integer" => &[Kind::Integer, Kind::EpochS],
        "bigint" => NUMBERS,
        "text" | "character varying" | "character" | "citext" | "name" => &[Kind::Text],
        "json" => &[Kind::Json],
        "jsonb" => &[Kind::Jsonb],
        "bytea" => BYTES,
        "boolean" => &[Kind::Boolean],
        "timestamp with time zone" => &[Kind::Timestamptz],
        "timestamp without time zone" => &[Kind::Timestamp],
        _ => &[],
    }
}

fn mysql(type_name: &str) -> &'static [Kind] {
    match type_name {
        "uuid" => &[Kind::Uuid],
        "char" | "varchar" => &[Kind::Text, Kind::Uuid],
        // MariaDB keeps JSON as text and calls it so.
        "tinytext" | "text" | "mediumtext" | "longtext" => &[Kind::Text, Kind::Json, Kind::Jsonb],
        "json" => &[Kind::Json, Kind::Jsonb],
        "enum" => &[Kind::Text],
        "tinyint" => &[Kind::Integer, Kind::Boolean],
        "smallint" | "mediumint" => &[Kind::Integer],
        "int" => &[Kind::Integer, Kind::EpochS],
        "bigint" => NUMBERS,
        "binary" => &[Kind::UuidBytes, Kind::Bytes],
        "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => BYTES,
        "datetime" => &[Kind::Timestamp, Kind::Timestamptz],
        "timestamp" => &[Kind::Timestamptz, Kind::Timestamp],
        _ => &[],
    }
}

/// A column may hold anything, but what looks like a number becomes one unless the type has an affinity to text.
fn sqlite(type_name: &str) -> &'static [Kind] {
    let name = type_name.to_ascii_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    if name.starts_with("bool") {
        &[Kind::Boolean, Kind::Integer]
    } else if has(&["int"]) {
        &[Kind::Integer, Kind::EpochMs, Kind::EpochS, Kind::EpochUs, Kind::Boolean]
    } else if has(&["json"]) {
        &[Kind::Json, Kind::Jsonb, Kind::Text]
    } else if has(&["uuid"]) {
        &[Kind::Uuid]
    } else if has(&["date", "time"]) {
        &[Kind::Timestamptz, Kind::Timestamp]
    } else if has(&["char", "clob", "text"]) {
        &[
            Kind::Text,
            Kind::Uuid,
            Kind::Json,
            Kind::Jsonb,
            Kind::Timestamptz,
            Kind::Timestamp,
        ]
    } else if has(&["blob", "binary"]) || name.is_empty() {
        BYTES
    } else {
        NUMBERS
    }
}
