//! What PostgreSQL's errors mean, and what to do about them.

use posthaste_core::StoreError;
use posthaste_core::store::StoreErrorKind as Kind;

/// Classifies a driver error and adds the remedy.
pub fn store_error(error: sqlx::Error) -> StoreError {
    let (kind, remedy) = match &error {
        sqlx::Error::Database(database) => by_sqlstate(database.code().as_deref().unwrap_or_default()),
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
        "42501" => (
            Kind::Access,
            Some("grant the user usage on the schema and all rights on its tables"),
        ),
        "25006" => (
            Kind::ReadOnly,
            Some("connect to the primary; this server is a read-only replica"),
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
