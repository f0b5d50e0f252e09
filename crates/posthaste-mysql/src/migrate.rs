//! Versioned migrations, safe when several processes start at the same moment.

use async_trait::async_trait;
use posthaste_core::StoreError;
use posthaste_core::store::{Migration, SchemaStore};
use posthaste_sql::migrate::{self, File};
use posthaste_sql::table::{Identifier, Table};
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Executor, MySql, MySqlConnection};

use crate::MySqlStore;
use crate::error::store_error;
use crate::statements::finish;

const MIGRATIONS: [File; 4] = [
    ("outbox", include_str!("../migrations/0001_outbox.sql")),
    ("relays", include_str!("../migrations/0002_relays.sql")),
    ("procedure", include_str!("../migrations/0003_procedure.sql")),
    ("trace context", include_str!("../migrations/0004_trace_context.sql")),
];

#[async_trait]
impl SchemaStore for MySqlStore {
    fn migrations(&self) -> Vec<Migration> {
        if !self.map.has(Table::Migrations) {
            return Vec::new();
        }
        let procedure = self.procedure();
        migrate::steps(&MIGRATIONS, |sql| {
            self.finish(sql).replace("`posthaste_enqueue`", &procedure)
        })
    }

    async fn applied(&self) -> Result<Vec<i64>, StoreError> {
        let mut conn = self.pool.acquire().await.map_err(store_error)?;
        self.applied_on(&mut conn).await.map_err(store_error)
    }

    async fn migrate(&self) -> Result<Vec<Migration>, StoreError> {
        self.migrate_under_lock().await.map_err(store_error)
    }

    fn statements(&self) -> Vec<(&'static str, String)> {
        self.statements.texts()
    }
}

impl MySqlStore {
    /// The procedure that enqueues, named like the tables.
    fn procedure(&self) -> String {
        let outbox = self.map.table(Table::Outbox).map_or("", |table| table.name.as_str());
        let prefix = outbox.strip_suffix("outbox").unwrap_or_default();
        Identifier::new(format!("{prefix}enqueue")).map_or_else(|_| "`enqueue`".to_owned(), |name| name.quoted('`'))
    }

    fn finish(&self, sql: &str) -> String {
        finish(sql, &self.map).expect("migrations name only what Posthaste's own map has")
    }

    async fn applied_on(&self, conn: &mut MySqlConnection) -> sqlx::Result<Vec<i64>> {
        let Some(table) = self.map.table(Table::Migrations) else {
            return Ok(Vec::new());
        };
        let exists: i64 = sqlx::query_scalar(
            "select count(*) from information_schema.tables
             where table_schema = coalesce(?, database()) and table_name = ?",
        )
        .bind(table.schema.as_ref().map(Identifier::as_str))
        .bind(table.name.as_str())
        .fetch_one(&mut *conn)
        .await?;
        if exists == 0 {
            return Ok(Vec::new());
        }
        let sql = self.finish(r#"select version from "@migrations" order by version"#);
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(conn).await
    }

    async fn migrate_under_lock(&self) -> sqlx::Result<Vec<Migration>> {
        let mut conn = self.pool.acquire().await?;
        // The lock belongs to the connection. It is released by closing it, also when the work is abandoned half-way.
        conn.close_on_drop();
        let done = self.apply_missing(&mut conn).await;
        PoolConnection::<MySql>::close(conn).await?;
        done
    }

    async fn apply_missing(&self, conn: &mut MySqlConnection) -> sqlx::Result<Vec<Migration>> {
        // Before anything is looked at: the second one to come finds the first one's work done.
        sqlx::query("do get_lock(concat('posthaste:migrate:', left(sha2(database(), 256), 40)), 60)")
            .execute(&mut *conn)
            .await?;
        let applied = self.applied_on(conn).await?;
        let missing = migrate::missing(self.migrations(), &applied);
        for migration in &missing {
            conn.execute(sqlx::raw_sql(AssertSqlSafe(migration.sql.clone())))
                .await?;
        }
        Ok(missing)
    }
}
