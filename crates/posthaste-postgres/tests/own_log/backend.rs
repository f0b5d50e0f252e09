//! Posthaste's own log as a backend of the conformance suite.

use std::time::Duration;

use posthaste_core::store::SchemaStore as _;
use posthaste_core::{
    EnqueueError, Enqueued, Inbox as _, InboxStore as _, Mark, Message, MessageId, OutboxOptions, StoreError,
};
use posthaste_postgres::{LogLayoutOptions, PostgresInbox, PostgresLogStore};
use posthaste_sql::TableMap;
use posthaste_testkit::{Backend, Fixture, Table, Trouble};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor, PgPool, Postgres, Transaction};

use crate::by_event::ByEvent;
use crate::support;

/// Nothing finds a row of the log by its id, so that a key is held for its window and no longer; and rows go with their segments.
const DIFFERENT: &[(&str, &str)] = &[
    (
        "dedupe::a_race_is_decided_by_the_row_where_there_is_no_window",
        "a log does not look for the row of a key, so that without a window there is nothing that holds it",
    ),
    (
        "dedupe::a_key_is_held_beyond_its_window_while_its_row_is_there",
        "a log does not look for the row of a key, which is free when its window is over",
    ),
    (
        "dedupe::the_same_event_again_after_its_row_was_purged_is_known",
        "a row goes with its segment, and no purge removes it alone",
    ),
    (
        "order::a_scheduled_row_holds_back_what_follows_and_nothing_else",
        "what waits behind a scheduled row is handed out in order together with it, and not after it was delivered",
    ),
];

/// Shards are read side by side, so that rows of different keys come in no order.
const SIDE_BY_SIDE: &[&str] = &[
    "admin::a_list_goes_on_where_the_last_page_ended",
    "admin::only_dead_rows_are_replayed_or_discarded",
    "claim::no_more_than_the_bytes_are_taken_but_always_one_row",
    "claim::no_more_than_the_limit_is_taken",
    "claim::rows_come_by_sequence",
    "enqueue::a_thousand_messages_of_one_call_keep_their_order",
    "lease::an_extension_names_the_leases_that_are_still_held",
    "order::a_deep_backlog_that_is_held_back_hides_nothing",
    "order::a_failed_head_stops_its_key_and_no_other",
    "order::a_hot_key_does_not_starve_the_others",
    "order::rows_without_a_key_wait_for_nobody",
    "relay::a_drain_says_how_much_was_due_and_is_not_delivered",
    "relay::a_drain_gives_up_what_waits_above_a_lowered_limit",
    "relay::the_store_can_be_driven_without_a_relay",
    "sequence::a_row_that_is_tried_again_keeps_its_number",
    "sequence::numbers_go_up_in_the_order_of_inserts",
];

/// The log in a schema of its own, of so many shards.
pub struct NativeLog<const SHARDS: u32>;

/// The log. However many shards it has, the cases are compiled once for it.
pub struct Outbox {
    store: ByEvent,
    pool: PgPool,
    schema: String,
}

impl Outbox {
    fn inbox(&self, consumer: &str) -> PostgresInbox {
        self.store.0.inbox(consumer).unwrap()
    }

    async fn run(&self, sql: impl Into<String>) {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.into()));
        self.pool.execute(sql).await.unwrap();
    }
}

impl<const SHARDS: u32> Fixture for NativeLog<SHARDS> {
    type Backend = Outbox;

    fn table() -> Table {
        let side_by_side = |case| (case, "it takes for granted that rows of different keys are in order");
        let mut different = DIFFERENT.to_vec();
        if SHARDS > 1 {
            different.extend(SIDE_BY_SIDE.iter().copied().map(side_by_side));
        }
        Table::of(&TableMap::native_log("any").unwrap()).except(&different)
    }

    async fn fresh() -> Outbox {
        let schema = support::fresh_schema();
        let map = TableMap::native_log(&schema).unwrap();
        let address: PgConnectOptions = support::server_url().parse().unwrap();
        let address = address.options([("search_path", schema.as_str())]);
        let pool = PgPoolOptions::new()
            .max_connections(12)
            .connect_with(address)
            .await
            .unwrap();
        let options = LogLayoutOptions::of(&map).retry_interval(Duration::ZERO);
        let store = ByEvent(PostgresLogStore::with_options(pool.clone(), map, options).unwrap());
        store.0.migrate().await.expect("migrations apply");
        let tables = store.0.tables().unwrap();
        tables.raise_shards(SHARDS).await.unwrap();
        let backend = Outbox { store, pool, schema };
        backend.run("create table business (key text not null)").await;
        backend
    }
}

impl Backend for Outbox {
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
        self.store.0.outbox(options.clone()).enqueue_all(tx, messages).await
    }

    async fn write_business_row(&self, tx: &mut Self::Tx, key: &str) {
        let insert = sqlx::query("insert into business values ($1)").bind(key);
        insert.execute(&mut **tx).await.unwrap();
    }

    async fn business_rows(&self) -> Vec<String> {
        let rows = sqlx::query_scalar("select key from business");
        rows.fetch_all(&self.pool).await.unwrap()
    }

    async fn record_handled(&self, tx: &mut Self::Tx, consumer: &str, key: &str) -> Result<bool, StoreError> {
        self.inbox(consumer).record(tx, key).await
    }

    async fn mark(&self, tx: &mut Self::Tx, mark: Mark) -> Result<(), StoreError> {
        self.inbox("any").mark(tx, mark).await
    }

    async fn prove(&self, tx: &mut Self::Tx, mark: Mark) -> Result<(), StoreError> {
        self.inbox("any").prove(tx, mark).await
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
        self.inbox(consumer).purge(keep, limit).await
    }

    async fn pass_time(&self, by: Duration) {
        self.store.0.pass_time(by);
        let step = format!("interval '{} microseconds'", by.as_micros());
        self.run(format!(
            "update log set created_at = created_at - {step};
             update log_failed set created_at = created_at - {step}, next_attempt_at = next_attempt_at - {step},
                died_at = died_at - {step};
             update outbox_dedupe set expires_at = expires_at - {step};
             update inbox set handled_at = handled_at - {step};
             update relays set started_at = started_at - {step}, seen_at = seen_at - {step},
                circuit_since = circuit_since - {step};
             update leaders set since = since - {step}, until = until - {step}"
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
        let sql = format!("select from log_failed where event_id = '{id}' for update");
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
