//! Versioned migrations, safe when several processes start at the same moment.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use posthaste_core::StoreError;
use posthaste_core::store::{Migration, SchemaStore, StoreErrorKind};
use posthaste_sql::migrate::{self, File};
use posthaste_sql::template::render;
use sqlx::{AssertSqlSafe, Executor, PgConnection};
use tokio::time::sleep;

use crate::PostgresStore;
use crate::dialect::PostgresDialect;
use crate::error::store_error;

/// What comes after a change of a table that waits for its turn waits too: producers must get through in between.
const BEGIN_TO_MIGRATE: &str = "begin isolation level read committed; set local lock_timeout = '2s'";
const PAUSE: Duration = Duration::from_secs(1);
const MIGRATION_LOCK_TIMEOUT: Duration = Duration::from_mins(1);

const MIGRATIONS: [File; 6] = [
    ("outbox", include_str!("../migrations/0001_outbox.sql")),
    ("functions", include_str!("../migrations/0002_functions.sql")),
    ("relays", include_str!("../migrations/0003_relays.sql")),
    ("lanes", include_str!("../migrations/0004_lanes.sql")),
    ("finite times", include_str!("../migrations/0005_finite_times.sql")),
    ("trace context", include_str!("../migrations/0006_trace_context.sql")),
];

#[async_trait]
impl SchemaStore for PostgresStore {
    fn migrations(&self) -> Vec<Migration> {
        // Existing tables are their owner's.
        let files: &[File] = if self.map.is_native() { &MIGRATIONS } else { &[] };
        migrate::steps(files, |sql| self.finish(sql))
    }

    async fn applied(&self) -> Result<Vec<i64>, StoreError> {
        if !self.map.is_native() {
            return Ok(Vec::new());
        }
        let mut tx = self.pool.begin().await.map_err(store_error)?;
        self.applied_on(&mut tx).await.map_err(store_error)
    }

    async fn migrate(&self) -> Result<Vec<Migration>, StoreError> {
        self.take_steps(self.migrations()).await
    }

    fn statements(&self) -> Vec<(&'static str, String)> {
        self.statements.texts()
    }
}

impl PostgresStore {
    /// Takes those of the steps that were not taken yet, all or none.
    pub(crate) async fn take_steps(&self, steps: Vec<Migration>) -> Result<Vec<Migration>, StoreError> {
        if steps.is_empty() {
            return Ok(Vec::new());
        }
        let started = Instant::now();
        loop {
            match self.migrate_in_transaction(&steps).await.map_err(store_error) {
                Err(error)
                    if error.kind == StoreErrorKind::Contention && started.elapsed() < MIGRATION_LOCK_TIMEOUT =>
                {
                    let holder = self.find_table_lock().await;
                    tracing::warn!(%error, holder, "another transaction uses the outbox; trying again until it has ended");
                    sleep(PAUSE).await;
                }
                Err(error) if error.kind == StoreErrorKind::Contention => {
                    return Err(StoreError {
                        remedy: Some(
                            "end the transactions that use the outbox (pg_stat_activity shows them), or try at a quieter time",
                        ),
                        ..error
                    });
                }
                done => return done,
            }
        }
    }

    fn finish(&self, sql: &str) -> String {
        render(sql, &self.map, &PostgresDialect).expect("migrations name only what Posthaste's own map has")
    }

    async fn applied_on(&self, conn: &mut PgConnection) -> sqlx::Result<Vec<i64>> {
        let exists: bool = sqlx::query_scalar("select to_regclass($1) is not null")
            .persistent(false)
            .bind(self.finish(r#""@migrations""#))
            .fetch_one(&mut *conn)
            .await?;
        if !exists {
            return Ok(Vec::new());
        }
        let sql = self.finish(r#"select version from "@migrations" order by version"#);
        sqlx::query_scalar(AssertSqlSafe(sql))
            .persistent(false)
            .fetch_all(conn)
            .await
    }

    async fn migrate_in_transaction(&self, steps: &[Migration]) -> sqlx::Result<Vec<Migration>> {
        let mut tx = self.pool.begin_with(BEGIN_TO_MIGRATE).await?;
        // Before anything is looked at: the second one to come finds the first one's work done.
        sqlx::query("select pg_advisory_xact_lock(hashtextextended('posthaste:migrate', 0))")
            .persistent(false)
            .execute(&mut *tx)
            .await?;
        let applied = self.applied_on(&mut tx).await?;
        let missing = migrate::missing(steps.to_vec(), &applied);
        for migration in &missing {
            tx.execute(sqlx::raw_sql(AssertSqlSafe(migration.sql.clone()))).await?;
        }
        tx.commit().await?;
        Ok(missing)
    }
}
