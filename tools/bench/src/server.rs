//! The PostgreSQL server, and a new database on it for each run.

use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, PgPool};

use crate::layout::Layout;
use crate::processes;
use posthaste_postgres::LogTables;

/// The server that was given.
pub(crate) struct Server {
    options: PgConnectOptions,
    url: String,
    postmaster: u32,
    databases: AtomicU32,
}

impl Server {
    pub(crate) async fn connect(url: &str) -> anyhow::Result<Self> {
        let options = PgConnectOptions::from_str(url).context("--postgres-url")?;
        let mut conn = options.connect().await.context("cannot connect to --postgres-url")?;
        let backend: i32 = sqlx::query_scalar("select pg_backend_pid()")
            .fetch_one(&mut conn)
            .await?;
        let postmaster = processes::parent(backend.unsigned_abs())?;
        conn.close().await?;
        Ok(Self {
            options,
            url: url.to_owned(),
            postmaster,
            databases: AtomicU32::new(0),
        })
    }

    /// The version and the settings that figures depend on, by name.
    pub(crate) async fn describe(&self) -> anyhow::Result<Vec<(String, String)>> {
        let mut conn = self.options.connect().await?;
        let found = sqlx::query_as(
            "select name, current_setting(name) from pg_settings where name in \
             ('server_version', 'fsync', 'synchronous_commit', 'shared_buffers', 'wal_level', 'autovacuum') order by name",
        )
        .fetch_all(&mut conn)
        .await?;
        conn.close().await?;
        Ok(found)
    }

    /// Processor time of the server's processes, whoever they worked for.
    pub(crate) fn cpu_time(&self) -> Duration {
        processes::tree_cpu_time(self.postmaster)
    }

    /// A new database with the tables of a layout.
    pub(crate) async fn database(&self, layout: Layout) -> anyhow::Result<Database> {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("posthaste_bench_{}_{number}", std::process::id());
        self.run(format!("create database {name}")).await?;
        let options = self.options.clone().database(&name);
        let database = Database {
            url: with_database(&self.url, &name)?,
            options,
            layout,
            name,
        };
        let pool = database.pool();
        let created = layout.create(&pool).await;
        // No session of ours is to be counted among those of the run.
        pool.close().await;
        if let Err(error) = created {
            self.remove(database).await?;
            return Err(error);
        }
        Ok(database)
    }

    /// Drops a database.
    pub(crate) async fn remove(&self, database: Database) -> anyhow::Result<()> {
        self.run(format!("drop database if exists {} with (force)", database.name))
            .await
    }

    async fn run(&self, sql: String) -> anyhow::Result<()> {
        let mut conn = self.options.connect().await?;
        sqlx::query(AssertSqlSafe(sql)).execute(&mut conn).await?;
        conn.close().await?;
        Ok(())
    }
}

fn with_database(url: &str, name: &str) -> anyhow::Result<String> {
    let (server, _) = url.rsplit_once('/').context("--postgres-url has no database")?;
    Ok(format!("{server}/{name}"))
}

/// A database of one run. Apart from everything else, so that its statistics are of this run alone.
pub(crate) struct Database {
    pub(crate) url: String,
    pub(crate) name: String,
    options: PgConnectOptions,
    layout: Layout,
}

/// What was written to the server's log and to the outbox.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    /// Position of the write-ahead log, in bytes.
    wal: f64,
    /// Versions of rows of the outbox that became garbage.
    dead_tuples: f64,
}

impl Written {
    /// Bytes of write-ahead log and dead tuples since then, per message.
    pub(crate) fn since(self, before: Self, messages: f64) -> (f64, f64) {
        (
            (self.wal - before.wal) / messages,
            (self.dead_tuples - before.dead_tuples) / messages,
        )
    }
}

impl Database {
    /// Divides a log of our own.
    pub(crate) async fn raise_shards(&self, shards: u32) -> anyhow::Result<()> {
        let pool = self.pool();
        let tables = LogTables::in_schema(pool.clone(), posthaste_postgres::DEFAULT_SCHEMA)?;
        let raised = tables.raise_shards(shards).await;
        pool.close().await;
        raised?;
        Ok(())
    }

    pub(crate) fn pool(&self) -> PgPool {
        PgPoolOptions::new().connect_lazy_with(self.options.clone())
    }

    pub(crate) async fn connect(&self) -> anyhow::Result<PgConnection> {
        Ok(self.options.connect().await?)
    }

    /// Leaves nothing for the server to do about what was written: statistics are up to date and no checkpoint is due.
    pub(crate) async fn settle_down(&self, conn: &mut PgConnection) -> anyhow::Result<()> {
        for upkeep in ["vacuum (analyze)", "checkpoint"] {
            sqlx::query(upkeep).execute(&mut *conn).await?;
        }
        Ok(())
    }

    /// Waits until all other sessions have ended. Only then their processor time and their statistics are accounted for.
    pub(crate) async fn wait_until_alone(&self, conn: &mut PgConnection) -> anyhow::Result<()> {
        for _ in 0..500 {
            let others: i64 = sqlx::query_scalar(
                "select count(*) from pg_stat_activity \
                 where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()",
            )
            .fetch_one(&mut *conn)
            .await?;
            if others == 0 {
                // A session is gone from the list a moment before its process.
                tokio::time::sleep(Duration::from_millis(100)).await;
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::bail!("sessions of {} do not end", self.name)
    }

    /// What was written so far, by whomever. Sessions that have ended have told all; others are up to a second late.
    pub(crate) async fn written(&self, conn: &mut PgConnection) -> anyhow::Result<Written> {
        let wal = sqlx::query_scalar("select (pg_current_wal_insert_lsn() - '0/0')::float8")
            .fetch_one(&mut *conn)
            .await?;
        // Of all partitions, if there are some.
        let dead_tuples = sqlx::query_scalar(
            "select coalesce(sum(n_tup_upd + n_tup_del), 0)::float8 from pg_stat_user_tables \
             where relid in (select relid from pg_partition_tree($1::text::regclass) union select $1::text::regclass)",
        )
        .bind(self.layout.table())
        .fetch_one(&mut *conn)
        .await?;
        Ok(Written { wal, dead_tuples })
    }
}
