//! Locks that others hold on rows in flight, or that triggers ask for.

use std::time::{Duration, Instant};

use posthaste_core::lifecycle::{LeaseToken, Settlement};
use posthaste_core::store::{ClaimRequest, ExtendRequest, KeyOrdering, Scope, WorkerId};
use posthaste_core::{Message, MessageId, OutboxOptions, RelayStore};
use posthaste_postgres::PostgresStore;
use posthaste_relay::{Relay, RelayConfig};
use posthaste_testkit::RecordingPublisher;
use sqlx::{AssertSqlSafe, Executor};
use tokio_util::sync::CancellationToken;

use crate::support;

/// Long enough for a slow machine to renew it in time, and short enough to wait for its end.
const LEASE: Duration = Duration::from_secs(8);

/// Something that is to end soon must end within this time also on a slow machine.
const SOON: Duration = Duration::from_mins(1);

async fn place(messages: usize) -> (PostgresStore, String, Vec<MessageId>) {
    let schema = support::fresh_schema();
    let store = PostgresStore::in_schema(support::pool(6).await, &schema).unwrap();
    posthaste_core::store::SchemaStore::migrate(&store).await.unwrap();
    let messages: Vec<_> = (0..messages).map(|n| Message::new("t", n.to_string())).collect();
    let ids = messages.iter().map(|message| message.id).collect();
    let mut tx = store.pool().begin().await.unwrap();
    let outbox = store.outbox(OutboxOptions::default());
    outbox.enqueue_all(&mut tx, messages).await.unwrap();
    tx.commit().await.unwrap();
    (store, schema, ids)
}

fn request() -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit: 1_000,
        max_bytes: 1 << 20,
        scan_limit: None,
        lease: Duration::from_mins(5),
        max_attempts: 10,
        ordering: KeyOrdering::None,
        scope: Scope::default(),
        left_out: Vec::new(),
        pipelined: false,
    }
}

async fn run(store: &PostgresStore, sql: String) {
    let sql = sqlx::raw_sql(AssertSqlSafe(sql));
    store.pool().execute(sql).await.unwrap();
}

async fn count(store: &PostgresStore, schema: &str, state: &str) -> i64 {
    let sql = format!("select count(*) from {schema}.outbox where status = '{state}'");
    let mut tx = store.pool().begin().await.unwrap();
    let count = sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false);
    count.fetch_one(&mut *tx).await.unwrap()
}

/// An operator wants to know whom to ask.
#[tokio::test(flavor = "multi_thread")]
async fn who_has_locked_a_row_is_said() {
    let (store, schema, ids) = place(2).await;
    let request = request();
    store.claim(&request).await.unwrap();
    let mut other = store.pool().begin().await.unwrap();
    other
        .execute("set application_name = 'a curious operator'")
        .await
        .unwrap();
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()")
        .fetch_one(&mut *other)
        .await
        .unwrap();
    let lock = format!("select from {schema}.outbox where id = '{}' for update", ids[1]);
    other.execute(AssertSqlSafe(lock)).await.unwrap();
    let verdicts = ids.iter().map(|id| Settlement::delivered(*id, request.token));
    let settled = store.settle(&verdicts.collect::<Vec<_>>()).await.unwrap();
    let holder = settled.busy[0].holder.as_deref().unwrap();
    assert_eq!(holder, format!("session {pid} (a curious operator)"));
    other.rollback().await.unwrap();
}

/// Renewals and verdicts of one relay meet all the time: they wait for each other, and nothing is called lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_that_meets_the_renewal_of_its_own_lease_is_not_lost() {
    let (store, _, ids) = place(200).await;
    let request = request();
    store.claim(&request).await.unwrap();
    let renewing = async {
        for _ in 0..20 {
            store
                .extend(ExtendRequest::new(request.token, &ids, request.lease))
                .await
                .unwrap();
        }
    };
    let settling = async {
        for chunk in ids.chunks(10) {
            let mut left = chunk.to_vec();
            while !left.is_empty() {
                let verdicts = left.iter().map(|id| Settlement::delivered(*id, request.token));
                let settled = store.settle(&verdicts.collect::<Vec<_>>()).await.unwrap();
                assert!(settled.lost.is_empty() && settled.refused.is_empty(), "{settled:?}");
                left = settled.busy.iter().map(|row| row.id).collect();
            }
        }
    };
    tokio::join!(renewing, settling);
}

/// What keeps one verdict from being written may lie in another table, and says nothing about its neighbours.
///
/// Proves pitfall 19.
#[tokio::test(flavor = "multi_thread")]
async fn a_trigger_that_does_not_get_its_lock_stops_no_other_verdict() {
    let (store, schema, ids) = place(50).await;
    run(
        &store,
        format!(
            "create table {schema}.ledger (id uuid primary key);
             insert into {schema}.ledger select id from {schema}.outbox;
             create function {schema}.book() returns trigger language plpgsql as $$
             begin
                 if new.status = 'delivered' then
                     perform from {schema}.ledger where id = new.id for update nowait;
                 end if;
                 return new;
             end $$;
             create trigger book before update on {schema}.outbox for each row execute function {schema}.book()"
        ),
    )
    .await;
    let mut other = store.pool().begin().await.unwrap();
    let lock = format!("select from {schema}.ledger where id = '{}' for update", ids[17]);
    other.execute(AssertSqlSafe(lock)).await.unwrap();
    let (broker, shutdown) = (RecordingPublisher::new(), CancellationToken::new());
    let config = RelayConfig {
        lease: LEASE,
        poll_interval: Duration::from_millis(50),
        max_poll_interval: Duration::from_millis(50),
        ..RelayConfig::default()
    };
    let relay = Relay::new(store.clone(), broker.clone()).config(config);
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    let delivered = async |wanted: i64| {
        let deadline = Instant::now() + Duration::from_secs(30);
        while count(&store, &schema, "delivered").await != wanted {
            assert!(Instant::now() < deadline, "{wanted} should be delivered");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    delivered(49).await;
    // Its lease would be over by now.
    tokio::time::sleep(LEASE + Duration::from_secs(1)).await;
    assert_eq!(count(&store, &schema, "dead").await, 0);
    other.rollback().await.unwrap();
    delivered(50).await;
    shutdown.cancel();
    let report = relay.await.unwrap().unwrap();
    assert_eq!((report.delivered, report.busy, report.lease_lost), (50, 0, 0));
    broker.assert_delivered_once(&ids);
}

/// To publish it once per lease would not help, and in the end it would be dead.
///
/// Proves pitfall 19.
#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_that_a_trigger_swallows_is_not_published_again() {
    let (store, schema, ids) = place(20).await;
    let (broker, shutdown) = (
        posthaste_testkit::FaultyPublisher::new(RecordingPublisher::new()),
        CancellationToken::new(),
    );
    broker.hang();
    let config = RelayConfig {
        lease: LEASE,
        poll_interval: Duration::from_millis(50),
        max_poll_interval: Duration::from_millis(50),
        ..RelayConfig::default()
    };
    let relay = Relay::new(store.clone(), broker.clone()).config(config);
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    broker.wait_until_hanging(1).await;
    run(
        &store,
        format!(
            "create function {schema}.swallow() returns trigger language plpgsql as $$
             begin
                 return case when new.status = 'delivered' and new.id = '{}' then null else new end;
             end $$;
             create trigger swallow before update on {schema}.outbox for each row execute function {schema}.swallow()",
            ids[7]
        ),
    )
    .await;
    broker.heal();
    let delivered = async |wanted: i64| {
        let deadline = Instant::now() + Duration::from_secs(30);
        while count(&store, &schema, "delivered").await != wanted {
            assert!(Instant::now() < deadline, "{wanted} should be delivered");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    delivered(19).await;
    // Its lease would be over by now.
    tokio::time::sleep(LEASE + Duration::from_secs(1)).await;
    run(&store, format!("drop trigger swallow on {schema}.outbox")).await;
    delivered(20).await;
    shutdown.cancel();
    let report = relay.await.unwrap().unwrap();
    assert_eq!((report.delivered, report.refused, report.lease_lost), (20, 0, 0));
    broker.inner().assert_delivered_once(&ids);
}

/// Others pass over locked rows, so the locks of a relay that is frozen before it commits must not last.
///
/// Proves E6 and pitfall 6.
#[tokio::test(flavor = "multi_thread")]
async fn no_transaction_that_locks_rows_outlives_a_relay_that_is_frozen() {
    let (store, schema, ids) = place(3).await;
    run(
        &store,
        format!(
            "create table {schema}.limits (state text, frozen text);
             create function {schema}.note() returns trigger language plpgsql as $$
             begin
                 insert into {schema}.limits values (new.status, current_setting('idle_in_transaction_session_timeout'));
                 return new;
             end $$"
        ),
    )
    .await;
    let work = request();
    store.claim(&work).await.unwrap();
    // A claim of rows without keys is one statement, which needs no limit.
    run(
        &store,
        format!("create trigger note before update on {schema}.outbox for each row execute function {schema}.note()"),
    )
    .await;
    store
        .extend(ExtendRequest::new(work.token, &ids, work.lease))
        .await
        .unwrap();
    let retry = Settlement::retry(ids[0], work.token, Duration::ZERO, "full");
    let dead = Settlement::dead(ids[1], work.token, "poison");
    let delivered = Settlement::delivered(ids[2], work.token);
    store.settle(&[retry, dead, delivered]).await.unwrap();
    let limits = format!("select distinct frozen from {schema}.limits");
    let limits: Vec<String> = sqlx::query_scalar(AssertSqlSafe(limits))
        .fetch_all(store.pool())
        .await
        .unwrap();
    assert_eq!(limits, ["5s"]);
}

/// A drain has to end, and to say whom to ask.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_does_not_wait_for_a_locked_table_without_end() {
    let (store, schema, _) = place(20).await;
    let mut other = store.pool().begin().await.unwrap();
    other.execute("set application_name = 'an index'").await.unwrap();
    let lock = format!("lock table {schema}.outbox in share mode");
    other.execute(AssertSqlSafe(lock)).await.unwrap();
    let drain = Relay::new(store.clone(), RecordingPublisher::new()).drain();
    let error = tokio::time::timeout(SOON, drain).await.expect("it ends");
    let error = error.unwrap_err().to_string();
    for words in [
        "(an index) has locked the whole table",
        "(ShareLock)",
        "pg_terminate_backend",
    ] {
        assert!(error.contains(words), "{error}");
    }
    other.rollback().await.unwrap();
}

/// What was published under such a lock is not forgotten over it.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_that_could_not_write_what_it_published_says_so() {
    let (store, schema, ids) = place(20).await;
    let broker = posthaste_testkit::FaultyPublisher::new(RecordingPublisher::new());
    broker.hang();
    let relay = tokio::spawn(Relay::new(store.clone(), broker.clone()).drain());
    broker.wait_until_hanging(1).await;
    let mut other = store.pool().begin().await.unwrap();
    let lock = format!("lock table {schema}.outbox in share mode");
    other.execute(AssertSqlSafe(lock)).await.unwrap();
    broker.heal();
    let error = tokio::time::timeout(SOON, relay).await.expect("it ends");
    let error = error.unwrap().unwrap_err();
    let posthaste_relay::RelayError::Unsettled { report } = error else {
        panic!("{error}");
    };
    assert_eq!((report.busy, report.abandoned, report.undelivered), (20, 0, 20));
    broker.inner().assert_delivered_once(&ids);
    other.rollback().await.unwrap();
}

/// A claim that meets with many refusals, each of which takes its time, ends, and what it has found is not lost.
///
/// Proves pitfall 19.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_has_one_deadline_for_all_that_it_tries() {
    let (store, schema, ids) = place(400).await;
    run(
        &store,
        format!(
            "create function {schema}.object() returns trigger language plpgsql as $$
             begin
                 perform pg_sleep(0.1);
                 raise 'no change';
             end $$;
             create trigger object before update on {schema}.outbox for each row execute function {schema}.object()"
        ),
    )
    .await;
    let some = ClaimRequest {
        limit: 200,
        ..request()
    };
    let begun = Instant::now();
    let claim = store.claim(&some).await.unwrap();
    // To find them all would take twenty seconds at least.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(claim.messages.is_empty() && !claim.refused.is_empty(), "{claim:?}");
    assert_eq!(claim.refused[0].id, ids[0]);
}
