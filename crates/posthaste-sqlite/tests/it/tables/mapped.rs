//! Any table as a backend of the conformance suite, by its map.

use std::marker::PhantomData;
use std::time::Duration;

use posthaste_core::outbox::Transactions;
use posthaste_core::{EnqueueError, Enqueued, Inbox, InboxStore, Mark, Message, MessageId, OutboxOptions, StoreError};
use posthaste_sql::TableMap;
use posthaste_sql::table::{Column, Database, Kind, Role, Table as Purpose};
use posthaste_sqlite::SqliteStore;
use posthaste_testkit::{Backend, Fixture, Need, Table, Trouble, fit, id_literal};
use sqlx::{AssertSqlSafe, Executor, Sqlite, Transaction};
use tempfile::TempDir;

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

/// Those tables in a file of their own.
pub struct Mapped {
    store: SqliteStore,
    map: TableMap,
    _directory: TempDir,
}

impl Mapped {
    async fn run(&self, sql: impl Into<String>) {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.into()));
        self.store.pool().execute(sql).await.unwrap();
    }

    fn outbox(&self) -> String {
        self.map.table(Purpose::Outbox).unwrap().name.to_string()
    }

    fn literal(&self, id: MessageId) -> String {
        id_literal(&self.map, Database::Sqlite, id)
    }

    /// Whether a row is that of an id.
    fn is(&self, id: MessageId) -> String {
        format!("\"{}\" = {}", self.column(Role::Id).name, self.literal(id))
    }

    fn column(&self, role: Role) -> &Column {
        self.map.column(role).unwrap()
    }
}

/// The same time, earlier.
fn earlier(column: &Column, by: Duration) -> Option<String> {
    let name = format!("\"{}\"", column.name);
    let step = match column.kind {
        Kind::Timestamptz | Kind::Timestamp => {
            let millis = by.as_millis();
            let (seconds, millis) = (millis / 1000, millis % 1000);
            return Some(format!(
                "{name} = strftime('%Y-%m-%d %H:%M:%f', {name}, '-{seconds}.{millis:03} seconds')"
            ));
        }
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
        let one_writer = [
            Need::ConcurrentWriters,
            Need::ConcurrentClaims,
            Need::RowLock,
            Need::TableLock,
        ];
        Table::of(&T::map())
            .without(&one_writer)
            .without(T::WITHOUT)
            .except(T::EXCEPT)
    }

    async fn fresh() -> Mapped {
        let map = T::map();
        let (pool, directory) = support::pool(5).await;
        pool.execute(sqlx::raw_sql(AssertSqlSafe(T::ddl()))).await.unwrap();
        let store = SqliteStore::with_map(pool, map.clone()).unwrap();
        let backend = Mapped {
            store,
            map,
            _directory: directory,
        };
        backend.run("create table business (key text not null)").await;
        backend
    }
}

impl Backend for Mapped {
    type Store = SqliteStore;
    type Tx = Transaction<'static, Sqlite>;

    fn store(&self) -> &SqliteStore {
        &self.store
    }

    async fn begin(&self) -> Self::Tx {
        Transactions::begin(&self.store).await.unwrap()
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
        let insert = sqlx::query("insert into business values (?1)").bind(key);
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
        self.run(format!(
            "drop trigger if exists no_change;
             create trigger no_change before update on \"{}\" when new.\"{}\" in ({})
             begin select raise(abort, 'no change'); end",
            self.outbox(),
            self.column(Role::Id).name,
            ids.join(", ")
        ))
        .await;
    }

    async fn corrupt_payload(&self, id: MessageId) {
        let (table, payload) = (self.outbox(), self.column(Role::Payload));
        let changed = match payload.kind {
            Kind::Bytes => format!("x'00' || \"{}\"", payload.name),
            _ => format!("\"{}\" || 'x'", payload.name),
        };
        let sql = format!(
            "update \"{table}\" set \"{}\" = {changed} where {}",
            payload.name,
            self.is(id)
        );
        self.run(sql).await;
    }

    async fn write(&self, id: MessageId, role: Role, text: Option<&str>) {
        let (table, column) = (self.outbox(), &self.column(role).name);
        let value = text.map_or("null".to_owned(), |text| format!("'{text}'"));
        self.run(format!(
            "update \"{table}\" set \"{column}\" = {value} where {}",
            self.is(id)
        ))
        .await;
    }

    async fn read(&self, id: MessageId, role: Role) -> Option<String> {
        let (table, column) = (self.outbox(), &self.column(role).name);
        let sql = format!(
            "select cast(\"{column}\" as text) from \"{table}\" where {}",
            self.is(id)
        );
        sqlx::query_scalar(AssertSqlSafe(sql))
            .fetch_one(self.store.pool())
            .await
            .unwrap()
    }

    async fn letters(&self) -> i64 {
        let table = &self.map.table(Purpose::DeadLetter).unwrap().name;
        let sql = format!("select count(*) from \"{table}\"");
        sqlx::query_scalar(AssertSqlSafe(sql))
            .fetch_one(self.store.pool())
            .await
            .unwrap()
    }
}
