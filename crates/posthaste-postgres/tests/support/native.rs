//! Posthaste's own tables as a backend of the conformance suite.

#![allow(dead_code, reason = "each test target uses its own part of this module")]

use std::marker::PhantomData;
use std::time::Duration;

use posthaste_core::store::SchemaStore;
use posthaste_core::{EnqueueError, Enqueued, Inbox, InboxStore, Mark, Message, MessageId, OutboxOptions, StoreError};
use posthaste_postgres::PostgresStore;
use posthaste_sql::TableMap;
use posthaste_testkit::{Backend, Fixture, Trouble};
use sqlx::{AssertSqlSafe, Executor, PgPool, Postgres, Transaction};

/// An outbox in Posthaste's own tables, whose fresh and waiting rows are claimed by indexes of their own, or as those of
/// any table with leases are.
pub struct Pg<const SPLIT: bool, R = Directly>(PhantomData<R>);

/// The outbox. However it is claimed and reached, the cases are compiled once for it.
pub struct Outbox {
    store: PostgresStore,
    schema: String,
}

/// The route to the server.
pub trait Route: Send + Sync + 'static {
    fn pool(connections: u32) -> impl Future<Output = PgPool> + Send;
}

/// With nothing in between.
pub struct Directly;

impl Route for Directly {
    async fn pool(connections: u32) -> PgPool {
        super::pool(connections).await
    }
}

impl Outbox {
    /// Runs statements with the schema's name put in.
    async fn run(&self, sql: &str) {
        let sql = sql.replace("{schema}", &self.schema);
        self.store
            .pool()
            .execute(sqlx::raw_sql(AssertSqlSafe(sql)))
            .await
            .unwrap();
    }
}

impl<const SPLIT: bool, R: Route> Fixture for Pg<SPLIT, R> {
    type Backend = Outbox;

    async fn fresh() -> Outbox {
        let schema = super::fresh_schema();
        let mut map = TableMap::in_schema(&schema).unwrap();
        if !SPLIT {
            map = map.without_split_index();
        }
        let store = PostgresStore::with_map(R::pool(8).await, map).unwrap();
        store.migrate().await.expect("migrations apply");
        let backend = Outbox { store, schema };
        backend.run("create table {schema}.business (key text not null)").await;
        backend
    }
}

impl Backend for Outbox {
    type Store = PostgresStore;
    type Tx = Transaction<'static, Postgres>;

    fn store(&self) -> &PostgresStore {
        &self.store
    }

    async fn begin(&self) -> Self::Tx {
        self.store.pool().begin().await.unwrap()
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
        self.store.outbox(options.clone()).enqueue_all(tx, messages).await
    }

    async fn write_business_row(&self, tx: &mut Self::Tx, key: &str) {
        let sql = format!("insert into {}.business values ($1)", self.schema);
        sqlx::query(AssertSqlSafe(sql))
            .persistent(false)
            .bind(key)
            .execute(&mut **tx)
            .await
            .unwrap();
    }

    async fn business_rows(&self) -> Vec<String> {
        let sql = format!("select key from {}.business", self.schema);
        let mut tx = self.begin().await;
        sqlx::query_scalar(AssertSqlSafe(sql))
            .persistent(false)
            .fetch_all(&mut *tx)
            .await
            .unwrap()
    }

    async fn record_handled(&self, tx: &mut Self::Tx, consumer: &str, key: &str) -> Result<bool, StoreError> {
        self.store.inbox(consumer).record(tx, key).await
    }

    async fn mark(&self, tx: &mut Self::Tx, mark: Mark) -> Result<(), StoreError> {
        self.store.inbox("any").mark(tx, mark).await
    }

    async fn prove(&self, tx: &mut Self::Tx, mark: Mark) -> Result<(), StoreError> {
        self.store.inbox("any").prove(tx, mark).await
    }

    async fn meet(&self, tx: &mut Self::Tx, trouble: Trouble) {
        let statement = match trouble {
            Trouble::RefusedStatement => "select 1 / 0",
            Trouble::Rollback => "rollback",
        };
        let met = tx.execute(statement).await;
        assert_eq!(met.is_err(), trouble == Trouble::RefusedStatement);
    }

    async fn purge_inbox(&self, consumer: &str, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        self.store.inbox(consumer).purge(keep, limit).await
    }

    async fn pass_time(&self, by: Duration) {
        let step = format!("interval '{} microseconds'", by.as_micros());
        self.run(&format!(
            "update {{schema}}.outbox set created_at = created_at - {step}, updated_at = updated_at - {step},
                next_attempt_at = next_attempt_at - {step}, locked_until = locked_until - {step},
                delivered_at = delivered_at - {step};
             update {{schema}}.outbox_dedupe set expires_at = expires_at - {step};
             update {{schema}}.inbox set handled_at = handled_at - {step};
             update {{schema}}.relays set started_at = started_at - {step}, seen_at = seen_at - {step},
                circuit_since = circuit_since - {step};
             update {{schema}}.leaders set since = since - {step}, until = until - {step};"
        ))
        .await;
    }

    async fn refuse_changes_to(&self, ids: &[MessageId]) {
        let old = "alter table {schema}.outbox drop constraint if exists no_change";
        self.run(old).await;
        if !ids.is_empty() {
            let ids: Vec<_> = ids.iter().map(|id| format!("'{id}'")).collect();
            // Old rows do not have to meet it, until they are changed.
            let check = format!("check (id not in ({})) not valid", ids.join(", "));
            self.run(&format!(
                "alter table {{schema}}.outbox add constraint no_change {check}"
            ))
            .await;
        }
    }

    async fn corrupt_payload(&self, id: MessageId) {
        self.run(&format!(
            "update {{schema}}.outbox set payload = payload || 'x' where id = '{id}'"
        ))
        .await;
    }

    async fn lock_row(&self, tx: &mut Self::Tx, id: MessageId) {
        let sql = format!("select from {}.outbox where id = '{id}' for update", self.schema);
        tx.execute(AssertSqlSafe(sql)).await.unwrap();
    }

    async fn lock_table(&self, tx: &mut Self::Tx) {
        let sql = format!("lock table {}.outbox in share mode", self.schema);
        tx.execute(AssertSqlSafe(sql)).await.unwrap();
    }

    async fn dispose(self) {
        self.run("drop schema {schema} cascade").await;
    }
}
