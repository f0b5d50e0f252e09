//! What SQLite's errors mean, and what to do about them.

use posthaste_core::StoreError;
use posthaste_core::store::StoreErrorKind as Kind;
use sqlx::error::DatabaseError;

/// Classifies a driver error and adds the remedy.
pub fn store_error(error: sqlx::Error) -> StoreError {
    let (kind, remedy) = match &error {
        sqlx::Error::Database(database) => by_code(database.as_ref()),
        sqlx::Error::PoolTimedOut => (
            Kind::PoolExhausted,
            Some("raise the pool's max_connections, or look for transactions that are held open too long"),
        ),
        sqlx::Error::Io(_) | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => (
            Kind::Unavailable,
            Some("check that the database file can be read and that its pool is open"),
        ),
        sqlx::Error::ColumnNotFound(_) => (Kind::SchemaMissing, Some(MIGRATE)),
        sqlx::Error::ColumnDecode { .. } => (Kind::Other, Some("correct what the column holds in that row")),
        _ => (Kind::Other, None),
    };
    StoreError {
        kind,
        message: format!("SQLite: {error}"),
        remedy,
        source: Some(Box::new(error)),
    }
}

pub(crate) const MIGRATE: &str =
    "run `posthaste migrate up`, and check that file and table prefix are the ones you mean";

/// SQLite's primary result codes, the low byte of what the driver reports.
mod code {
    pub(super) const ERROR: i32 = 1;
    pub(super) const PERM: i32 = 3;
    pub(super) const BUSY: i32 = 5;
    pub(super) const LOCKED: i32 = 6;
    pub(super) const READONLY: i32 = 8;
    pub(super) const IOERR: i32 = 10;
    pub(super) const CORRUPT: i32 = 11;
    pub(super) const FULL: i32 = 13;
    pub(super) const CANTOPEN: i32 = 14;
    pub(super) const NOTADB: i32 = 26;
}

pub(crate) fn by_code(error: &dyn DatabaseError) -> (Kind, Option<&'static str>) {
    let extended: i32 = error.code().and_then(|code| code.parse().ok()).unwrap_or_default();
    match extended & 0xff {
        code::ERROR if schema_is_missing(error.message()) => (Kind::SchemaMissing, Some(MIGRATE)),
        code::BUSY | code::LOCKED => (
            Kind::Contention,
            Some(
                "another connection is writing: keep write transactions short, begin them with `BEGIN IMMEDIATE`, and \
                 retry",
            ),
        ),
        code::READONLY => (
            Kind::ReadOnly,
            Some("make the file and its directory writable, and open it without `mode=ro`"),
        ),
        code::CANTOPEN => (
            Kind::Access,
            Some("check the path: its directory must exist and be writable"),
        ),
        code::PERM => (
            Kind::Access,
            Some("grant the user access to the file and its directory"),
        ),
        code::NOTADB => (
            Kind::Other,
            Some("check the path: the file is not a SQLite database, or it is encrypted"),
        ),
        code::CORRUPT => (
            Kind::Other,
            Some("the file is damaged: stop all writers and restore it from a backup"),
        ),
        code::FULL => (Kind::Unavailable, Some("the disk is full: make room and retry")),
        code::IOERR => (Kind::Unavailable, Some("check the disk that holds the database file")),
        _ => (Kind::Other, None),
    }
}

/// SQLite has one code for every fault in a statement; only the message tells them apart.
fn schema_is_missing(message: &str) -> bool {
    [
        "no such table",
        "no such column",
        "no such index",
        "has no column named",
    ]
    .iter()
    .any(|words| message.contains(words))
}
