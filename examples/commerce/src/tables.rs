//! The shop's outbox and its record of what was handled: tables that were there before Posthaste, described by a map.

use anyhow::Context;
use posthaste::OutboxOptions;
use posthaste::TableMap;
use posthaste::postgres::{PostgresHandled, PostgresLogOutbox, PostgresLogStore};
use posthaste::sql::table::BuiltinMap;
use sqlx::PgPool;

/// The map of these tables. A team with other names has its own, read by `TableMap::from_toml`.
pub fn map() -> anyhow::Result<TableMap> {
    let builtin = BuiltinMap::find("commerce").context("the map `commerce` ships with Posthaste")?;
    Ok(builtin.map()?)
}

/// The relay's and the operator's side of the log.
pub fn log(pool: PgPool) -> anyhow::Result<PostgresLogStore> {
    Ok(PostgresLogStore::new(pool, map()?)?)
}

/// The application's side: rows of the log, written in its own transactions.
pub fn outbox(pool: PgPool) -> anyhow::Result<PostgresLogOutbox> {
    let options = OutboxOptions::new().source("commerce-api");
    Ok(log(pool)?.outbox(options))
}

/// The consumer's side: one row of `event_handled` for each effect.
pub fn handled(pool: PgPool) -> anyhow::Result<PostgresHandled> {
    Ok(PostgresHandled::new(pool, &map()?)?)
}
