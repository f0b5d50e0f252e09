//! A log as a backend of the conformance suite.

use std::time::Duration;

use posthaste_core::{EnqueueError, Enqueued, Mark, Message, MessageId, OutboxOptions, StoreError};
use posthaste_postgres::{LogLayoutOptions, PostgresLogStore};
use posthaste_testkit::{Backend, Fixture, Table, Trouble, fit};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor, PgPool, Postgres, Transaction};

use super::by_event::ByEvent;
use super::{builtin, builtin_map};

use crate::support;

/// The commerce service's log in a schema of its own.
pub struct Log {
    store: ByEvent,
    pool: PgPool,
    schema: String,
}

impl Log {
    async fn run(&self, sql: impl Into<String>) {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.into()));
        self.pool.execute(sql).await.unwrap();
    }
}

impl Fixture for Log {
    type Backend = Self;

    fn table() -> Table {
        Table::of(&builtin_map("commerce"))
    }

    async fn fresh() -> Self {
        let (map, schema) = (builtin_map("commerce"), support::fresh_schema());
        let create = format!("create schema {schema}");
        support::pool(1).await.execute(AssertSqlSafe(create)).await.unwrap();
        let address: PgConnectOptions = support::server_url().parse().unwrap();
        let address = address.options([("search_path", schema.as_str())]);
        let pool = PgPoolOptions::new()
            .max_connections(12)
            .connect_with(address)
            .await
            .unwrap();
        // How often a message is tried is for the relay to say.
        let options = LogLayoutOptions::of(&map)
            .max_retries(1_000_000)
            .retry_interval(Duration::ZERO);
        let store = ByEvent(PostgresLogStore::with_options(pool.clone(), map, options).unwrap());
        let backend = Self { store, pool, schema };
        backend.run(builtin("commerce").ddl).await;
        backend.run("create table business (key text not null)").await;
        backend
    }
}

impl Backend for Log {
    type Store = ByEvent;
    type Tx = Transaction<'static, Postgres>;

    fn store(&self) -> &ByEvent {
        &self.store
    }

    async fn begin(&self) -> Self::Tx {
        self.pool.begin().await.unwrap()
    }

    async fn commit(&self, tx: Self::Tx) {
        tx.commit().await.unwrap();
    }

    async fn rollback(&self, tx: Self::Tx) {
        tx.rollback().await.unwrap();
    }

    async fn enqueue(
        &self,
        tx: &mut Self::Tx,
        messages: Vec<Message>,
        options: &OutboxOptions,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let log = &self.store.0;
        let messages = fit(log.map(), messages, options);
        log.outbox(options.clone()).enqueue_all(tx, messages).await
    }

    async fn write_business_row(&self, tx: &mut Self::Tx, key: &str) {
        let insert = sqlx::query("insert into business values ($1)").bind(key);
        insert.execute(&mut **tx).await.unwrap();
    }

    async fn business_rows(&self) -> Vec<String> {
        let rows = sqlx::query_scalar("select key from business");
        rows.fetch_all(&self.pool).await.unwrap()
    }

    async fn record_handled(&self, _: &mut Self::Tx, _: &str, key: &str) -> Result<bool, StoreError> {
        unreachable!("{key} is for tables with an inbox");
    }

    async fn mark(&self, _: &mut Self::Tx, mark: Mark) -> Result<(), StoreError> {
        unreachable!("{mark:?} is for tables with an inbox");
    }

    async fn prove(&self, _: &mut Self::Tx, mark: Mark) -> Result<(), StoreError> {
        unreachable!("{mark:?} is for tables with an inbox");
    }

    async fn meet(&self, _: &mut Self::Tx, trouble: Trouble) {
        unreachable!("{trouble:?} is for tables with an inbox");
    }

    async fn purge_inbox(&self, consumer: &str, _: Duration, _: u32) -> Result<u64, StoreError> {
        unreachable!("{consumer} is for tables with an inbox");
    }

    async fn pass_time(&self, by: Duration) {
        self.store.0.pass_time(by);
        let step = format!("interval '{} microseconds'", by.as_micros());
        self.run(format!(
            "update outbox set created_at = created_at - {step};
             update outbox_cursor set created_at = created_at - {step};
             update outbox_failed set failed_at = failed_at - {step}, next_retry_at = next_retry_at - {step}"
        ))
        .await;
    }

    async fn corrupt_payload(&self, id: MessageId) {
        unreachable!("{id} has no hash");
    }

    async fn refuse_changes_to(&self, ids: &[MessageId]) {
        unreachable!("{ids:?} are never changed");
    }

    async fn lock_row(&self, tx: &mut Self::Tx, id: MessageId) {
        let sql = format!("select from outbox_failed where event_id = '{id}' for update");
        let locked = tx.execute(AssertSqlSafe(sql)).await.unwrap();
        assert_eq!(locked.rows_affected(), 1, "{id} has failed");
    }

    async fn dispose(self) {
        drop(self.store);
        self.pool.close().await;
        let sql = format!("drop schema {} cascade", self.schema);
        support::pool(1).await.execute(AssertSqlSafe(sql)).await.unwrap();
    }
}
