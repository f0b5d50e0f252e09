//! The relay on PostgreSQL: wake-ups, small pools, other people's locks, and how quiet it is when idle.

use std::time::{Duration, Instant};

use posthaste_core::lifecycle::LeaseToken;
use posthaste_core::store::{ClaimRequest, DeadHead, KeyOrdering, Scope, StoreErrorKind, WorkerId};
use posthaste_core::wake::Notifier;
use posthaste_core::{Message, OutboxOptions, RelayStore};
use posthaste_postgres::PostgresStore;
use posthaste_relay::{Relay, RelayConfig};
use posthaste_testkit::{FaultyPublisher, RecordingPublisher};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Executor};
use tokio_util::sync::CancellationToken;

use crate::support;

/// Polls so rarely that only a wake-up can explain a quick delivery.
fn sleepy() -> RelayConfig {
    let rarely = Duration::from_secs(30);
    RelayConfig {
        lease: rarely * 3,
        poll_interval: rarely,
        max_poll_interval: rarely,
        ..RelayConfig::default()
    }
}

struct Running {
    broker: RecordingPublisher,
    shutdown: CancellationToken,
    relay: tokio::task::JoinHandle<()>,
}

fn start(store: &PostgresStore, config: RelayConfig) -> Running {
    let (broker, shutdown) = (RecordingPublisher::new(), CancellationToken::new());
    let relay = Relay::new(store.clone(), broker.clone())
        .config(config)
        .run_until(shutdown.clone());
    Running {
        broker,
        shutdown,
        relay: tokio::spawn(async move { assert!(relay.await.is_ok()) }),
    }
}

impl Running {
    async fn stop(self) {
        self.shutdown.cancel();
        self.relay.await.unwrap();
    }
}

async fn commit(store: &PostgresStore, message: Message) {
    let mut tx = store.pool().begin().await.unwrap();
    store
        .outbox(OutboxOptions::default())
        .enqueue(&mut tx, message)
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition().await {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// How many sessions listen to this outbox.
async fn listeners(store: &PostgresStore) -> Vec<i32> {
    let sql = "select pid from pg_stat_activity where query like 'LISTEN%' || $1 || '%'";
    sqlx::query_scalar(sql)
        .bind(store.channel())
        .fetch_all(store.pool())
        .await
        .unwrap()
}

/// Proves pitfall 11.
#[tokio::test(flavor = "multi_thread")]
async fn the_notifier_wakes_the_relay_and_never_notifies_inside_the_transaction() {
    let store = support::store(4).await;
    let running = start(&store, sleepy());
    eventually("the relay to listen", async || listeners(&store).await.len() == 1).await;
    let notifier = store.notifier();
    let outbox = store.outbox(OutboxOptions::default()).with_notifier(notifier);
    for n in 1..=20 {
        let mut tx = store.pool().begin().await.unwrap();
        outbox.enqueue(&mut tx, Message::new("t", "x")).await.unwrap();
        let notifying: bool = sqlx::query_scalar(
            "select exists (select from pg_locks where pid = pg_backend_pid() and locktype = 'object' and mode = 'AccessExclusiveLock')",
        )
        .fetch_one(&mut *tx)
        .await
        .unwrap();
        assert!(!notifying, "a NOTIFY would hold its lock until the commit");
        outbox.commit(tx).await.unwrap();
        eventually("a delivery", async || running.broker.ids().len() == n).await;
    }
    running.stop().await;
}

/// Proves pitfall 12.
#[tokio::test(flavor = "multi_thread")]
async fn what_came_while_the_listener_was_disconnected_is_found_when_it_is_back() {
    let store = support::store(4).await;
    let running = start(&store, sleepy());
    eventually("the relay to listen", async || listeners(&store).await.len() == 1).await;
    for n in 1..=3 {
        let before = listeners(&store).await;
        // Committed without a notification: only the reconnect can tell.
        commit(&store, Message::new("t", "x")).await;
        sqlx::query("select pg_terminate_backend($1)")
            .bind(before[0])
            .execute(store.pool())
            .await
            .unwrap();
        eventually("a delivery after the reconnect", async || {
            running.broker.ids().len() == n
        })
        .await;
        eventually("a new listener", async || {
            listeners(&store)
                .await
                .first()
                .is_some_and(|listener| *listener != before[0])
        })
        .await;
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_notification_costs_latency_only() {
    let store = support::store(4).await;
    let running = start(&store, RelayConfig::default());
    for n in 1..=5 {
        commit(&store, Message::new("t", "x")).await;
        eventually("a poll to find it", async || running.broker.ids().len() == n).await;
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_notifier_wakes_the_relay() {
    let store = support::store(4).await;
    let (broker, shutdown) = (RecordingPublisher::new(), CancellationToken::new());
    let relay = Relay::new(store.clone(), broker.clone()).config(sleepy());
    let notifier = relay.notifier();
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    for n in 1..=3 {
        commit(&store, Message::new("t", "x")).await;
        notifier.notify();
        eventually("a delivery", async || broker.ids().len() == n).await;
    }
    shutdown.cancel();
    relay.await.unwrap().unwrap();
}

/// Proves pitfall 14.
#[tokio::test(flavor = "multi_thread")]
async fn one_connection_is_enough_for_relay_and_producers_together() {
    let store = support::store(1).await;
    let running = start(
        &store,
        RelayConfig {
            janitor_interval: Duration::from_millis(20),
            ..RelayConfig::default()
        },
    );
    for n in 0..200 {
        commit(&store, Message::new("t", "x").key((n % 7).to_string())).await;
    }
    eventually("all deliveries", async || running.broker.ids().len() == 200).await;
    running.stop().await;
}

/// Proves A4 and pitfall 14.
#[tokio::test(flavor = "multi_thread")]
async fn no_transaction_is_open_while_publishing() {
    let store = support::store(4).await;
    let schema = store.channel().replace("posthaste:", "");
    commit(&store, Message::new("t", "x")).await;
    let broker = FaultyPublisher::new(RecordingPublisher::new());
    broker.hang();
    let relay = tokio::spawn(Relay::new(store.clone(), broker.clone()).drain());
    broker.wait_until_hanging(1).await;
    // The next claim may just be running; it ends, while a transaction around the publisher would not.
    eventually("every transaction on the table to end", async || {
        let sql = "select count(*) from pg_locks l join pg_class c on c.oid = l.relation
            where c.relname = 'outbox' and c.relnamespace = $1::regnamespace";
        let open: i64 = sqlx::query_scalar(sql)
            .bind(&schema)
            .fetch_one(store.pool())
            .await
            .unwrap();
        open == 0
    })
    .await;
    broker.release();
    assert_eq!(relay.await.unwrap().unwrap().delivered, 1);
}

fn claim(limit: u32) -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit,
        max_bytes: 1 << 20,
        scan_limit: None,
        lease: Duration::from_secs(30),
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

/// A row is locked with `for update` for a long time.
///
/// Proves pitfall 4.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_locked_by_another_transaction_holds_back_its_key_and_nothing_else() {
    let store = support::store(4).await;
    let schema = store.channel().replace("posthaste:", "");
    let messages = [("a", "1"), ("a", "2"), ("b", "3"), ("b", "4")].map(|(key, n)| Message::new("t", n).key(key));
    let ids = messages.clone().map(|message| message.id);
    let mut tx = store.pool().begin().await.unwrap();
    store
        .outbox(OutboxOptions::default())
        .enqueue_all(&mut tx, messages)
        .await
        .unwrap();
    tx.commit().await.unwrap();

    let mut lunch = store.pool().begin().await.unwrap();
    let sql = format!("select from {schema}.outbox where id = '{}' for update", ids[0]);
    lunch.execute(AssertSqlSafe(sql)).await.unwrap();
    let claimed = store.claim(&claim(10)).await.unwrap();
    let claimed: Vec<_> = claimed.messages.iter().map(|claimed| claimed.message.id).collect();
    assert_eq!(claimed, ids[2..], "neither the locked row nor its follower");
    lunch.rollback().await.unwrap();
    let claimed = store.claim(&claim(10)).await.unwrap();
    assert_eq!(claimed.messages.len(), 2);
}

/// Another transaction holds the claim lock and does not go on: the relay says so instead of waiting without a word.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_the_claim_lock_ends_with_an_error_that_names_it() {
    let store = support::store(4).await;
    commit(&store, Message::new("t", "x").key("k")).await;
    let mut frozen = store.pool().begin().await.unwrap();
    sqlx::query("select pg_advisory_xact_lock(hashtextextended($1, 0))")
        .bind(format!("{}:default", store.channel()))
        .execute(&mut *frozen)
        .await
        .unwrap();
    let drain = Relay::new(store.clone(), RecordingPublisher::new()).drain();
    let waited = tokio::time::timeout(Duration::from_mins(1), drain)
        .await
        .expect("the wait is bounded");
    let error = waited.unwrap_err().to_string();
    assert!(error.contains("lock timeout"), "{error}");
    frozen.rollback().await.unwrap();
    let report = Relay::new(store, RecordingPublisher::new()).drain().await.unwrap();
    assert_eq!(report.delivered, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_relay_asks_fewer_than_twenty_times_a_second() {
    let store = support::store(2).await;
    sqlx::query("create extension if not exists pg_stat_statements")
        .execute(store.pool())
        .await
        .ok();
    let schema = store.channel().replace("posthaste:", "");
    // Statements that name this schema, and with them the transactions around them, are this relay's own.
    let calls = async || -> Option<i64> {
        let sql = "select coalesce(sum(calls), 0)::bigint from pg_stat_statements where query like '%' || $1 || '%'";
        sqlx::query_scalar(sql).bind(&schema).fetch_one(store.pool()).await.ok()
    };
    let running = start(&store, RelayConfig::default());
    eventually("the relay to listen", async || listeners(&store).await.len() == 1).await;
    // Idle means that the interval has grown to its longest: 100, 200, 400, 800 ms.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let Some(before) = calls().await else {
        eprintln!("NOT RUN: this server has no pg_stat_statements");
        return running.stop().await;
    };
    let start = Instant::now();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let after = calls().await.unwrap();
    // Each claim comes with begin, lock and commit, which do not name the schema: four for one at the most.
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let per_second = (after - before) as f64 * 3.0 / start.elapsed().as_secs_f64();
    assert!(per_second < 20.0, "{per_second:.1} statements a second");
    running.stop().await;
}

#[tokio::test]
async fn failures_name_their_remedy() {
    let url = support::server_url();
    let missing = PostgresStore::in_schema(support::pool(1).await, "nowhere").unwrap();
    let error = missing.check().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::SchemaMissing);
    assert!(error.to_string().contains("run `posthaste migrate up`"), "{error}");

    let unreachable = PgPoolOptions::new()
        .acquire_timeout(Duration::from_secs(2))
        .connect_lazy("postgres://postgres@127.0.0.1:1/postgres")
        .unwrap();
    let error = PostgresStore::new(unreachable).check().await.unwrap_err();
    assert!(error.kind.is_transient(), "{error:?}");

    let (server, _) = url.rsplit_once('/').unwrap();
    let nobody = format!("{server}/no_such_database");
    let error = PgPoolOptions::new()
        .connect(&nobody)
        .await
        .map_err(posthaste_postgres::store_error)
        .unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Access);
    assert!(error.to_string().contains("create the database"), "{error}");

    let tight = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(Duration::from_millis(100))
        .connect(&url)
        .await;
    let tight = tight.unwrap();
    let _held = tight.acquire().await.unwrap();
    let error = PostgresStore::new(tight).check().await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::PoolExhausted);
    assert!(error.to_string().contains("max_connections"), "{error}");
}
