//! A database of our own on the server that was given.

use std::str::FromStr;

use anyhow::Context;
use posthaste_core::store::SchemaStore;
use posthaste_postgres::PostgresStore;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, PgPool};

/// A database with an empty outbox. Apart from everything else on the server, so that its statistics are ours alone.
pub(crate) struct Database {
    server: PgConnectOptions,
    options: PgConnectOptions,
    name: String,
}

impl Database {
    pub(crate) async fn create(url: &str) -> anyhow::Result<Self> {
        let server = PgConnectOptions::from_str(url).context("--postgres-url")?;
        let name = format!("posthaste_bench_{}", std::process::id());
        run_once(&server, format!("create database {name}")).await?;
        let database = Self {
            options: server.clone().database(&name),
            server,
            name,
        };
        if let Err(error) = database.store().migrate().await {
            database.remove().await?;
            return Err(error.into());
        }
        Ok(database)
    }

    pub(crate) async fn remove(&self) -> anyhow::Result<()> {
        run_once(&self.server, format!("drop database {} with (force)", self.name)).await
    }

    /// A store with a pool of its own, set up as an application would.
    pub(crate) fn store(&self) -> PostgresStore {
        PostgresStore::new(self.pool())
    }

    pub(crate) fn pool(&self) -> PgPool {
        PgPoolOptions::new().connect_lazy_with(self.options.clone())
    }

    pub(crate) fn options(&self) -> PgConnectOptions {
        self.options.clone()
    }

    pub(crate) async fn connect(&self) -> anyhow::Result<PgConnection> {
        Ok(self.options.connect().await?)
    }
}

async fn run_once(server: &PgConnectOptions, sql: String) -> anyhow::Result<()> {
    let mut conn = server.connect().await.context("cannot connect to --postgres-url")?;
    sqlx::query(AssertSqlSafe(sql)).execute(&mut conn).await?;
    conn.close().await?;
    Ok(())
}
