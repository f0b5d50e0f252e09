//! What PostgreSQL's errors mean, and what to do about them.

use posthaste_core::StoreError;
use posthaste_core::store::StoreErrorKind as Kind;

use crate::rights::Denied;

/// Classifies a driver error and adds the remedy.
pub fn store_error(error: sqlx::Error) -> StoreError {
    let (kind, remedy) = match &error {
        sqlx::Error::Database(database) => match database.code().as_deref().unwrap_or_default() {
            "42501" => (Kind::Access, Some(grant(database.message()))),
            code => by_sqlstate(code),
        },
        // It says what to grant.
        sqlx::Error::AnyDriverError(other) if other.is::<Denied>() => (Kind::Access, None),
        sqlx::Error::PoolTimedOut => (
            Kind::PoolExhausted,
            Some(
                "check that PostgreSQL runs; if it does, raise the pool's max_connections, or look for transactions that are \
                 held open too long",
            ),
        ),
        sqlx::Error::Io(_) | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed | sqlx::Error::Protocol(_) => (
            Kind::Unavailable,
            Some("check that PostgreSQL runs and that host and port are right"),
        ),
        sqlx::Error::Tls(_) => (
            Kind::Access,
            Some("check sslmode and the certificates in the database URL"),
        ),
        sqlx::Error::ColumnNotFound(_) | sqlx::Error::ColumnDecode { .. } => (Kind::SchemaMissing, Some(MIGRATE)),
        _ => (Kind::Other, None),
    };
    // The driver's own words end in a line of the server's source, which tells an operator nothing.
    let message = match &error {
        sqlx::Error::Database(database) => format!("PostgreSQL: {}", database.message()),
        sqlx::Error::AnyDriverError(other) if other.is::<Denied>() => format!("PostgreSQL: {other}"),
        error => format!("PostgreSQL: {error}"),
    };
    StoreError {
        kind,
        message,
        remedy,
        source: Some(Box::new(error)),
    }
}

const MIGRATE: &str = "run `posthaste migrate up`, and check that the schema is the one your configuration names";

/// What to grant, by what the server says is denied. Of a table it does not say which right that is.
fn grant(message: &str) -> &'static str {
    let denied = message.strip_prefix("permission denied for ").unwrap_or_default();
    match denied.split(' ').next().unwrap_or_default() {
        "schema" => "grant the user usage on that schema",
        "sequence" => "grant the user usage on that sequence",
        "function" | "procedure" => "grant the user execute on it",
        "database" => "grant the user connect on that database, and create if it makes the tables",
        "table" => {
            "grant the user what it does with that table: select to look at it, with insert to enqueue, with update to \
             deliver, with delete to purge or discard"
        }
        _ => "grant the user that right, or let its owner do it",
    }
}

pub(crate) fn by_sqlstate(code: &str) -> (Kind, Option<&'static str>) {
    match code {
        "42P01" | "42703" | "3F000" | "42883" => (Kind::SchemaMissing, Some(MIGRATE)),
        "28P01" | "28000" => (
            Kind::Access,
            Some("check user and password in the database URL, and pg_hba.conf"),
        ),
        "3D000" => (
            Kind::Access,
            Some("create the database, or correct its name in the database URL"),
        ),
        "25006" => (
            Kind::ReadOnly,
            Some("connect to the primary if this server is a replica; else look at default_transaction_read_only"),
        ),
        "40001" | "40P01" | "55P03" => (Kind::Contention, Some("retry the transaction")),
        "57014" => (
            Kind::Contention,
            Some("the statement was cancelled: look at statement_timeout, and for what holds the rows"),
        ),
        "25P03" | "57P05" => (
            Kind::Unavailable,
            Some("the server ended an idle session; connect again"),
        ),
        "53300" => (
            Kind::PoolExhausted,
            Some("raise max_connections of the server, or lower that of the pools"),
        ),
        "57P01" | "57P02" | "57P03" => (
            Kind::Unavailable,
            Some("the server is stopping or starting; wait for it"),
        ),
        code if code.starts_with("08") => (Kind::Unavailable, Some("check that PostgreSQL runs")),
        code if code.starts_with("53") => (Kind::Unavailable, Some("the server is out of disk, memory or slots")),
        _ => (Kind::Other, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_grant_is_no_more_than_what_is_denied() {
        for (denied, remedy) in [
            ("permission denied for schema shop", "usage on that schema"),
            ("permission denied for table outbox", "that table"),
            ("permission denied for sequence outbox_id_seq", "that sequence"),
            ("must be owner of table outbox", "its owner"),
        ] {
            assert!(grant(denied).contains(remedy), "{denied}: {}", grant(denied));
        }
    }
}
