//! The finished SQL.

use posthaste_core::store::SchemaStore;
use sqlx::{AssertSqlSafe, Executor, SqlSafeStr};

use crate::support::log::Log;

#[tokio::test]
async fn every_statement_is_prepared_by_the_server() {
    let log = Log::fresh(1).await;
    let store = log.store();
    store.migrate().await.unwrap();
    for (name, sql) in store.statements() {
        let prepared = log.pool.prepare(AssertSqlSafe(sql.clone()).into_sql_str()).await;
        prepared.unwrap_or_else(|error| panic!("{name}: {error}\n{sql}"));
    }
}
