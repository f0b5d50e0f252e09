//! Any table as a backend of the conformance suite, by its map.

use std::marker::PhantomData;
use std::time::Duration;

use posthaste_core::{EnqueueError, Enqueued, Inbox, InboxStore, Mark, Message, MessageId, OutboxOptions, StoreError};
use posthaste_postgres::PostgresStore;
use posthaste_sql::TableMap;
use posthaste_sql::table::{Column, Database, Kind, Role, Table as Purpose};
use posthaste_testkit::{Backend, Fixture, Need, Table, Trouble, fit, id_literal};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor, PgPool, Postgres, Transaction};

use crate::support;

/// Existing tables.
pub trait Tables: Send + Sync + 'static {
    /// What the suite should not count on.
    const WITHOUT: &[Need];

    /// The cases that should hold and do not, with the reason.
    const EXCEPT: &[(&str, &str)] = &[];

    /// Their map.
    fn map() -> TableMap;

    /// The statements that make them.
    fn ddl() -> String;
}

/// Those tables in a schema of their own.
pub struct Mapped {
    store: PostgresStore,
    map: TableMap,
    schema: String,
}

impl Mapped {
    async fn run(&self, sql: impl Into<String>) {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.into()));
        let mut conn = pool(&self.schema, 1).await.acquire().await.unwrap().detach();
        conn.execute(sql).await.unwrap();
    }

    fn outbox(&self) -> String {
        self.map.table(Purpose::Outbox).unwrap().name.to_string()
    }

    fn literal(&self, id: MessageId) -> String {
        id_literal(&self.map, Database::Postgres, id)
    }

    /// Whether a row is that of an id.
    fn is(&self, id: MessageId) -> String {
        format!("\"{}\" = {}", self.column(Role::Id).name, self.literal(id))
    }

    fn column(&self, role: Role) -> &Column {
        self.map.column(role).unwrap()
    }
}

async fn pool(schema: &str, connections: u32) -> PgPool {
    let options: PgConnectOptions = support::server_url().parse().unwrap();
    // Whoever moves the times of a row that a transaction still holds would wait forever.
    let options = options.options([("search_path", schema), ("lock_timeout", "10s")]);
    let pool = PgPoolOptions::new().max_connections(connections);
    pool.connect_with(options).await.unwrap()
}

/// The same time, earlier.
fn earlier(column: &Column, by: Duration) -> Option<String> {
    let name = format!("\"{}\"", column.name);
    let step = match column.kind {
        Kind::Timestamptz | Kind::Timestamp => format!("interval '{} microseconds'", by.as_micros()),
        Kind::EpochS => by.as_secs().to_string(),
        Kind::EpochMs => by.as_millis().to_string(),
        Kind::EpochUs => by.as_micros().to_string(),
        _ => return None,
    };
    Some(format!("{name} = {name} - {step}"))
}

/// Makes them. All have the one backend, for which the cases are compiled once.
pub struct Made<T>(PhantomData<T>);

impl<T: Tables> Fixture for Made<T> {
    type Backend = Mapped;

    fn table() -> Table {
        Table::of(&T::map()).without(T::WITHOUT).except(T::EXCEPT)
    }

    async fn fresh() -> Mapped {
        let (map, schema) = (T::map(), support::fresh_schema());
        let create = format!("create schema {schema}");
        support::pool(1).await.execute(AssertSqlSafe(create)).await.unwrap();
        let store = PostgresStore::with_map(pool(&schema, 12).await, map.clone()).unwrap();
        let backend = Mapped { store, map, schema };
        backend.run(T::ddl()).await;
        backend.run("create table business (key text not null)").await;
        backend
    }
}

impl Backend for Mapped {
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
        let messages = fit(&self.map, messages, options);
        self.store.outbox(options.clone()).enqueue_all(tx, messages).await
    }

    async fn write_business_row(&self, tx: &mut Self::Tx, key: &str) {
        let insert = sqlx::query("insert into business values ($1)").bind(key);
        insert.execute(&mut **tx).await.unwrap();
    }

    async fn business_rows(&self) -> Vec<String> {
        let rows = sqlx::query_scalar("select key from business");
        rows.fetch_all(self.store.pool()).await.unwrap()
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

    async fn meet(&self, _: &mut Self::Tx, trouble: Trouble) {
        unreachable!("{trouble:?} is for tables with an inbox");
    }

    async fn purge_inbox(&self, consumer: &str, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        self.store.inbox(consumer).purge(keep, limit).await
    }

    async fn pass_time(&self, by: Duration) {
        for (purpose, table) in self.map.tables() {
            let columns: Vec<&Column> = match purpose {
                Purpose::Outbox => self.map.columns().map(|(_, column)| column).collect(),
                side => self.map.side_columns(side).map(|(_, column)| column).collect(),
            };
            let set: Vec<_> = columns.into_iter().filter_map(|column| earlier(column, by)).collect();
            if !set.is_empty() {
                self.run(format!("update \"{}\" set {}", table.name, set.join(", ")))
                    .await;
            }
        }
    }

    async fn refuse_changes_to(&self, ids: &[MessageId]) {
        let ids: Vec<_> = ids.iter().map(|id| self.literal(*id)).collect();
        let mut sql = format!("alter table \"{}\" drop constraint if exists no_change", self.outbox());
        if !ids.is_empty() {
            // Old rows do not have to meet it, until they are changed.
            let check = format!("check (\"{}\" not in ({}))", self.column(Role::Id).name, ids.join(", "));
            sql = format!("{sql}, add constraint no_change {check} not valid");
        }
        self.run(sql).await;
    }

    async fn corrupt_payload(&self, id: MessageId) {
        let (table, payload) = (self.outbox(), self.column(Role::Payload));
        let changed = match payload.kind {
            Kind::Bytes => format!("\"{}\" || 'x'::bytea", payload.name),
            _ => format!("\"{}\" || 'x'", payload.name),
        };
        let sql = format!(
            "update \"{table}\" set \"{}\" = {changed} where {}",
            payload.name,
            self.is(id)
        );
        self.run(sql).await;
    }

    async fn lock_row(&self, tx: &mut Self::Tx, id: MessageId) {
        let sql = format!("select from \"{}\" where {} for update", self.outbox(), self.is(id));
        tx.execute(AssertSqlSafe(sql)).await.unwrap();
    }

    async fn lock_table(&self, tx: &mut Self::Tx) {
        let sql = format!("lock table \"{}\" in share mode", self.outbox());
        tx.execute(AssertSqlSafe(sql)).await.unwrap();
    }

    async fn write(&self, id: MessageId, role: Role, text: Option<&str>) {
        let (table, column) = (self.outbox(), &self.column(role).name);
        let value = text.map_or("null".to_owned(), |text| format!("'{text}'"));
        self.run(format!(
            "alter table \"{table}\" alter column \"{column}\" drop not null;
             update \"{table}\" set \"{column}\" = {value} where {}",
            self.is(id)
        ))
        .await;
    }

    async fn read(&self, id: MessageId, role: Role) -> Option<String> {
        let (table, column) = (self.outbox(), &self.column(role).name);
        let sql = format!("select \"{column}\"::text from \"{table}\" where {}", self.is(id));
        let query = sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false);
        query.fetch_one(self.store.pool()).await.unwrap()
    }

    async fn letters(&self) -> i64 {
        let table = &self.map.table(Purpose::DeadLetter).unwrap().name;
        let sql = format!("select count(*) from \"{table}\"");
        sqlx::query_scalar(AssertSqlSafe(sql))
            .fetch_one(self.store.pool())
            .await
            .unwrap()
    }

    async fn dispose(self) {
        // Without the store the transactions of claims that nobody settled end.
        let pool = self.store.pool().clone();
        drop(self.store);
        pool.close().await;
        let sql = format!("drop schema {} cascade", self.schema);
        support::pool(1).await.execute(AssertSqlSafe(sql)).await.unwrap();
    }
}
