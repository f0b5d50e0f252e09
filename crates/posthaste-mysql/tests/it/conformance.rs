//! MariaDB passes the conformance suite.

use std::time::Duration;

use posthaste_core::{EnqueueError, Enqueued, Inbox, InboxStore, Mark, Message, MessageId, OutboxOptions, StoreError};
use posthaste_mysql::MySqlStore;
use posthaste_testkit::{Backend, Fixture, Trouble};
use sqlx::{AssertSqlSafe, Executor, MySql, Transaction};

use crate::support;

struct MariaDb {
    store: MySqlStore,
}

impl MariaDb {
    async fn run(&self, sql: &str) {
        support::run(self.store.pool(), sql).await;
    }
}

impl Fixture for MariaDb {
    type Backend = Self;

    async fn fresh() -> Self {
        let store = support::store(8).await;
        let backend = Self { store };
        backend.run("create table business (`key` text not null)").await;
        backend
    }
}

impl Backend for MariaDb {
    type Store = MySqlStore;
    type Tx = Transaction<'static, MySql>;

    fn store(&self) -> &MySqlStore {
        &self.store
    }

    /// As an application would, with the server's default isolation.
    async fn begin(&self) -> Self::Tx {
        self.store.pool().begin().await.unwrap()
    }

    async fn commit(&self, tx: Self::Tx) {
        tx.commit().await.unwrap();
    }

    async fn rollback(&self, mut tx: Self::Tx) {
        // Which a rollback does not.
        tx.execute("unlock tables").await.unwrap();
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
        sqlx::query("insert into business values (?)")
            .bind(key)
            .execute(&mut **tx)
            .await
            .unwrap();
    }

    async fn business_rows(&self) -> Vec<String> {
        sqlx::query_scalar("select `key` from business")
            .fetch_all(self.store.pool())
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
        let step = format!("interval {} microsecond", by.as_micros());
        self.run(&format!(
            "update posthaste_outbox set created_at = created_at - {step}, updated_at = updated_at - {step},
                next_attempt_at = next_attempt_at - {step}, locked_until = locked_until - {step},
                delivered_at = delivered_at - {step};
             update posthaste_outbox_dedupe set expires_at = expires_at - {step};
             update posthaste_inbox set handled_at = handled_at - {step};
             update posthaste_relays set started_at = started_at - {step}, seen_at = seen_at - {step},
                circuit_since = circuit_since - {step};
             update posthaste_leaders set since = since - {step}, until = until - {step};"
        ))
        .await;
    }

    async fn refuse_changes_to(&self, ids: &[MessageId]) {
        self.run("drop trigger if exists no_change").await;
        if !ids.is_empty() {
            let ids: Vec<_> = ids.iter().map(|id| format!("'{id}'")).collect();
            self.run(&format!(
                "create trigger no_change before update on posthaste_outbox for each row
                 if new.id in ({}) then signal sqlstate '45000' set message_text = 'no change'; end if",
                ids.join(", ")
            ))
            .await;
        }
    }

    async fn corrupt_payload(&self, id: MessageId) {
        self.run(&format!(
            "update posthaste_outbox set payload = concat(payload, 'x') where id = '{id}'"
        ))
        .await;
    }

    async fn lock_row(&self, tx: &mut Self::Tx, id: MessageId) {
        let sql = format!("select id from posthaste_outbox where id = '{id}' for update");
        tx.execute(AssertSqlSafe(sql)).await.unwrap();
    }

    async fn lock_table(&self, tx: &mut Self::Tx) {
        tx.execute("lock tables posthaste_outbox read").await.unwrap();
    }

    async fn dispose(self) {
        support::drop_database(self.store.pool()).await;
    }
}

posthaste_testkit::conformance_suite!(MariaDb);

#[test]
fn some_cases_are_not_for_it() {
    insta::assert_snapshot!(posthaste_testkit::suite::left_out::<MariaDb>());
}
