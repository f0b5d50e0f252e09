//! A migrated outbox of its own for every test, on the server that `cargo xtask test` starts.

pub mod log;
pub mod native;

use posthaste_core::store::SchemaStore;
use posthaste_postgres::PostgresStore;
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

/// The address of the test server.
pub fn server_url() -> String {
    std::env::var("POSTHASTE_TEST_POSTGRES_URL")
        .expect("POSTHASTE_TEST_POSTGRES_URL names no server: run these tests with `cargo xtask test`")
}

/// A schema that no other test uses.
pub fn fresh_schema() -> String {
    format!("t_{}", uuid::Uuid::new_v4().simple())
}

/// A pool on the test server.
#[allow(dead_code, reason = "each test target uses its own part of this module")]
pub async fn pool(connections: u32) -> PgPool {
    PgPoolOptions::new()
        .max_connections(connections)
        .connect(&server_url())
        .await
        .expect("the test server is up")
}

/// A migrated store in a fresh schema.
#[allow(dead_code, reason = "each test target uses its own part of this module")]
pub async fn store(connections: u32) -> PostgresStore {
    let store = PostgresStore::in_schema(pool(connections).await, &fresh_schema()).expect("a valid name");
    store.migrate().await.expect("migrations apply");
    store
}
