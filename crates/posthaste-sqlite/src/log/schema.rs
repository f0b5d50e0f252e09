//! The log's tables, made after those that both layouts have.

use async_trait::async_trait;
use posthaste_core::StoreError;
use posthaste_core::store::{Migration, SchemaStore};
use posthaste_sql::migrate::{self, File};

use super::{Inner, SqliteLogStore};
use crate::statements::finish;

/// The log's own history is numbered from here, in the table that has that of the queue.
pub(crate) const FIRST_VERSION: i64 = 1001;

const MIGRATIONS: [File; 2] = [
    ("log", include_str!("../../migrations/log/0001_log.sql")),
    ("dead_order", include_str!("../../migrations/log/0002_dead_order.sql")),
];

#[async_trait]
impl SchemaStore for SqliteLogStore {
    fn migrations(&self) -> Vec<Migration> {
        self.inner.migrations()
    }

    async fn applied(&self) -> Result<Vec<i64>, StoreError> {
        self.inner.common.applied().await
    }

    async fn migrate(&self) -> Result<Vec<Migration>, StoreError> {
        self.inner.common.apply_missing(self.inner.migrations()).await
    }

    fn statements(&self) -> Vec<(&'static str, String)> {
        self.inner.statements.texts()
    }
}

impl Inner {
    fn migrations(&self) -> Vec<Migration> {
        let finish = |sql: &str| finish(sql, &self.map).expect("migrations name only what the log's map has");
        let mut all = self.common.migrations();
        all.extend(migrate::steps_from(FIRST_VERSION, &MIGRATIONS, finish));
        all
    }
}
