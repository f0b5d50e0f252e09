//! Versioned migrations, safe when several processes start at the same moment.

use async_trait::async_trait;
use posthaste_core::StoreError;
use posthaste_core::store::{Migration, SchemaStore};
use posthaste_sql::migrate::{self, File};
use posthaste_sql::table::Table;
use sqlx::{AssertSqlSafe, Executor, SqliteConnection};

use crate::SqliteStore;
use crate::begin::begin;
use crate::error::store_error;
use crate::statements::finish;

const MIGRATIONS: [File; 2] = [
    ("outbox", include_str!("../migrations/0001_outbox.sql")),
    ("relays", include_str!("../migrations/0002_relays.sql")),
];

#[async_trait]
impl SchemaStore for SqliteStore {
    fn migrations(&self) -> Vec<Migration> {
        // Existing tables are their owner's.
        if !self.map.has(Table::Migrations) {
            return Vec::new();
        }
        migrate::steps(&MIGRATIONS, |sql| self.finish(sql))
    }

    async fn applied(&self) -> Result<Vec<i64>, StoreError> {
        if !self.map.has(Table::Migrations) {
            return Ok(Vec::new());
        }
        let mut conn = self.pool.acquire().await.map_err(store_error)?;
        self.applied_on(&mut conn).await.map_err(store_error)
    }

    async fn migrate(&self) -> Result<Vec<Migration>, StoreError> {
        if !self.map.has(Table::Migrations) {
            return Ok(Vec::new());
        }
        self.apply_missing(self.migrations()).await
    }

    fn statements(&self) -> Vec<(&'static str, String)> {
        self.statements.texts()
    }
}

impl SqliteStore {
    fn finish(&self, sql: &str) -> String {
        finish(sql, &self.map).expect("migrations name only what Posthaste's own map has")
    }

    async fn applied_on(&self, conn: &mut SqliteConnection) -> sqlx::Result<Vec<i64>> {
        let table = self
            .map
            .table(Table::Migrations)
            .map_or("", |table| table.name.as_str());
        let exists: bool =
            sqlx::query_scalar("select exists (select 1 from sqlite_schema where type = 'table' and name = ?1)")
                .bind(table)
                .fetch_one(&mut *conn)
                .await?;
        if !exists {
            return Ok(Vec::new());
        }
        let sql = self.finish(r#"select version from "@migrations" order by version"#);
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(conn).await
    }

    /// Applies those of the migrations that were not yet.
    pub(crate) async fn apply_missing(&self, all: Vec<Migration>) -> Result<Vec<Migration>, StoreError> {
        self.migrate_in_transaction(all).await.map_err(store_error)
    }

    async fn migrate_in_transaction(&self, all: Vec<Migration>) -> sqlx::Result<Vec<Migration>> {
        // The write lock is taken before anything is looked at: the second one to come finds the first one's work done.
        let mut tx = begin(&self.pool).await?;
        let applied = self.applied_on(&mut tx).await?;
        let missing = migrate::missing(all, &applied);
        for migration in &missing {
            tx.execute(sqlx::raw_sql(AssertSqlSafe(migration.sql.clone()))).await?;
        }
        tx.commit().await?;
        Ok(missing)
    }
}
