//! What a successor repeats: what was in flight, whatever transactions are open.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use posthaste_core::store::SchemaStore;
use posthaste_core::{Batch, BreakerConfig, Outcome, PublishError, Publisher, RelayStore, Report};
use posthaste_postgres::{LogLayoutOptions, PostgresLogStore};
use posthaste_relay::{Relay, RelayConfig};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::connection::cut;
use super::eventually;
use super::ids::next_id;
use super::lines::Lines;

use crate::support::log::{Log, Work, request};

/// Claims and delivers until nothing is left that could be; returns how many that were.
async fn deliver_all(store: &PostgresLogStore) -> usize {
    let mut delivered = 0;
    loop {
        let work = Work::claim(store, &request(100)).await;
        if work.events().is_empty() {
            return delivered;
        }
        work.settle(store, &[]).await;
        delivered += work.events().len();
    }
}

async fn append_many(log: &Log, orders: std::ops::Range<u32>) {
    for order in orders {
        log.append(&log.pool, &order.to_string()).await;
    }
}

async fn state(log: &Log) -> String {
    sqlx::query_scalar("select state from posthaste.log_readers where log = current_schema() || '.outbox_cursor'")
        .fetch_one(&log.pool)
        .await
        .unwrap()
}

/// Proves C9.
#[tokio::test]
async fn a_clean_restart_beside_an_open_transaction_repeats_only_what_was_in_flight() {
    let log = Log::fresh(4).await;
    let mut open = log.pool.begin().await.unwrap();
    let late = log.append(&mut *open, "open").await;
    append_many(&log, 0..200).await;
    let first = log.store();
    assert_eq!(deliver_all(&first).await, 200);
    append_many(&log, 200..203).await;
    let in_flight = Work::claim(&first, &request(2)).await;
    assert_eq!(in_flight.keys(), ["200", "201"]);
    first.close().await.unwrap();
    drop(first);
    assert_eq!((log.cursor().await, state(&log).await.as_str()), (0, "203;1-1,202-203"));

    let second = log.store();
    let mut repeated = Work::claim(&second, &request(100)).await;
    eventually("the second one reads", async || {
        if repeated.events().is_empty() {
            repeated = Work::claim(&second, &request(100)).await;
        }
        !repeated.events().is_empty()
    })
    .await;
    assert_eq!(repeated.keys(), ["200", "201", "202"]);
    repeated.settle(&second, &[]).await;
    open.commit().await.unwrap();
    let work = Work::claim(&second, &request(100)).await;
    assert_eq!(work.events(), [late], "and skips nothing");
    work.settle(&second, &[]).await;
    second.close().await.unwrap();
    assert_eq!(log.cursor().await, 204);
    assert_eq!(deliver_all(&log.store()).await, 0);
}

/// A gap that the first one left is closed by a proof of the second one's own: its holder is still at work.
#[tokio::test]
async fn a_successor_closes_a_gap_only_when_its_transaction_has_ended() {
    let log = Log::fresh(6).await;
    let (mut rolled_back, mut committed) = (log.pool.begin().await.unwrap(), log.pool.begin().await.unwrap());
    log.append(&mut *rolled_back, "rolled back").await;
    log.append(&mut *committed, "committed").await;
    append_many(&log, 0..3).await;
    let first = log.store();
    assert_eq!(deliver_all(&first).await, 3);
    first.close().await.unwrap();
    let second = log.store();
    assert_eq!(deliver_all(&second).await, 0);
    assert_eq!(second.gaps().await, Some((2, 0)));
    rolled_back.rollback().await.unwrap();
    eventually("one gap is closed", async || {
        Work::claim(&second, &request(10)).await;
        second.gaps().await.is_some_and(|(open, closed)| open + closed == 2)
    })
    .await;
    committed.commit().await.unwrap();
    assert_eq!(deliver_all(&second).await, 1);
    eventually("both gaps are decided", async || {
        Work::claim(&second, &request(10)).await;
        second.gaps().await == Some((0, 1))
    })
    .await;
    second.close().await.unwrap();
    assert_eq!(log.cursor().await, 5);
}

/// Counts how often each event came, and how many were handed over and not answered at most.
#[derive(Clone, Default)]
struct Counting {
    seen: Arc<std::sync::Mutex<HashMap<String, usize>>>,
    open_circuit: Arc<std::sync::atomic::AtomicBool>,
    asked: Arc<AtomicUsize>,
}

#[async_trait]
impl Publisher for Counting {
    async fn publish(&self, batch: Batch, report: Report) {
        self.asked.fetch_add(1, Ordering::SeqCst);
        for delivery in &batch.deliveries {
            let message = &delivery.message;
            if !batch.may_send(delivery.place) {
                report.outcome(delivery.place, Outcome::NotAttempted);
                continue;
            }
            if self.open_circuit.load(Ordering::SeqCst) {
                let away = Outcome::Failed(PublishError::transport("the broker is unavailable"));
                report.outcome(delivery.place, away);
                continue;
            }
            let event = message.effective_event_id().into_owned();
            *self.seen.lock().unwrap().entry(event).or_default() += 1;
            report.outcome(delivery.place, Outcome::DELIVERED);
        }
    }

    fn name(&self) -> &'static str {
        "counting"
    }
}

impl Counting {
    fn events(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    fn repetitions(&self) -> usize {
        self.seen.lock().unwrap().values().map(|times| times - 1).sum()
    }
}

/// A relay that is killed again and again beside a transaction that stays open: each time it repeats what was in flight, and
/// what was settled since its last checkpoint, a quarter of a second ago at most.
///
/// Proves C9.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_is_killed_beside_an_open_transaction_repeats_no_more_than_was_in_flight() {
    const KILLS: usize = 6;
    const IN_FLIGHT: u32 = 50;
    let log = Arc::new(Log::fresh(12).await);
    let mut open = log.pool.begin().await.unwrap();
    let late = log.append(&mut *open, "open").await;
    let (sink, stop) = (Counting::default(), CancellationToken::new());
    let written = Arc::new(AtomicUsize::new(0));
    let writer = tokio::spawn({
        let (log, stop, written) = (Arc::clone(&log), stop.clone(), Arc::clone(&written));
        async move {
            while !stop.is_cancelled() {
                log.append(&log.pool, &(written.load(Ordering::SeqCst) % 40).to_string())
                    .await;
                written.fetch_add(1, Ordering::SeqCst);
                sleep(Duration::from_millis(2)).await;
            }
        }
    });
    let config = RelayConfig {
        batch_size: 25,
        max_in_flight: IN_FLIGHT,
        poll_interval: Duration::from_millis(10),
        max_poll_interval: Duration::from_millis(10),
        ..RelayConfig::default()
    };
    let mut bound = 0;
    for _ in 0..KILLS {
        let relay = Relay::new(log.store(), sink.clone()).config(config.clone());
        let begun = (Instant::now(), written.load(Ordering::SeqCst), sink.events());
        let relay = tokio::spawn(async move { relay.run_until(CancellationToken::new()).await });
        eventually("it delivers", async || sink.events() > begun.2 + 300).await;
        let (rows, millis) = (written.load(Ordering::SeqCst) - begun.1, begun.0.elapsed().as_millis());
        relay.abort();
        drop(relay.await);
        // In flight, and twice what a checkpoint's interval brings: its own statement takes time too.
        bound += IN_FLIGHT as usize + rows * 500 / usize::try_from(millis.max(1)).unwrap() + 25;
    }
    stop.cancel();
    writer.await.unwrap();
    let total = written.load(Ordering::SeqCst);
    let survivor = log.store();
    let stop = CancellationToken::new();
    let relay = Relay::new(survivor, sink.clone()).config(config);
    let relay = tokio::spawn(relay.run_until(stop.clone()));
    eventually("all arrive", async || sink.events() == total).await;
    open.commit().await.unwrap();
    eventually("the late one arrives", async || {
        sink.seen.lock().unwrap().contains_key(&late)
    })
    .await;
    stop.cancel();
    relay.await.unwrap().unwrap();
    let repetitions = sink.repetitions();
    println!("{total} events, {KILLS} kills, {repetitions} repetitions of {bound} allowed");
    assert!(repetitions <= bound, "{repetitions} repetitions, {bound} allowed");
    assert!(
        bound < total * KILLS / 4,
        "a reader without a state would not pass: {bound} of {total}"
    );
}

/// The first one's connection is cut, and another one reads for a while: neither repeats what the other had settled.
#[tokio::test]
async fn a_reader_that_lost_its_connection_goes_on_where_the_other_one_ended() {
    let log = Log::fresh(6).await;
    let mut open = log.pool.begin().await.unwrap();
    log.append(&mut *open, "open").await;
    append_many(&log, 0..30).await;
    let (first, second) = (log.store(), log.store());
    assert_eq!(deliver_all(&first).await, 30);
    cut(&log).await;
    append_many(&log, 30..40).await;
    let mut by_second = 0;
    eventually("the second one reads", async || {
        by_second += deliver_all(&second).await;
        by_second > 0
    })
    .await;
    assert_eq!(by_second, 10, "what the first one settled is settled");
    second.close().await.unwrap();
    append_many(&log, 40..45).await;
    let mut by_first = 0;
    eventually("the first one reads again", async || {
        if let Ok(claim) = first.claim(&request(100)).await {
            by_first += claim.messages.len();
        }
        by_first > 0
    })
    .await;
    assert_eq!(by_first, 5, "though the cursor has not moved");
    assert_eq!(log.cursor().await, 0);
}

/// An operator who wants events again moves the cursor, and that counts.
#[tokio::test]
async fn a_cursor_that_an_operator_moved_overrules_the_state() {
    let (lines, _guard) = Lines::install();
    let log = Log::fresh(4).await;
    append_many(&log, 0..10).await;
    let first = log.store();
    assert_eq!(deliver_all(&first).await, 10);
    first.close().await.unwrap();
    log.run("insert into outbox_cursor (last_processed_id) values (6)")
        .await;
    let second = log.store();
    assert_eq!(deliver_all(&second).await, 4);
    assert_eq!(lines.with(&["WARN", "moved by somebody else", "known=10"]).len(), 1);
    second.close().await.unwrap();
    append_many(&log, 10..13).await;
    log.run("insert into outbox_cursor (last_processed_id) values (12)")
        .await;
    assert_eq!(deliver_all(&log.store()).await, 1, "also forwards");
}

/// Tables of the same name that were made anew have rows of their own, whatever the state says.
#[tokio::test]
async fn the_state_of_another_log_is_not_taken_for_its_own() {
    let (lines, _guard) = Lines::install();
    let log = Log::fresh(4).await;
    let mut open = log.pool.begin().await.unwrap();
    log.append(&mut *open, "open").await;
    append_many(&log, 0..5).await;
    let first = log.store();
    assert_eq!(deliver_all(&first).await, 5);
    first.close().await.unwrap();
    open.rollback().await.unwrap();
    assert_eq!(state(&log).await, "6;1-1");
    log.run("drop table outbox, outbox_cursor, outbox_failed, event_handled")
        .await;
    log.run(posthaste_sql::table::BuiltinMap::find("commerce").unwrap().ddl)
        .await;
    append_many(&log, 0..8).await;
    let second = log.store();
    assert_eq!(deliver_all(&second).await, 8);
    assert_eq!(lines.with(&["WARN", "made anew"]).len(), 1);
    second.close().await.unwrap();
    assert_eq!(state(&log).await, "8;");
}

/// A row that came late, between the cursor and what was read, while no relay looked.
#[tokio::test]
async fn a_row_that_comes_late_above_the_cursor_is_found_by_a_successor() {
    let log = Log::fresh(4).await;
    let mut open = log.pool.begin().await.unwrap();
    log.append(&mut *open, "open").await;
    let id = next_id(&log.pool).await;
    append_many(&log, 0..3).await;
    let first = log.store();
    assert_eq!(deliver_all(&first).await, 3);
    // Far beyond what the state names for such rows.
    open.rollback().await.unwrap();
    let mut open = log.pool.begin().await.unwrap();
    log.append(&mut *open, "open").await;
    append_many(&log, 3..4).await;
    eventually("its id is closed", async || {
        deliver_all(&first).await;
        first
            .gaps()
            .await
            .is_some_and(|(open, closed)| open == 1 && closed == 2)
    })
    .await;
    first.close().await.unwrap();
    let late = log.append_as(&log.pool, id, "late").await;
    let second = log.store();
    let mut events = Vec::new();
    eventually("the late one comes", async || {
        let work = Work::claim(&second, &request(10)).await;
        events.extend(work.events());
        work.settle(&second, &[]).await;
        !events.is_empty()
    })
    .await;
    assert_eq!(events, [late]);
}

/// A user of the mapped tables who may make nothing.
pub(super) async fn user_of(log: &Log) -> (PgPool, String) {
    let schema: String = sqlx::query_scalar("select current_schema()")
        .fetch_one(&log.pool)
        .await
        .unwrap();
    let role = format!("r_{}", &schema[2..]);
    log.pool_run(&format!(
        "create role {role}; grant usage on schema {schema} to {role};
         grant select, insert, update, delete on all tables in schema {schema} to {role};
         grant usage, select on all sequences in schema {schema} to {role}"
    ))
    .await;
    let options = log.pool.connect_options().as_ref().clone();
    let options = options.options([("role", role.as_str())]);
    let pool = PgPoolOptions::new().max_connections(4);
    (pool.connect_with(options).await.unwrap(), role)
}

/// Where no state can be kept, what a restart repeats is bounded by how far the reader runs ahead.
#[tokio::test]
async fn without_a_place_for_its_state_the_reader_stays_near_its_cursor() {
    let (lines, _guard) = Lines::install();
    let log = Log::fresh(6).await;
    let (pool, role) = user_of(&log).await;
    let schema = format!("s_{}", uuid::Uuid::new_v4().simple());
    let options = LogLayoutOptions::of(&log.map)
        .retry_interval(Duration::ZERO)
        .state_schema(Some(schema.clone()))
        .max_ahead(10);
    let store = || PostgresLogStore::with_options(pool.clone(), log.map.clone(), options.clone()).unwrap();
    let mut open = log.pool.begin().await.unwrap();
    log.append(&mut *open, "open").await;
    append_many(&log, 0..40).await;
    let first = store();
    assert_eq!(deliver_all(&first).await, 9, "up to ten ids beyond the cursor");
    assert_eq!(lines.with(&["WARN", "max_ahead=10", "posthaste migrate"]).len(), 1);
    assert_eq!(lines.with(&["WARN", "not read further"]).len(), 1);
    first.close().await.unwrap();
    let second = store();
    assert_eq!(deliver_all(&second).await, 9, "what a restart repeats");
    open.commit().await.unwrap();
    assert_eq!(deliver_all(&second).await, 32, "it goes on by itself, ten by ten");
    second.close().await.unwrap();
    assert_eq!(log.cursor().await, 41);

    // With rights on the table, which another user made, there is no bound.
    let owner = PostgresLogStore::with_options(log.pool.clone(), log.map.clone(), options.clone()).unwrap();
    owner.migrate().await.unwrap();
    owner.migrate().await.unwrap();
    log.pool_run(&format!(
        "grant usage on schema {schema} to {role}; grant select, insert, update on {schema}.log_readers to {role}"
    ))
    .await;
    let mut open = log.pool.begin().await.unwrap();
    log.append(&mut *open, "open").await;
    append_many(&log, 40..80).await;
    let third = store();
    assert_eq!(deliver_all(&third).await, 40);

    // One that is taken away while a relay reads costs the relay no more than that.
    log.pool_run(&format!("drop schema {schema} cascade")).await;
    append_many(&log, 80..120).await;
    third.pass_time(Duration::from_secs(1));
    let before_bound = deliver_all(&third).await;
    assert!(before_bound <= 100, "{before_bound}");
    assert_eq!(lines.with(&["WARN", "cannot be written any more"]).len(), 1);
    open.commit().await.unwrap();
    assert_eq!(deliver_all(&third).await + before_bound, 41);
    third.close().await.unwrap();
    assert_eq!(log.cursor().await, 122);
    pool.close().await;
    log.pool_run(&format!("drop owned by {role}; drop role {role}")).await;
}

async fn reader_pid(log: &Log) -> Option<i32> {
    let holder = "select pid from pg_locks where locktype = 'advisory' and granted
         and ((classid::bigint << 32) | objid::bigint)
            = hashtextextended('posthaste:log:' || 'outbox_cursor'::regclass::oid::text, 0)";
    sqlx::query_scalar(holder).fetch_optional(&log.pool).await.unwrap()
}

/// Behind an open circuit nothing is claimed and nothing renewed; the server must hear of the reader all the same, and more
/// often than its lease is long.
#[tokio::test(flavor = "multi_thread")]
async fn an_open_circuit_does_not_cost_the_reader_its_lock() {
    let log = Log::fresh(6).await;
    let sink = Counting::default();
    sink.open_circuit.store(true, Ordering::SeqCst);
    append_many(&log, 0..20).await;
    let config = RelayConfig {
        lease: Duration::from_millis(1_500),
        poll_interval: Duration::from_millis(50),
        max_poll_interval: Duration::from_millis(50),
        breaker: BreakerConfig {
            open_for: Duration::from_mins(10),
            ..BreakerConfig::default()
        },
        ..RelayConfig::default()
    };
    let stop = CancellationToken::new();
    let relay = tokio::spawn(
        Relay::new(log.store(), sink.clone())
            .config(config)
            .run_until(stop.clone()),
    );
    eventually("the circuit is open", async || sink.asked.load(Ordering::SeqCst) > 0).await;
    sleep(Duration::from_millis(500)).await;
    let (before, asked) = (reader_pid(&log).await, sink.asked.load(Ordering::SeqCst));
    assert!(before.is_some());
    let mut seen = HashSet::new();
    for _ in 0..45 {
        sleep(Duration::from_millis(100)).await;
        seen.insert(reader_pid(&log).await);
    }
    assert_eq!(seen, HashSet::from([before]), "one connection, all the time");
    assert_eq!(sink.asked.load(Ordering::SeqCst), asked, "the circuit was open");
    stop.cancel();
    relay.await.unwrap().unwrap();
}
