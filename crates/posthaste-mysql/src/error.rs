//! What the server's errors mean, and what to do about them.

use std::fmt;

use posthaste_core::StoreError;
use posthaste_core::store::StoreErrorKind as Kind;
use sqlx::mysql::MySqlDatabaseError;

/// Another relay holds the lock under which ordered claims are made.
#[derive(Debug)]
pub(crate) struct ClaimsLocked;

impl fmt::Display for ClaimsLocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("another relay has held the lock for ordered claims for 5 seconds")
    }
}

impl std::error::Error for ClaimsLocked {}

/// Another transaction has locked the table as a whole, or changes it.
#[derive(Debug)]
pub(crate) struct TableLocked;

impl fmt::Display for TableLocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("another session has locked the whole table, or changes it")
    }
}

impl std::error::Error for TableLocked {}

/// What an error of a statement means that waits for no row: what it waited for is a lock on the whole table.
pub(crate) fn of_table(error: sqlx::Error) -> sqlx::Error {
    if number(&error) == Some(LOCK_WAIT_TIMEOUT) {
        return sqlx::Error::AnyDriverError(Box::new(TableLocked));
    }
    error
}

pub(crate) fn is_table_locked(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::AnyDriverError(other) if other.is::<TableLocked>())
}

/// Who that is, in words for an operator: the server's own view of it is not there by default.
pub(crate) const TABLE_LOCK_HOLDER: &str =
    "another session has locked the whole table, or changes it; `show full processlist` shows the sessions";

/// The server's number for a lock that was waited for in vain, on rows or on a table.
pub(crate) const LOCK_WAIT_TIMEOUT: u16 = 1205;

/// MySQL's number for a lock that was not to be waited for; MariaDB has the other one for both.
pub(crate) const NOT_AT_ONCE: u16 = 3572;

/// Classifies a driver error and adds the remedy.
pub fn store_error(error: sqlx::Error) -> StoreError {
    let (kind, remedy) = match &error {
        sqlx::Error::Database(_) => by_number(number(&error).unwrap_or_default()),
        sqlx::Error::AnyDriverError(other) if other.is::<ClaimsLocked>() => (
            Kind::Contention,
            Some("it goes on once that relay answers or the server closes its connection"),
        ),
        error if is_table_locked(error) => (
            Kind::Contention,
            Some("see who with `show full processlist`, and wait until that session is through, or end it with `kill`"),
        ),
        sqlx::Error::PoolTimedOut => (
            Kind::PoolExhausted,
            Some(
                "check that the server runs; if it does, raise the pool's max_connections, or look for transactions that \
                 are held open too long",
            ),
        ),
        sqlx::Error::Io(_) | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed | sqlx::Error::Protocol(_) => (
            Kind::Unavailable,
            Some("check that the server runs and that host and port are right"),
        ),
        sqlx::Error::Tls(_) => (
            Kind::Access,
            Some("check ssl-mode and the certificates in the database URL"),
        ),
        sqlx::Error::ColumnNotFound(_) => (Kind::SchemaMissing, Some(MIGRATE)),
        sqlx::Error::ColumnDecode { .. } => (
            Kind::Other,
            Some("correct the type of the column, or what it holds in that row"),
        ),
        _ => (Kind::Other, None),
    };
    let message = match &error {
        // In its own words; the driver's are about another thing.
        sqlx::Error::AnyDriverError(other) if other.is::<ClaimsLocked>() || other.is::<TableLocked>() => {
            format!("MySQL: {other}")
        }
        _ => format!("MySQL: {error}"),
    };
    StoreError {
        kind,
        message,
        remedy,
        source: Some(Box::new(error)),
    }
}

const MIGRATE: &str =
    "run `posthaste migrate up`, and check that database and prefix are those your configuration names";

/// The server's number for an error.
pub(crate) fn number(error: &sqlx::Error) -> Option<u16> {
    let database = error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?;
    Some(database.number())
}

pub(crate) fn by_number(number: u16) -> (Kind, Option<&'static str>) {
    match number {
        // Unknown table, column, procedure.
        1146 | 1054 | 1305 => (Kind::SchemaMissing, Some(MIGRATE)),
        1045 | 1698 => (
            Kind::Access,
            Some("check user and password in the database URL, and from which hosts the user may connect"),
        ),
        1049 => (
            Kind::Access,
            Some("create the database, or correct its name in the database URL"),
        ),
        // The server names the right and what it is for.
        1044 => (
            Kind::Access,
            Some("grant the user rights on the tables in that database"),
        ),
        1142 => (Kind::Access, Some("grant the user that right on that table")),
        1143 => (
            Kind::Access,
            Some("grant the user that right on that column, or on its table"),
        ),
        1370 => (Kind::Access, Some("grant the user that right on that procedure")),
        1290 | 1792 | 1836 => (
            Kind::ReadOnly,
            Some("connect to the primary; this server does not take writes"),
        ),
        LOCK_WAIT_TIMEOUT | 1213 | NOT_AT_ONCE => (Kind::Contention, Some("retry the transaction")),
        1040 | 1203 | 1226 => (
            Kind::PoolExhausted,
            Some("raise max_connections of the server, or lower that of the pools"),
        ),
        1053 | 1077 | 1079 | 1927 | 2006 | 2013 => (
            Kind::Unavailable,
            Some("the server is stopping or starting; wait for it"),
        ),
        1153 => (
            Kind::Other,
            Some("raise max_allowed_packet of the server, or send smaller payloads"),
        ),
        1021 | 1037 | 1041 | 1114 => (Kind::Unavailable, Some("the server is out of disk or memory")),
        1665 => (
            Kind::Other,
            Some("set binlog_format of the server to ROW or MIXED: statements cannot be logged under READ COMMITTED"),
        ),
        _ => (Kind::Other, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_operator_can_do_is_said() {
        assert_eq!(by_number(1146).0, Kind::SchemaMissing);
        assert_eq!(by_number(1213).0, Kind::Contention);
        for (number, what) in [(1142, "that table"), (1143, "that column"), (1370, "that procedure")] {
            let (kind, remedy) = by_number(number);
            assert!(kind == Kind::Access && remedy.unwrap().contains(what), "{number}");
        }
        assert!(by_number(1153).1.unwrap().contains("max_allowed_packet"));
        assert_eq!(store_error(sqlx::Error::PoolTimedOut).kind, Kind::PoolExhausted);
        let locked = store_error(sqlx::Error::AnyDriverError(Box::new(ClaimsLocked)));
        assert_eq!(locked.kind, Kind::Contention);
    }
}
