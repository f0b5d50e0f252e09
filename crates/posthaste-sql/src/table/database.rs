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
            Self::Postgres | Self::Sqlite => '"',
        }
    }

    /// Whether tables stand in schemas, or share one space of names.
    pub fn has_schemas(self) -> bool {
        match self {
            Self::Postgres => true,
            Self::Sqlite | Self::MySql => false,
        }
    }

    /// Whether an index may have some of the rows only.
    pub fn has_partial_indexes(self) -> bool {
        match self {
            Self::Postgres | Self::Sqlite => true,
            Self::MySql => false,
        }
    }

    /// Whether an index takes columns of this type as a whole. The first part of a value proves nothing unique and gives no
    /// order.
    pub fn indexes_whole(self, type_name: &str) -> bool {
        match self {
            Self::Postgres | Self::Sqlite => true,
            Self::MySql => !(type_name.ends_with("text") || type_name.ends_with("blob") || type_name == "json"),
        }
    }

    /// Whether a table that is there can be given a primary key.
    pub fn adds_primary_keys(self) -> bool {
        match self {
            Self::Postgres | Self::MySql => true,
            Self::Sqlite => false,
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
            (Self::Postgres, _)
            | (Self::Sqlite, Strategy::Split | Strategy::Leased)
            | (Self::MySql, Strategy::Split | Strategy::Leased | Strategy::RowLocks) => None,
        }
    }

    /// Whether it keeps to the lengths of its columns.
    pub fn keeps_lengths(self) -> bool {
        match self {
            Self::Postgres | Self::MySql => true,
            Self::Sqlite => false,
        }
    }

    /// The type of text that may be of any length.
    pub fn long_text(self) -> &'static str {
        match self {
            Self::Postgres | Self::Sqlite => "text",
            Self::MySql => "longtext",
        }
    }

    /// The present moment, as a default for a column of some kind.
    pub fn now(self, kind: Kind) -> Option<&'static str> {
        let (now, fits) = match self {
            Self::Postgres => ("now()", kind == Kind::Timestamptz),
            Self::MySql => (
                "current_timestamp(6)",
                matches!(kind, Kind::Timestamp | Kind::Timestamptz),
            ),
            Self::Sqlite => ("(cast(unixepoch('subsec') * 1000 as integer))", kind == Kind::EpochMs),
        };
        fits.then_some(now)
    }

    /// The type of a column of some kind, for one that has to be made. `length` is the most characters it must hold.
    pub fn column_type(self, kind: Kind, length: Option<usize>) -> String {
        let text = |otherwise: &str| match length {
            Some(length) if self.keeps_lengths() => format!("varchar({length})"),
            _ => otherwise.to_owned(),
        };
        let is_number = matches!(kind, Kind::Integer | Kind::EpochS | Kind::EpochMs | Kind::EpochUs);
        match self {
            _ if kind == Kind::Text => text(match self {
                Self::Postgres | Self::Sqlite => "text",
                Self::MySql => "varchar(255)",
            }),
            Self::Postgres => match kind {
                Kind::Bytes | Kind::UuidBytes => "bytea",
                _ if is_number => "bigint",
                kind => kind.as_str(),
            }
            .to_owned(),
            Self::MySql => match kind {
                Kind::Uuid => "char(36)",
                Kind::UuidBytes => "binary(16)",
                Kind::Bytes => "longblob",
                Kind::Json | Kind::Jsonb => "json",
                Kind::Timestamp | Kind::Timestamptz => "datetime(6)",
                _ if is_number => "bigint",
                kind => kind.as_str(),
            }
            .to_owned(),
            Self::Sqlite => match kind {
                Kind::Uuid | Kind::Json | Kind::Jsonb | Kind::Timestamptz | Kind::Timestamp => "text",
                Kind::Bytes | Kind::UuidBytes => "blob",
                _ => "integer",
            }
            .to_owned(),
        }
    }

    /// The kinds that a column of this type can keep in some role, the most likely first; none if the type is not known
    /// here.
    pub fn kinds(self, type_name: &str, role: Role) -> &'static [Kind] {
        match self {
            // Statements name the labels of the states, and take any other text from a parameter.
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
