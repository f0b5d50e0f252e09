//! Other transactions in the way: what is tried again, how often, and what an abandoned claim leaves behind.

use std::time::Duration;

use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use posthaste_core::lifecycle::{LeaseToken, Settlement};
use posthaste_core::store::{
    ClaimRequest, DeadHead, ExtendRequest, KeyOrdering, PurgeRequest, SchemaStore, Scope, StoreErrorKind, WorkerId,
};
use posthaste_core::{Message, MessageId, OutboxOptions, RelayStore};
use posthaste_mysql::{MAX_RETRIES, MySqlStore};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{AssertSqlSafe, Executor};

use crate::support;

fn request() -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit: 100,
        max_bytes: 1 << 20,
        scan_limit: None,
        lease: Duration::from_mins(5),
        max_attempts: 10,
        ordering: KeyOrdering::PerKey {
            dead_head: DeadHead::Skip,
            except: Vec::new(),
        },
        scope: Scope::default(),
        left_out: Vec::new(),
        pipelined: false,
    }
}

async fn enqueue(store: &MySqlStore, count: usize) -> Vec<MessageId> {
    let messages: Vec<_> = (0..count).map(|n| Message::new("t", n.to_string())).collect();
    let mut conn = store.pool().acquire().await.unwrap();
    let outbox = store.outbox(OutboxOptions::default());
    let outcomes = outbox.enqueue_all(&mut conn, messages).await.unwrap();
    outcomes.into_iter().map(posthaste_core::Enqueued::id).collect()
}

/// How often transactions were begun again, by the reason.
fn retries(snapshotter: &Snapshotter, reason: &str) -> u64 {
    let counts = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .filter_map(|(key, _, _, value)| {
            let (kind, key) = key.into_parts();
            let is_ours = kind == MetricKind::Counter
                && key.name() == "outbox_store_retry_count"
                && key.labels().any(|label| label.value() == reason);
            match value {
                DebugValue::Counter(count) if is_ours => Some(count),
                _ => None,
            }
        });
    counts.sum()
}

/// Others pass over locked rows, so the locks of a relay that is frozen before it commits must not last, and the connection is
/// afterwards as it was.
///
/// Proves E6 and pitfall 6.
#[tokio::test]
async fn no_transaction_that_locks_rows_outlives_a_relay_that_is_frozen() {
    let store = support::store(1).await;
    let ids = enqueue(&store, 3).await;
    support::run(store.pool(), "create table limits (seconds int)").await;
    let trigger = "create trigger note before update on posthaste_outbox for each row insert into limits values (@@session.wait_timeout)";
    support::run(store.pool(), trigger).await;
    let before: i64 = sqlx::query_scalar("select cast(@@session.wait_timeout as signed)")
        .fetch_one(store.pool())
        .await
        .unwrap();
    let work = request();
    store.claim(&work).await.unwrap();
    store
        .extend(ExtendRequest::new(work.token, &ids, work.lease))
        .await
        .unwrap();
    let retry = Settlement::retry(ids[0], work.token, Duration::ZERO, "full");
    let delivered = Settlement::delivered(ids[2], work.token);
    store.settle(&[retry, delivered]).await.unwrap();
    let most: i64 = sqlx::query_scalar("select cast(max(seconds) as signed) from limits")
        .fetch_one(store.pool())
        .await
        .unwrap();
    let written: i64 = sqlx::query_scalar("select count(*) from limits")
        .fetch_one(store.pool())
        .await
        .unwrap();
    assert!(written >= 3 && most <= 60, "{written} writes, up to {most} s");
    let after: i64 = sqlx::query_scalar("select cast(@@session.wait_timeout as signed)")
        .fetch_one(store.pool())
        .await
        .unwrap();
    assert_eq!(after, before);
}

/// Rows that are locked are not waited for, but what triggers ask for is.
async fn keep_a_ledger(store: &MySqlStore) {
    support::run(store.pool(), "create table ledger (n int primary key)").await;
    support::run(store.pool(), "insert into ledger values (0)").await;
    let trigger = "create trigger book before update on posthaste_outbox for each row update ledger set n = n";
    support::run(store.pool(), trigger).await;
}

const LOCK_LEDGER: &str = "select n from ledger for update";

#[tokio::test]
async fn a_transaction_that_loses_a_deadlock_is_run_again_and_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let store = support::store(4).await;
    support::run(store.pool(), "create table ballast (n int)").await;
    keep_a_ledger(&store).await;
    let mut ids = enqueue(&store, 2).await;
    ids.sort_unstable();
    let held = request();
    store.claim(&held).await.unwrap();

    // Heavier than the other one, so that the server spares it.
    let mut other = store.pool().begin().await.unwrap();
    let weight = vec!["(1)"; 200].join(", ");
    let weigh = format!("insert into ballast values {weight}");
    other.execute(AssertSqlSafe(weigh)).await.unwrap();
    let lock = |id: MessageId| AssertSqlSafe(format!("select id from posthaste_outbox where id = '{id}' for update"));
    other.execute(LOCK_LEDGER).await.unwrap();

    let verdicts: Vec<_> = ids[..2]
        .iter()
        .map(|id| Settlement::delivered(*id, held.token))
        .collect();
    let (settled, ()) = tokio::join!(store.settle(&verdicts), async {
        wait_for_a_waiter(&store).await;
        // It has its rows and waits for the ledger; this asks for them the other way round.
        other.execute(lock(ids[0])).await.unwrap();
        other.commit().await.unwrap();
    });
    assert_eq!(settled.unwrap().lost, [], "it was settled in the end");
    assert_eq!(retries(&snapshotter, "deadlock"), 1);
}

async fn wait_for_a_waiter(store: &MySqlStore) {
    let waiting = "select count(*) from information_schema.innodb_trx t
        join information_schema.processlist p on p.id = t.trx_mysql_thread_id
        where t.trx_state = 'LOCK WAIT' and p.db = database()";
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    while sqlx::query_scalar::<_, i64>(waiting)
        .fetch_one(store.pool())
        .await
        .unwrap()
        == 0
    {
        assert!(tokio::time::Instant::now() < deadline, "nobody waits");
        // The server shows the same picture again to whoever asks more often than every tenth of a second.
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

#[tokio::test]
async fn a_lock_that_is_never_let_go_ends_in_an_error_after_a_few_retries() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let database = support::fresh_database().await;
    let pool = MySqlPoolOptions::new()
        .max_connections(4)
        .after_connect(|conn, _| {
            Box::pin(async move { conn.execute("set session innodb_lock_wait_timeout = 1").await.map(drop) })
        })
        .connect_with(
            support::server_url()
                .parse::<sqlx::mysql::MySqlConnectOptions>()
                .unwrap()
                .database(&database),
        )
        .await
        .unwrap();
    let store = MySqlStore::new(pool);
    store.migrate().await.unwrap();
    let ids = enqueue(&store, 1).await;
    let held = request();
    store.claim(&held).await.unwrap();
    keep_a_ledger(&store).await;

    let mut other = store.pool().begin().await.unwrap();
    other.execute(LOCK_LEDGER).await.unwrap();
    let error = store
        .extend(ExtendRequest::new(held.token, &ids, held.lease))
        .await
        .unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Contention);
    assert_eq!(retries(&snapshotter, "lock_wait_timeout"), u64::from(MAX_RETRIES));
    other.rollback().await.unwrap();
    assert_eq!(
        store
            .extend(ExtendRequest::new(held.token, &ids, held.lease))
            .await
            .unwrap()
            .held,
        ids
    );
}

/// Renewals and verdicts of one relay meet all the time: they wait for each other, and nothing is called lost.
#[tokio::test]
async fn a_verdict_that_meets_the_renewal_of_its_own_lease_is_not_lost() {
    let store = support::store(4).await;
    let ids = enqueue(&store, 100).await;
    let held = request();
    store.claim(&held).await.unwrap();
    let renewing = async {
        for _ in 0..10 {
            store
                .extend(ExtendRequest::new(held.token, &ids, held.lease))
                .await
                .unwrap();
        }
    };
    let settling = async {
        for chunk in ids.chunks(10) {
            let mut left = chunk.to_vec();
            while !left.is_empty() {
                let verdicts = left.iter().map(|id| Settlement::delivered(*id, held.token));
                let settled = store.settle(&verdicts.collect::<Vec<_>>()).await.unwrap();
                assert!(settled.lost.is_empty() && settled.refused.is_empty(), "{settled:?}");
                left = settled.busy.iter().map(|row| row.id).collect();
            }
        }
    };
    tokio::join!(renewing, settling);
}

/// The name of the lock, as the claim makes it.
const LOCK: &str =
    "concat('posthaste:', left(sha2(concat_ws('/', database(), 'posthaste_outbox', 'default'), 256), 40))";

/// Proves pitfall 4.
#[tokio::test]
async fn ordered_claims_wait_for_each_other_and_say_so_when_it_takes_too_long() {
    let store = support::store(2).await;
    let mut other = store.pool().acquire().await.unwrap();
    let lock = AssertSqlSafe(format!("do get_lock({LOCK}, 0)"));
    other.execute(lock).await.unwrap();
    let error = store.claim(&request()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Contention);
    assert!(error.to_string().contains("another relay"), "{error}");
    let unordered = ClaimRequest {
        ordering: KeyOrdering::None,
        ..request()
    };
    store.claim(&unordered).await.expect("nobody else waits for the lock");
    let timeouts: (i64, i64) =
        sqlx::query_as("select cast(@@session.wait_timeout as signed), cast(@@global.wait_timeout as signed)")
            .fetch_one(store.pool())
            .await
            .unwrap();
    assert_eq!(timeouts.0, timeouts.1, "the connection is as it was");
}

#[tokio::test]
async fn a_claim_that_is_abandoned_half_way_leaves_no_lock_behind() {
    let store = support::store(4).await;
    enqueue(&store, 500).await;
    for step in 0..60_u64 {
        let few = ClaimRequest { limit: 5, ..request() };
        let _ = tokio::time::timeout(Duration::from_micros(step * 200), store.claim(&few)).await;
    }
    // On a connection that has never claimed.
    let free = format!("select is_free_lock({LOCK})");
    // Before the server would end the connection for its silence.
    let deadline = tokio::time::Instant::now() + Duration::from_secs(8);
    let mut observer = support::pool_on(&database(&store).await, 1)
        .await
        .acquire()
        .await
        .unwrap();
    while sqlx::query_scalar::<_, i64>(AssertSqlSafe(free.clone()))
        .fetch_one(&mut *observer)
        .await
        .unwrap()
        != 1
    {
        assert!(tokio::time::Instant::now() < deadline, "the lock is still held");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    store.claim(&request()).await.unwrap();
}

async fn database(store: &MySqlStore) -> String {
    sqlx::query_scalar("select database()")
        .fetch_one(store.pool())
        .await
        .unwrap()
}

/// Proves pitfall 4.
#[tokio::test]
async fn a_row_that_another_transaction_has_locked_holds_back_its_key_and_no_other() {
    let store = support::store(4).await;
    let outbox = store.outbox(OutboxOptions::default());
    let keyed = |key: &str| Message::new("t", "x").key(key);
    let messages = [keyed("a"), keyed("a"), keyed("b")];
    let ids = messages.clone().map(|message| message.id);
    let mut conn = store.pool().acquire().await.unwrap();
    outbox.enqueue_all(&mut conn, messages).await.unwrap();

    let mut other = store.pool().begin().await.unwrap();
    let lock = format!("select id from posthaste_outbox where id = '{}' for update", ids[0]);
    other.execute(AssertSqlSafe(lock)).await.unwrap();
    let claimed = async || {
        let claim = store.claim(&request()).await.unwrap();
        claim
            .messages
            .iter()
            .map(|claimed| claimed.message.id)
            .collect::<Vec<_>>()
    };
    assert_eq!(claimed().await, ids[2..]);
    other.rollback().await.unwrap();
    assert_eq!(claimed().await, ids[..2]);
}

/// Proves pitfall 14.
#[tokio::test]
async fn a_pool_of_one_connection_is_enough() {
    let store = support::store(1).await;
    enqueue(&store, 50).await;
    let broker = posthaste_testkit::RecordingPublisher::new();
    let draining = posthaste_testkit::drain(store.clone(), broker.clone());
    let report = tokio::time::timeout(Duration::from_mins(1), draining)
        .await
        .expect("nothing waits for itself");
    assert_eq!(report.delivered, 50);
}

/// The isolation of a session is the owner's business; the store's transactions have their own.
#[tokio::test]
async fn relays_work_side_by_side_whatever_isolation_sessions_begin_with() {
    let store = support::store(2).await;
    enqueue(&store, 300).await;
    let database = database(&store).await;
    let options: sqlx::mysql::MySqlConnectOptions = support::server_url().parse().unwrap();
    let broker = posthaste_testkit::RecordingPublisher::new();
    let mut relays = Vec::new();
    for _ in 0..3 {
        let pool = MySqlPoolOptions::new()
            .max_connections(4)
            .after_connect(|conn, _| {
                Box::pin(async move {
                    let strictest = "set session transaction isolation level serializable";
                    conn.execute(strictest).await.map(drop)
                })
            })
            .connect_with(options.clone().database(&database))
            .await
            .unwrap();
        let config = posthaste_relay::RelayConfig {
            batch_size: 20,
            ..posthaste_relay::RelayConfig::default()
        };
        let relay = posthaste_relay::Relay::new(MySqlStore::new(pool), broker.clone()).config(config);
        relays.push(relay.drain());
    }
    let reports = futures::future::join_all(relays);
    let reports = tokio::time::timeout(Duration::from_mins(2), reports).await.unwrap();
    let delivered: u64 = reports.into_iter().map(|report| report.unwrap().delivered).sum();
    assert_eq!((delivered, broker.deliveries().len()), (300, 300));
}

/// Whoever is cancelled, at whatever moment, gives no connection back with a transaction that nobody knows of: what is
/// written on it next would not be committed.
#[tokio::test]
async fn a_call_that_is_abandoned_leaves_no_transaction_on_its_connection() {
    let store = support::store(1).await;
    enqueue(&store, 50).await;
    let unordered = ClaimRequest {
        ordering: KeyOrdering::None,
        limit: 1,
        ..request()
    };
    for step in 0..300_u64 {
        let after = Duration::from_micros(step * 10);
        let _ = tokio::time::timeout(after, store.claim(&unordered)).await;
        let _ = tokio::time::timeout(
            after,
            store.purge(&PurgeRequest::older_than(Duration::from_hours(1), 1)),
        )
        .await;
        let in_transaction = "set transaction isolation level read committed";
        let clean = store.pool().execute(in_transaction).await;
        clean.unwrap_or_else(|error| panic!("after {after:?}: {error}"));
    }
}

/// A claim that meets with many refusals, each of which takes its time, ends, and what it has found is not lost.
///
/// Proves pitfall 19.
#[tokio::test]
async fn a_claim_has_one_deadline_for_all_that_it_tries() {
    let store = support::store(4).await;
    let ids = enqueue(&store, 400).await;
    let object = "create trigger object before update on posthaste_outbox for each row
        begin do sleep(0.1); signal sqlstate '45000' set message_text = 'no change'; end";
    support::run(store.pool(), object).await;
    let some = ClaimRequest {
        limit: 200,
        ..request()
    };
    let begun = std::time::Instant::now();
    let claim = store.claim(&some).await.unwrap();
    // To find them all would take twenty seconds at least.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(claim.messages.is_empty() && !claim.refused.is_empty(), "{claim:?}");
    assert_eq!(claim.refused[0].id, ids[0]);
}
