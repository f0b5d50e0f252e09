//! Databases whose transactions are stricter by default than the store's.

use std::time::Duration;

use posthaste_core::lifecycle::{LeaseToken, Settlement};
use posthaste_core::store::{ClaimRequest, DeadHead, KeyOrdering, SchemaStore, Scope, WorkerId};
use posthaste_core::{Inbox, InboxStore, Message, OutboxOptions, RelayStore};
use posthaste_postgres::PostgresStore;
use posthaste_relay::{Relay, RelayConfig};
use posthaste_testkit::RecordingPublisher;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor};

use crate::support;

const LONG: Duration = Duration::from_secs(30);

/// A database of its own with that default.
struct Strict(String);

impl Strict {
    async fn new(level: &str) -> Self {
        let name = support::fresh_schema();
        let server = support::pool(1).await;
        server
            .execute(AssertSqlSafe(format!("create database {name}")))
            .await
            .unwrap();
        let level = format!("alter database {name} set default_transaction_isolation = '{level}'");
        server.execute(AssertSqlSafe(level)).await.unwrap();
        let database = Self(name);
        database.store().await.migrate().await.unwrap();
        database
    }

    async fn store(&self) -> PostgresStore {
        let options: PgConnectOptions = support::server_url().parse().unwrap();
        let pool = PgPoolOptions::new().max_connections(6);
        PostgresStore::new(pool.connect_with(options.database(&self.0)).await.unwrap())
    }

    async fn enqueue(&self, messages: impl Iterator<Item = Message>) {
        let store = self.store().await;
        let mut tx = store.pool().begin().await.unwrap();
        let outbox = store.outbox(OutboxOptions::default());
        let messages: Vec<Message> = messages.collect();
        outbox.enqueue_all(&mut tx, messages).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn dispose(self) {
        let drop = format!("drop database {} with (force)", self.0);
        support::pool(1).await.execute(AssertSqlSafe(drop)).await.unwrap();
    }
}

fn request() -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit: 100,
        max_bytes: 1 << 20,
        scan_limit: None,
        lease: LONG,
        max_attempts: 5,
        ordering: KeyOrdering::PerKey {
            dead_head: DeadHead::Skip,
            except: Vec::new(),
        },
        scope: Scope::default(),
        left_out: Vec::new(),
        pipelined: false,
    }
}

/// Until a statement with these words in it waits for somebody.
async fn wait_for_a_lock(store: &PostgresStore, words: &str) {
    let waits = "select count(*) from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock' and query like '%' || $1 || '%'";
    let one_waits = async {
        while sqlx::query_scalar::<_, i64>(waits)
            .bind(words)
            .fetch_one(store.pool())
            .await
            .unwrap()
            == 0
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, one_waits).await.expect("it waits");
}

/// Proves E2.
#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_that_meets_a_renewal_is_kept() {
    for level in ["repeatable read", "serializable"] {
        let database = Strict::new(level).await;
        database.enqueue(std::iter::once(Message::new("t", "x"))).await;
        let store = database.store().await;
        let request = request();
        let id = store.claim(&request).await.unwrap().messages[0].message.id;
        let mut renewal = store.pool().begin().await.unwrap();
        let sql = "update posthaste.outbox set locked_until = locked_until + interval '1 second'";
        renewal.execute(sql).await.unwrap();
        let verdict = tokio::spawn({
            let (store, token) = (store.clone(), request.token);
            async move { store.settle(&[Settlement::delivered(id, token)]).await }
        });
        wait_for_a_lock(&store, "settled").await;
        renewal.commit().await.unwrap();
        let settled = tokio::time::timeout(LONG, verdict).await.unwrap().unwrap();
        assert_eq!(settled.expect(level).lost, []);
        store.pool().close().await;
        database.dispose().await;
    }
}

/// The second one has looked around before the first is done, as a handler may that looks something up.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_deliveries_at_a_time_one_is_handled_and_the_other_is_known() {
    for level in ["repeatable read", "serializable"] {
        let database = Strict::new(level).await;
        let store = database.store().await;
        let inbox = store.inbox("statistics");
        let mut first = inbox.begin().await.unwrap();
        assert!(inbox.record(&mut first, "42").await.unwrap());
        let mut second = inbox.begin().await.unwrap();
        second.execute("select count(*) from posthaste.outbox").await.unwrap();
        let recording = tokio::spawn({
            let inbox = inbox.clone();
            async move {
                let recorded = inbox.record(&mut second, "42").await;
                inbox.commit(second).await.map(|()| recorded)
            }
        });
        wait_for_a_lock(&store, "inbox").await;
        inbox.commit(first).await.unwrap();
        let recorded = tokio::time::timeout(LONG, recording).await.unwrap().unwrap();
        assert!(!recorded.expect(level).expect(level), "it was handled before");
        // Whoever opens the transaction chooses.
        let mut own = store.pool().begin().await.unwrap();
        assert!(inbox.record(&mut own, "43").await.unwrap());
        let chosen = sqlx::query_scalar::<_, String>("show transaction_isolation");
        assert_eq!(chosen.fetch_one(&mut *own).await.unwrap(), level);
        drop(own);
        store.pool().close().await;
        database.dispose().await;
    }
}

/// Proves E2.
#[tokio::test(flavor = "multi_thread")]
async fn relays_share_a_database_that_is_serializable_by_default() {
    let database = Strict::new("serializable").await;
    let messages = (0..2_000).map(|n| Message::new("t", n.to_string()).key(format!("k{}", n % 300)));
    database.enqueue(messages).await;
    let broker = RecordingPublisher::new();
    let config = RelayConfig {
        batch_size: 50,
        ..RelayConfig::default()
    };
    let mut relays = Vec::new();
    for _ in 0..3 {
        let relay = Relay::new(database.store().await, broker.clone()).config(config.clone());
        relays.push(tokio::spawn(relay.drain()));
    }
    for relay in relays {
        let drained = tokio::time::timeout(Duration::from_mins(2), relay).await;
        drained.expect("the drain ends").unwrap().unwrap();
    }
    assert_eq!(broker.ids().len(), 2_000, "each once");
    database.dispose().await;
}
