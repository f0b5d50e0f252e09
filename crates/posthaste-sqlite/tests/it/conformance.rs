//! SQLite passes the conformance suite.

use std::time::Duration;

use posthaste_core::outbox::Transactions;
use posthaste_core::{EnqueueError, Enqueued, Inbox, InboxStore, Mark, Message, MessageId, OutboxOptions, StoreError};
use posthaste_sqlite::SqliteStore;
use posthaste_testkit::{Backend, Fixture, Need, Table, Trouble};
use sqlx::{AssertSqlSafe, Executor, Sqlite, Transaction};

use crate::support;

struct SqliteBackend(support::Fresh);

impl Fixture for SqliteBackend {
    type Backend = Self;

    fn table() -> Table {
        Table::complete().without(&[
            Need::ConcurrentWriters,
            Need::ConcurrentClaims,
            Need::RowLock,
            Need::TableLock,
        ])
    }

    async fn fresh() -> Self {
        let store = support::store(5).await;
        let business = "create table business (key text not null)";
        store
            .pool()
            .execute(business)
            .await
            .expect("a table for the application");
        Self(store)
    }
}

impl Backend for SqliteBackend {
    type Store = SqliteStore;
    type Tx = Transaction<'static, Sqlite>;

    fn store(&self) -> &SqliteStore {
        &self.0
    }

    async fn begin(&self) -> Self::Tx {
        // As applications do: past a connection whose transaction ended behind the driver's back.
        let begun = Transactions::begin(&*self.0).await;
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
        self.0.outbox(options.clone()).enqueue_all(tx, messages).await
    }

    async fn write_business_row(&self, tx: &mut Self::Tx, key: &str) {
        let insert = sqlx::query("insert into business (key) values (?1)").bind(key.to_owned());
        insert.execute(&mut **tx).await.expect("the business row is written");
    }

    async fn business_rows(&self) -> Vec<String> {
        let rows = sqlx::query_scalar("select key from business").fetch_all(self.0.pool());
        rows.await.expect("the business rows are read")
    }

    async fn record_handled(&self, tx: &mut Self::Tx, consumer: &str, key: &str) -> Result<bool, StoreError> {
        self.0.inbox(consumer).record(tx, key).await
    }

    async fn mark(&self, tx: &mut Self::Tx, mark: Mark) -> Result<(), StoreError> {
        self.0.inbox("any").mark(tx, mark).await
    }

    async fn prove(&self, tx: &mut Self::Tx, mark: Mark) -> Result<(), StoreError> {
        self.0.inbox("any").prove(tx, mark).await
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
        self.0.inbox(consumer).purge(keep, limit).await
    }

    async fn pass_time(&self, by: Duration) {
        let millis = i64::try_from(by.as_millis()).expect("a test's time is short");
        for update in [
            "update posthaste_outbox set created_at = created_at - ?1, next_attempt_at = next_attempt_at - ?1, \
             locked_until = locked_until - ?1, updated_at = updated_at - ?1, delivered_at = delivered_at - ?1",
            "update posthaste_outbox_dedupe set expires_at = expires_at - ?1",
            "update posthaste_inbox set handled_at = handled_at - ?1",
            "update posthaste_relays set started_at = started_at - ?1, seen_at = seen_at - ?1, \
             circuit_since = circuit_since - ?1",
            "update posthaste_leaders set since = since - ?1, until = until - ?1",
        ] {
            let updated = sqlx::query(update).bind(millis).execute(self.0.pool()).await;
            updated.expect("the times are moved");
        }
    }

    async fn refuse_changes_to(&self, ids: &[MessageId]) {
        let ids: Vec<_> = ids.iter().map(|id| format!("'{id}'")).collect();
        let trigger = format!(
            "drop trigger if exists no_change;
             create trigger no_change before update on posthaste_outbox when new.id in ({})
             begin select raise(abort, 'no change'); end",
            ids.join(", ")
        );
        let made = self.0.pool().execute(AssertSqlSafe(trigger)).await;
        made.expect("the trigger is made");
    }

    async fn corrupt_payload(&self, id: MessageId) {
        let update = sqlx::query("update posthaste_outbox set payload = x'00' || payload where id = ?1");
        let updated = update.bind(id.to_string()).execute(self.0.pool()).await;
        assert_eq!(updated.expect("the payload is changed").rows_affected(), 1);
    }
}

posthaste_testkit::conformance_suite!(SqliteBackend);

#[test]
fn some_cases_are_not_for_it() {
    insta::assert_snapshot!(posthaste_testkit::suite::left_out::<SqliteBackend>());
}
