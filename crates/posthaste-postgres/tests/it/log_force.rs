//! Late commits by force: nothing is lost, nothing is invented, and nobody waits for a transaction that stays open.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use posthaste_core::{Batch, Outcome, Publisher, RelayStore, Report};
use posthaste_postgres::PostgresLogStore;
use posthaste_relay::{Relay, RelayConfig};
use posthaste_sql::TableMap;
use tokio::task::JoinHandle;
use tokio::time::{sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::support::log::{Log, Work, request};

const WRITERS: usize = 24;
/// Writers that take their ids before they insert, in the same transaction.
const EARLY_WRITERS: usize = 4;
/// Writers that take ids in advance and use them in later transactions. Until the relay is killed, with time for the net.
const POOLED_WRITERS: usize = 2;
const POOLED_STOP: Duration = Duration::from_secs(20);
/// The long transaction opens.
const OPENS: Duration = Duration::from_secs(8);
/// It is open for thirty seconds.
const OPEN_FOR: Duration = Duration::from_secs(30);
/// The relay is killed, and later stopped and started again.
const KILLED: Duration = Duration::from_secs(30);
const RESTARTED: Duration = Duration::from_secs(33);
/// The writers stop.
const WRITERS_STOP: Duration = Duration::from_secs(36);
/// All of it must be over.
const DEADLINE: Duration = Duration::from_mins(5);

/// When each event arrived, and in which order.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<(String, Instant)>>>);

#[async_trait]
impl Publisher for Sink {
    async fn publish(&self, batch: Batch, report: Report) {
        for delivery in &batch.deliveries {
            if !batch.may_send(delivery.place) {
                report.outcome(delivery.place, Outcome::NotAttempted);
                continue;
            }
            self.0
                .lock()
                .unwrap()
                .push((delivery.message.effective_event_id().into_owned(), Instant::now()));
            report.outcome(delivery.place, Outcome::DELIVERED);
        }
    }

    fn name(&self) -> &'static str {
        "sink"
    }
}

impl Sink {
    fn arrivals(&self) -> Vec<(String, Instant)> {
        let mut seen = HashSet::new();
        let first = |(event, _): &&(String, Instant)| seen.insert(event.clone());
        self.0.lock().unwrap().iter().filter(first).cloned().collect()
    }

    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// What a writer committed, in order, with the time at which it knew.
type Committed = Vec<(String, Instant)>;

/// One writer with aggregates of its own, so that their order is known: short transactions of one to three rows, some of
/// several seconds, one in ten rolled back.
async fn write(log: Arc<Log>, writer: usize, until: Instant) -> HashMap<String, Committed> {
    let mut committed: HashMap<String, Committed> = HashMap::new();
    while Instant::now() < until {
        let mut tx = log.pool.begin().await.unwrap();
        let mut written = Vec::new();
        for _ in 0..rand::random_range(1..=3) {
            let aggregate = format!("{writer}-{}", rand::random_range(0..3));
            let event = log.append(&mut *tx, &aggregate).await;
            written.push((aggregate, event));
        }
        let millis = match rand::random_range(0..400) {
            0 => rand::random_range(1_000..4_000),
            1..20 => rand::random_range(100..300),
            _ => rand::random_range(0..60),
        };
        sleep(Duration::from_millis(millis)).await;
        if rand::random_bool(0.1) {
            tx.rollback().await.unwrap();
            continue;
        }
        tx.commit().await.unwrap();
        let now = Instant::now();
        for (aggregate, event) in written {
            committed.entry(aggregate).or_default().push((event, now));
        }
    }
    committed
}

async fn next_id<'e>(on: impl sqlx::Executor<'e, Database = sqlx::Postgres>) -> i64 {
    sqlx::query_scalar("select nextval('outbox_id_seq')")
        .fetch_one(on)
        .await
        .unwrap()
}

/// Persists as a framework does that takes the id when an object is made and inserts when the transaction is flushed.
async fn write_early(log: Arc<Log>, writer: usize, until: Instant) -> HashMap<String, Committed> {
    let mut committed: HashMap<String, Committed> = HashMap::new();
    while Instant::now() < until {
        let aggregate = format!("early {writer}");
        let mut tx = log.pool.begin().await.unwrap();
        let id = next_id(&mut *tx).await;
        sleep(Duration::from_millis(rand::random_range(0..120))).await;
        let event = log.append_as(&mut *tx, id, &aggregate).await;
        sleep(Duration::from_millis(rand::random_range(0..20))).await;
        if rand::random_bool(0.1) {
            tx.rollback().await.unwrap();
            continue;
        }
        tx.commit().await.unwrap();
        committed.entry(aggregate).or_default().push((event, Instant::now()));
    }
    committed
}

/// Takes five ids at a time, and uses them when it needs them.
async fn write_pooled(log: Arc<Log>, writer: usize, until: Instant) -> HashMap<String, Committed> {
    let mut committed: HashMap<String, Committed> = HashMap::new();
    while Instant::now() < until {
        let mut ids = Vec::new();
        for _ in 0..5 {
            ids.push(next_id(&log.pool).await);
        }
        for id in ids {
            sleep(Duration::from_millis(rand::random_range(0..400))).await;
            // Each in a lane of its own: nobody promises an order here.
            let aggregate = format!("pooled {writer} {id}");
            let event = log.append_as(&log.pool, id, &aggregate).await;
            committed.insert(aggregate, vec![(event, Instant::now())]);
        }
    }
    committed
}

fn start_writers(log: &Arc<Log>, begun: Instant) -> Vec<JoinHandle<HashMap<String, Committed>>> {
    let plain = (0..WRITERS).map(|writer| tokio::spawn(write(Arc::clone(log), writer, begun + WRITERS_STOP)));
    let early =
        (0..EARLY_WRITERS).map(|writer| tokio::spawn(write_early(Arc::clone(log), writer, begun + WRITERS_STOP)));
    let pooled =
        (0..POOLED_WRITERS).map(|writer| tokio::spawn(write_pooled(Arc::clone(log), writer, begun + POOLED_STOP)));
    plain.chain(early).chain(pooled).collect()
}

fn config() -> RelayConfig {
    RelayConfig {
        poll_interval: Duration::from_millis(20),
        max_poll_interval: Duration::from_millis(20),
        ..RelayConfig::default()
    }
}

fn start(store: PostgresLogStore, sink: &Sink, stop: &CancellationToken) -> JoinHandle<()> {
    let relay = Relay::new(store, sink.clone()).config(config());
    let stop = stop.clone();
    tokio::spawn(async move {
        relay.run_until(stop).await.unwrap();
    })
}

/// The naive reader has a cursor of its own on the same log.
async fn naive(log: &Log) -> PostgresLogStore {
    log.run(
        "create table naive_cursor (like outbox_cursor including all);
         create table naive_failed (like outbox_failed including all)",
    )
    .await;
    let toml = posthaste_sql::table::BuiltinMap::find("commerce").unwrap().toml;
    let toml = toml
        .replace("\"outbox_cursor\"", "\"naive_cursor\"")
        .replace("\"outbox_failed\"", "\"naive_failed\"");
    PostgresLogStore::without_proof(log.pool.clone(), TableMap::from_toml(&toml).unwrap()).unwrap()
}

fn p99(mut waits: Vec<Duration>) -> Duration {
    assert!(waits.len() > 500, "too few to tell: {}", waits.len());
    waits.sort();
    waits[waits.len() * 99 / 100]
}

/// An id that was taken and whose gap the reader has closed, whatever the machine is busy with, and the event behind it.
async fn closed_gap(log: &Log, store: &PostgresLogStore, sink: &Sink) -> (i64, (String, Instant)) {
    let (id, event) = (next_id(&log.pool).await, log.append(&log.pool, "follower").await);
    let appended = Instant::now();
    while sink.count() == 0 || store.gaps().await != Some((0, 1)) {
        assert!(appended.elapsed() < DEADLINE, "gaps {:?}", store.gaps().await);
        sleep(Duration::from_millis(20)).await;
    }
    (id, (event, appended))
}

fn assert_in_order(committed: &HashMap<String, Committed>, arrivals: &[(String, Instant)]) {
    let place: HashMap<&String, usize> = arrivals
        .iter()
        .enumerate()
        .map(|(place, (event, _))| (event, place))
        .collect();
    for (aggregate, events) in committed {
        let places: Vec<usize> = events.iter().map(|(event, _)| place[event]).collect();
        assert!(places.is_sorted(), "{aggregate} arrived out of order");
    }
}

/// Proves C9.
#[tokio::test(flavor = "multi_thread")]
async fn every_committed_row_is_delivered_and_a_long_transaction_delays_nobody() {
    let log = Arc::new(Log::fresh(40).await);
    let (sink, lossy_sink, stop) = (Sink::default(), Sink::default(), CancellationToken::new());
    let lossy = start(naive(&log).await, &lossy_sink, &stop);
    let store = log.store();
    let relay = start(store.clone(), &sink, &stop);
    let (held_id, follower) = closed_gap(&log, &store, &sink).await;
    // The relay's memory is to die with it.
    drop(store);
    let begun = Instant::now();
    let at = |offset: Duration| sleep_until((begun + offset).into());
    let writers = start_writers(&log, begun);
    let held = log.append_as(&log.pool, held_id, "held").await;

    at(OPENS).await;
    let mut open_tx = log.pool.begin().await.unwrap();
    let late = log.append(&mut *open_tx, "late").await;
    at(KILLED).await;
    relay.abort();
    let stop_soon = CancellationToken::new();
    let relay = start(log.store(), &sink, &stop_soon);
    at(RESTARTED).await;
    stop_soon.cancel();
    relay.await.unwrap();
    let store = log.store();
    let relay = start(store.clone(), &sink, &stop);

    let mut committed: HashMap<String, Committed> = HashMap::from([
        ("follower".to_owned(), vec![follower]),
        ("held".to_owned(), vec![(held, begun)]),
    ]);
    for writer in writers {
        committed.extend(writer.await.unwrap());
    }
    at(OPENS + OPEN_FOR).await;
    let before = sink.count();
    assert!(
        sink.arrivals().iter().all(|(event, _)| *event != late),
        "nobody has seen it"
    );
    open_tx.commit().await.unwrap();
    committed.insert("late".to_owned(), vec![(late, Instant::now())]);

    let total: usize = committed.values().map(Vec::len).sum();
    while sink.arrivals().len() < total || store.gaps().await.is_none_or(|(open, _)| open > 0) {
        assert!(
            begun.elapsed() < DEADLINE,
            "{} of {total} arrived, gaps {:?}",
            sink.arrivals().len(),
            store.gaps().await
        );
        sleep(Duration::from_millis(100)).await;
    }
    let (open, closed) = store.gaps().await.unwrap();
    stop.cancel();
    relay.await.unwrap();
    lossy.await.unwrap();

    // Nothing lost, nothing invented: what arrived is what the writers committed, and what the table says.
    let arrivals = sink.arrivals();
    let arrived: HashSet<&String> = arrivals.iter().map(|(event, _)| event).collect();
    let expected: HashSet<&String> = committed.values().flatten().map(|(event, _)| event).collect();
    assert_eq!(expected.difference(&arrived).count(), 0, "lost");
    assert_eq!(arrived.difference(&expected).count(), 0, "invented");
    assert_eq!(
        log.number("select count(*) from outbox").await,
        i64::try_from(total).unwrap()
    );
    assert_eq!(log.failed().await, 0);
    let last = log.number("select max(id) from outbox").await;
    assert!(log.cursor().await >= last, "the cursor is past everything");

    assert_in_order(&committed, &arrivals);

    // How long others waited, without and with the transaction that stayed open.
    let arrival: HashMap<&String, Instant> = arrivals.iter().map(|(event, at)| (event, *at)).collect();
    let wait = |(event, at): &(String, Instant)| arrival[event].saturating_duration_since(*at);
    let in_time = |aggregate: &&String| !aggregate.starts_with("pooled");
    let waits = |from: Duration, to: Duration| {
        let during = |(_, at): &&(String, Instant)| (begun + from..begun + to).contains(at);
        let events = committed.iter().filter(|(aggregate, _)| in_time(aggregate));
        p99(events.flat_map(|(_, events)| events).filter(during).map(wait).collect())
    };
    let pooled = committed.iter().filter(|(aggregate, _)| !in_time(aggregate));
    let late: Vec<Duration> = pooled.flat_map(|(_, events)| events).map(wait).collect();
    let net = late.iter().filter(|wait| **wait > Duration::from_millis(500)).count();
    let without = waits(Duration::from_secs(1), OPENS);
    let with = waits(OPENS + Duration::from_secs(1), Duration::from_secs(29));
    let missed = total - lossy_sink.arrivals().len();
    println!(
        "{total} committed, {before} deliveries before the last commit, {closed} gaps closed, {open} open; \
         p99 {without:?} without and {with:?} with a transaction of {OPEN_FOR:?}; a plain cursor lost {missed}; of {} rows \
         with ids taken in advance {net} came late, the last after {:?}",
        late.len(),
        late.iter().max()
    );
    assert!(closed > 0, "transactions were rolled back");
    assert!(
        with < without * 3 + Duration::from_millis(250),
        "p99 {without:?} without and {with:?} with a transaction that stays open"
    );
    // That all this holds is the work of the proof.
    assert!(missed > 0, "a plain cursor should have lost rows");

    // A successor finds nothing to do.
    let successor = log.store();
    let work = Work::claim(&successor, &request(10)).await;
    assert!(work.events().is_empty(), "everything was settled");
    successor.close().await.unwrap();
}
