//! The log passes the conformance suite by what it has.

use std::time::Duration;

use posthaste_core::outbox::Transactions;
use posthaste_core::store::SchemaStore;
use posthaste_core::{EnqueueError, Enqueued, Inbox, InboxStore, Mark, Message, MessageId, OutboxOptions, StoreError};
use posthaste_sql::TableMap;
use posthaste_sqlite::SqliteLogStore;
use posthaste_testkit::{Backend, Fixture, Need, Table, Trouble, fit};
use sqlx::{Executor, Sqlite, Transaction};
use tempfile::TempDir;

use crate::support;

struct LogBackend {
    store: SqliteLogStore,
    #[expect(dead_code, reason = "to have it is what it is for")]
    directory: TempDir,
}

impl Fixture for LogBackend {
    type Backend = Self;

    fn table() -> Table {
        let map = TableMap::log_with_prefix("posthaste_").expect("the prefix is valid");
        let one_reader = "a log has one reader, so a relay serves all of it";
        Table::of(&map)
            .without(&[
                Need::ConcurrentWriters,
                Need::ConcurrentClaims,
                Need::RowLock,
                Need::TableLock,
            ])
            .except(&[
                ("claim::a_relay_may_be_limited_to_a_tenant", one_reader),
                ("claim::a_relay_may_be_limited_to_topics", one_reader),
                ("draining::a_drain_of_some_topics_says_nothing_of_others", one_reader),
                (
                    "dedupe::a_key_is_held_beyond_its_window_while_its_row_is_there",
                    "rows say when they were written and not when they were delivered, so their retention counts from there",
                ),
            ])
    }

    async fn fresh() -> Self {
        let (pool, directory) = support::pool(5).await;
        let store = SqliteLogStore::new(pool).retrying_at_once();
        store.migrate().await.expect("migrations apply");
        let business = "create table business (key text not null)";
        store
            .pool()
            .execute(business)
            .await
            .expect("a table for the application");
        Self { store, directory }
    }
}

impl Backend for LogBackend {
    type Store = SqliteLogStore;
    type Tx = Transaction<'static, Sqlite>;

    fn store(&self) -> &SqliteLogStore {
        &self.store
    }

    async fn begin(&self) -> Self::Tx {
        // As applications do: past a connection whose transaction ended behind the driver's back.
        let begun = Transactions::begin(&self.store).await;
        begun.expect("a transaction begins")
    }

    async fn commit(&self, tx: Self::Tx) {
        tx.commit().await.expect("the transaction commits");
    }

    async fn rollback(&self, tx: Self::Tx) {
        tx.rollback().await.expect("the transaction rolls back");
    }

    async fn enqueue(
        &self,
        tx: &mut Self::Tx,
        messages: Vec<Message>,
        options: &OutboxOptions,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let messages = fit(self.store.map(), messages, options);
        self.store.outbox(options.clone()).enqueue_all(tx, messages).await
    }

    async fn write_business_row(&self, tx: &mut Self::Tx, key: &str) {
        let insert = sqlx::query("insert into business (key) values (?1)").bind(key.to_owned());
        insert.execute(&mut **tx).await.expect("the business row is written");
    }

    async fn business_rows(&self) -> Vec<String> {
        let rows = sqlx::query_scalar("select key from business").fetch_all(self.store.pool());
        rows.await.expect("the business rows are read")
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
            Trouble::RefusedStatement => "insert into posthaste_inbox (consumer) values (null)",
            Trouble::Rollback => "rollback",
        };
        let met = tx.execute(statement).await;
        assert_eq!(met.is_err(), trouble == Trouble::RefusedStatement);
    }

    async fn purge_inbox(&self, consumer: &str, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        self.store.inbox(consumer).purge(keep, limit).await
    }

    async fn pass_time(&self, by: Duration) {
        self.store.pass_time(by);
        let millis = i64::try_from(by.as_millis()).expect("a test's time is short");
        for update in [
            "update posthaste_log set created_at = created_at - ?1",
            "update posthaste_log_failed set created_at = created_at - ?1, next_attempt_at = next_attempt_at - ?1, \
             failed_at = failed_at - ?1, died_at = died_at - ?1",
            "update posthaste_log_reader set leased_until = leased_until - ?1",
            "update posthaste_outbox_dedupe set expires_at = expires_at - ?1",
            "update posthaste_inbox set handled_at = handled_at - ?1",
            "update posthaste_relays set started_at = started_at - ?1, seen_at = seen_at - ?1, \
             circuit_since = circuit_since - ?1",
            "update posthaste_leaders set since = since - ?1, until = until - ?1",
        ] {
            let updated = sqlx::query(update).bind(millis).execute(self.store.pool()).await;
            updated.expect("the times are moved");
        }
    }

    async fn refuse_changes_to(&self, ids: &[MessageId]) {
        unreachable!("{ids:?} are never changed");
    }

    async fn corrupt_payload(&self, id: MessageId) {
        let update = sqlx::query("update posthaste_log set payload = x'00' || payload where id = ?1");
        let updated = update.bind(id.to_string()).execute(self.store.pool()).await;
        assert_eq!(updated.expect("the payload is changed").rows_affected(), 1);
    }
}

posthaste_testkit::conformance_suite!(LogBackend);

#[test]
fn some_cases_are_not_for_it() {
    insta::assert_snapshot!(posthaste_testkit::suite::left_out::<LogBackend>());
}
