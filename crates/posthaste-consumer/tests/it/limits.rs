//! What would stop a partition for good if there were no limit to it: handlers and databases that never answer, and
//! records that no dead-letter topic takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use posthaste_consumer::{Consumer, ConsumerConfig, HandlerError, Once, Received, Tombstones, TooLarge};
use posthaste_core::{Inbox, InboxStore, Mark, StoreError};
use posthaste_kafka::Connection;
use posthaste_kafka::dead_letter::{self, DeadLetter};
use posthaste_kafka::dlq::{DeadLetterTopic, Selection};
use posthaste_postgres::PostgresInbox;
use rdkafka::Message as _;
use rdkafka::admin::{AdminOptions, AlterConfig, ResourceSpecifier};
use rdkafka::message::{Header, Headers, OwnedHeaders};
use rdkafka::producer::FutureRecord;
use sqlx::{PgConnection, Postgres, Transaction};
use tokio::sync::{Barrier, Semaphore};

use crate::support;
use crate::support::{Running, SOLD, Sale, World, logs, until};

/// A handler that never comes to an end fails its attempt, and the partition goes on without the event.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_never_ends_does_not_stop_its_partition() {
    let Some(world) = World::new(1).await else { return };
    world
        .send_all(&[(world.sale("a", -1), 0), (world.sale("a", 1), 0)])
        .await;
    let config = world.config().handler_timeout(Duration::from_millis(300));
    let effects = world.clone();
    let running = Running::start(Consumer::new(config, world.inbox()).on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| {
            effects.effect(tx, "a", event.payload.n).await?;
            if event.payload.n < 0 {
                std::future::pending::<()>().await;
            }
            Ok(())
        },
    ));
    world.until_committed(0, 2).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.retried, report.dead_letters), (1, 2, 1));
    let dead = world.read(&world.dead_letter_topic(), 1).await.remove(0);
    let letter = DeadLetter::read(dead.headers().unwrap()).unwrap();
    assert_eq!(letter.attempts, 3);
    assert!(
        letter.error.contains("within 300ms") && letter.error.contains("handler_timeout"),
        "{}",
        letter.error
    );
    assert_eq!(world.effects().await, [("a".to_owned(), 1)]);
}

/// What a handler waits for may be a statement that the server goes on with: then the record of the first attempt is in the
/// way of the next ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_hangs_in_a_statement_is_given_up_while_the_server_is_busy() {
    let Some(world) = World::new(1).await else { return };
    world
        .send_all(&[(world.sale("a", -1), 0), (world.sale("a", 1), 0)])
        .await;
    let config = world
        .config()
        .handler_timeout(Duration::from_millis(300))
        .inbox_timeout(Duration::from_millis(500));
    let effects = world.clone();
    let running = Running::start(Consumer::new(config, world.inbox()).on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| {
            if event.payload.n < 0 {
                sqlx::query("select pg_sleep(60)").execute(&mut *tx).await?;
            }
            effects.effect(tx, "a", event.payload.n).await?;
            Ok(())
        },
    ));
    world.until_committed(0, 2).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.retried, report.dead_letters), (1, 2, 1));
    assert_eq!(world.effects().await, [("a".to_owned(), 1)]);
}

/// An inbox that gives no answer at first, each time in another place.
struct Silent {
    inbox: PostgresInbox,
    calls: Arc<AtomicU32>,
}

impl Silent {
    async fn answer(&self, call: u32) {
        if self.calls.fetch_add(1, Ordering::Relaxed) == call {
            std::future::pending::<()>().await;
        }
    }
}

impl Inbox for Silent {
    type Connection = PgConnection;

    async fn record(&self, tx: &mut PgConnection, key: &str) -> Result<bool, StoreError> {
        self.answer(2).await;
        self.inbox.record(tx, key).await
    }

    async fn mark(&self, tx: &mut PgConnection, mark: Mark) -> Result<(), StoreError> {
        self.inbox.mark(tx, mark).await
    }

    async fn prove(&self, tx: &mut PgConnection, mark: Mark) -> Result<(), StoreError> {
        self.inbox.prove(tx, mark).await
    }
}

impl InboxStore for Silent {
    type Transaction = Transaction<'static, Postgres>;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        self.answer(0).await;
        self.inbox.begin().await
    }

    async fn commit(&self, tx: Self::Transaction) -> Result<(), StoreError> {
        self.answer(5).await;
        self.inbox.commit(tx).await
    }

    async fn purge(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        self.inbox.purge(keep, limit).await
    }
}

/// A database that does not answer is unavailable: it is said, the event waits, and no attempt is used up.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_does_not_answer_costs_time_only() {
    let Some(world) = World::new(1).await else { return };
    world.send(&world.sale("a", 1), Some(0)).await;
    let calls = Arc::new(AtomicU32::new(0));
    let silent = Silent {
        inbox: world.inbox(),
        calls: Arc::clone(&calls),
    };
    let config = world.config().inbox_timeout(Duration::from_secs(1));
    let effects = world.clone();
    let running = Running::start(Consumer::new(config, silent).on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| {
            assert_eq!(event.attempt, 1);
            Ok(effects.effect(tx, "a", event.payload.n).await?)
        },
    ));
    world.until_committed(0, 1).await;
    let report = running.stop().await;
    // begin | begin, record | begin, record, commit | begin, record, commit
    assert_eq!(calls.load(Ordering::Relaxed), 9);
    assert_eq!((report.handled, report.retried, report.dead_letters), (1, 0, 0));
    assert_eq!(world.effects().await.len(), 1);
    let told = logs::with(&["WARN", "did not begin a transaction within 1s", &world.group]);
    assert_eq!(told.len(), 1, "{told:?}");
}

/// A topic and a dead-letter topic that take records of the same size, as Kafka makes them.
async fn tight(partitions: i32, limit: &str) -> Option<World> {
    if support::left_out("kafka") || support::left_out("postgres") {
        return None;
    }
    let world = World::on(&support::bootstrap()).await;
    for (topic, partitions) in [(world.topic.clone(), partitions), (world.dead_letter_topic(), 1)] {
        let settings = [("max.message.bytes", limit)];
        world.create_topic(&topic, partitions, &settings).await;
    }
    Some(world)
}

/// Sends an event of the limit's size, less some bytes for what a record batch has beside it.
async fn send_large(world: &World, partition: i32, payload: usize) {
    let mut headers = OwnedHeaders::new();
    for (key, value) in [
        ("ce_specversion", "1.0"),
        ("ce_id", "1"),
        ("ce_type", SOLD),
        ("ce_source", "shop"),
    ] {
        headers = headers.insert(Header {
            key,
            value: Some(value),
        });
    }
    let payload = vec![b'x'; payload];
    let record = FutureRecord::to(&world.topic).key("a").headers(headers);
    world.send_record(record.partition(partition).payload(&payload)).await;
}

fn refusing(world: &World, config: ConsumerConfig) -> Consumer<PostgresInbox> {
    let error = "this error is long. ".repeat(100);
    Consumer::new(config, world.inbox()).on_idempotent(
        SOLD,
        async move |_: &mut PgConnection, _: Received<posthaste_consumer::Raw>| {
            Err(HandlerError::permanent(error.clone()))
        },
    )
}

/// A record that leaves no room for the error is dead-lettered with less of it, and one that leaves room for nothing is
/// represented by a stub: whoever chooses the size of a record cannot stop a partition with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_poison_record_near_the_limit_is_dead_lettered() {
    let Some(world) = tight(1, "20000").await else { return };
    for payload in [17_000, 19_000, 19_850] {
        send_large(&world, 0, payload).await;
    }
    let running = Running::start(refusing(&world, world.config()));
    world.until_committed(0, 3).await;
    assert_eq!(running.stop().await.dead_letters, 3);
    let dead = world.read(&world.dead_letter_topic(), 3).await;
    let letters: Vec<_> = dead
        .iter()
        .map(|record| DeadLetter::read(record.headers().unwrap()).unwrap())
        .collect();
    let errors: Vec<usize> = letters.iter().map(|letter| letter.error.len()).collect();
    assert_eq!(errors, [2_000, 200, 200]);
    let sizes: Vec<_> = dead.iter().map(|record| record.payload().map(<[u8]>::len)).collect();
    assert_eq!(sizes, [Some(17_000), Some(19_000), None]);
    let stub = &letters[2];
    assert_eq!(
        (stub.topic.as_str(), stub.partition, stub.offset),
        (world.topic.as_str(), 0, 2)
    );
    let is_stub = |header: Header<'_, &[u8]>| header.key == dead_letter::STUB;
    assert!(dead[2].headers().unwrap().iter().any(is_stub));
    assert_eq!(logs::with(&["ERROR", "a stub says where it is", &world.topic]).len(), 1);

    let topic = DeadLetterTopic::open(&Connection::to(&world.bootstrap), &world.dead_letter_topic()).await;
    let stub = Selection {
        offsets: [2].into(),
        ..Selection::default()
    };
    let replayed = topic.unwrap().replay(&stub, |_| ()).await;
    let refused = replayed.unwrap_err().to_string();
    assert!(refused.contains(&format!("offset 2 of {}/0", world.topic)), "{refused}");
    assert_eq!(world.length(&world.topic).await, 3, "nothing was sent in its place");
}

/// Letters of several partitions that come at once are too large together, and are none the shorter for it.
#[tokio::test(flavor = "multi_thread")]
async fn letters_that_fit_one_by_one_are_written_whole() {
    const PARTITIONS: i32 = 8;
    let Some(world) = tight(PARTITIONS, "20000").await else {
        return;
    };
    for partition in 0..PARTITIONS {
        send_large(&world, partition, 8_000).await;
    }
    let together = Arc::new(Barrier::new(8));
    let error = "this error is long. ".repeat(100);
    let running = Running::start(Consumer::new(world.config(), world.inbox()).on_idempotent(
        SOLD,
        async move |_: &mut PgConnection, _: Received<posthaste_consumer::Raw>| {
            together.wait().await;
            Err(HandlerError::permanent(error.clone()))
        },
    ));
    for partition in 0..PARTITIONS {
        world.until_committed(partition, 1).await;
    }
    assert_eq!(running.stop().await.dead_letters, 8);
    for dead in world.read(&world.dead_letter_topic(), 8).await {
        let letter = DeadLetter::read(dead.headers().unwrap()).unwrap();
        let sizes = (dead.payload().map(<[u8]>::len), letter.error.len());
        assert_eq!(sizes, (Some(8_000), 2_000));
    }
}

/// Where a stub is not wanted the partition waits, and goes on once the topic takes the record.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_must_be_dead_lettered_whole_waits_for_room() {
    let Some(world) = tight(1, "20000").await else { return };
    send_large(&world, 0, 19_850).await;
    let config = world.config().too_large(TooLarge::Wait);
    let running = Running::start(refusing(&world, config));
    // The wait after the fourth attempt is eight seconds, and the next one finds room for the whole error. (One that finds
    // room in its middle leaves out some of it.)
    let told = async || logs::with(&["WARN", "cannot be written", "too large", &world.topic]).len() >= 4;
    until("the log says why", told).await;
    assert_eq!(world.length(&world.dead_letter_topic()).await, 0);
    let dead_letter_topic = world.dead_letter_topic();
    let larger = AlterConfig::new(ResourceSpecifier::Topic(&dead_letter_topic)).set("max.message.bytes", "40000");
    let altered = world.admin().alter_configs(&[larger], &AdminOptions::new()).await;
    altered.unwrap().remove(0).unwrap();
    world.until_committed(0, 1).await;
    running.stop().await;
    let dead = world.read(&dead_letter_topic, 1).await.remove(0);
    assert_eq!(dead.payload().map(<[u8]>::len), Some(19_850));
    assert_eq!(DeadLetter::read(dead.headers().unwrap()).unwrap().error.len(), 2_000);
}

/// Tombstones of compacted topics may be passed over. A record with an event's headers is none.
#[tokio::test(flavor = "multi_thread")]
async fn tombstones_may_be_passed_over() {
    let Some(world) = World::new(1).await else { return };
    let record = |headers| FutureRecord::<_, [u8]> {
        headers,
        ..FutureRecord::to(&world.topic).key("a").partition(0)
    };
    world.send_record(record(None)).await;
    let id = Header {
        key: "ce_id",
        value: Some("1"),
    };
    world.send_record(record(Some(OwnedHeaders::new().insert(id)))).await;
    let config = world.config().tombstones(Tombstones::Skip);
    let running = Running::start(refusing(&world, config));
    world.until_committed(0, 2).await;
    let report = running.stop().await;
    assert_eq!((report.skipped, report.dead_letters), (1, 1));
}

/// A queue is full of few records if they are large.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_is_bounded_in_bytes_too() {
    let Some(world) = World::new(1).await else { return };
    for _ in 0..20 {
        send_large(&world, 0, 30_000).await;
    }
    let config = world.config().prefetch_bytes(64 << 10);
    let gate = Arc::new(Semaphore::new(0));
    let entry = Arc::clone(&gate);
    let running = Running::start(Consumer::new(config, world.inbox()).on_idempotent(
        SOLD,
        async move |_: &mut PgConnection, _: Received<posthaste_consumer::Raw>| {
            entry.acquire().await?.forget();
            Ok(())
        },
    ));
    let full = async || !logs::with(&["is_full=true", &world.topic]).is_empty();
    until("twenty records, of a hundred that have room, fill the queue", full).await;
    gate.add_permits(20);
    world.until_committed(0, 20).await;
    assert_eq!(running.stop().await.handled, 20);
}
