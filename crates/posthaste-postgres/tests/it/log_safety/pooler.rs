//! Poolers that share out sessions by transaction.

use posthaste_core::{Message, OutboxOptions, RelayStore};
use posthaste_postgres::PostgresLogStore;
use posthaste_servers::{PgBouncer, PoolMode};
use posthaste_sql::TableMap;
use posthaste_sql::table::BuiltinMap;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use crate::support::log::{Log, Work, request};
use crate::support::server_url;

#[tokio::test]
async fn a_reader_behind_a_pooler_that_shares_sessions_out_is_refused_and_an_application_is_not() {
    let server: PgConnectOptions = server_url().parse().unwrap();
    let bouncer = PgBouncer::start(&std::env::temp_dir(), server.get_port(), PoolMode::Transaction, 4)
        .expect("PgBouncer is installed: run these tests with `cargo xtask test`");
    let url = bouncer.url(server.get_database().unwrap());
    let log = Log::fresh(4).await;
    let schema = log.texts("select current_schema()::text").await.remove(0);
    let mut toml = BuiltinMap::find("commerce").unwrap().toml.to_owned();
    for table in ["outbox", "outbox_cursor", "outbox_failed", "event_handled"] {
        toml = toml.replace(
            &format!("= \"{table}\"\n"),
            &format!("= {{ schema = \"{schema}\", name = \"{table}\" }}\n"),
        );
    }
    let map = TableMap::from_toml(&toml).unwrap();
    let pool = PgPoolOptions::new().max_connections(4).connect(&url).await.unwrap();
    let pooled = PostgresLogStore::new(pool.clone(), map).unwrap();
    for _ in 0..5 {
        let error = pooled.check().await.unwrap_err().to_string();
        assert!(error.contains("pool_mode = session"), "{error}");
        let error = pooled.claim(&request(1)).await.unwrap_err().to_string();
        assert!(error.contains("pool_mode = session"), "{error}");
    }
    let outbox = pooled.outbox(OutboxOptions::default());
    for n in 0..20 {
        let mut tx = pool.begin().await.unwrap();
        let message = Message::new("order-events", "{}")
            .event_type("loopers.order.created.v1")
            .source("commerce-api")
            .aggregate("Order", n.to_string());
        outbox.enqueue(&mut tx, message).await.unwrap();
        tx.commit().await.unwrap();
    }
    assert_eq!(Work::claim(&log.store(), &request(50)).await.events().len(), 20);
}
