//! Events that cannot be handled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use posthaste_consumer::{Consumer, ConsumerConfig, HandlerError, Once, Received};
use posthaste_core::store::StoreErrorKind;
use posthaste_core::{Backoff, Inbox, InboxStore, Mark, Message, RetryPolicy, StoreError};
use posthaste_kafka::dead_letter::{self, DeadLetter};
use posthaste_postgres::PostgresInbox;
use rdkafka::Message as _;
use rdkafka::message::{Header, Headers, OwnedHeaders, OwnedMessage};
use rdkafka::producer::FutureRecord;
use sqlx::{PgConnection, Postgres, Transaction};

use crate::support;
use crate::support::{Running, SOLD, Sale, World, logs, until};

/// Counts sales; negative numbers fail, -2 for good, -3 with a panic.
fn counting(world: &World, config: ConsumerConfig) -> Consumer<PostgresInbox> {
    let effects = world.clone();
    Consumer::new(config, world.inbox()).on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| {
            let key = event.aggregate_id.unwrap_or_default();
            effects.effect(tx, &key, event.payload.n).await?;
            match event.payload.n {
                -1 => Err(HandlerError::retry("out of stock")),
                -2 => Err(HandlerError::permanent("no such product")),
                -3 => panic!("a bug in the handler"),
                _ => Ok(()),
            }
        },
    )
}

type Parts = (Option<Vec<u8>>, Option<Vec<u8>>, Vec<(String, Option<Vec<u8>>)>);

/// Key, value and own headers.
fn parts(record: &OwnedMessage) -> Parts {
    let stripped = dead_letter::strip(record.headers());
    let headers = stripped
        .iter()
        .map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec)));
    (
        record.key().map(<[u8]>::to_vec),
        record.payload().map(<[u8]>::to_vec),
        headers.collect(),
    )
}

/// An event whose handler always fails is retried in place, while other partitions go on; then it lies in the dead-letter
/// topic byte for byte, with the error beside it, and its partition goes on, too. It is a warning.
///
/// Proves C17.
#[tokio::test(flavor = "multi_thread")]
async fn a_poison_event_holds_up_its_partition_only_and_ends_in_the_dead_letter_topic() {
    let Some(world) = World::new(3).await else { return };
    let poison = world
        .sale("poison", -1)
        .header("traceparent", "00-7-7-01")
        .tenant("acme");
    world
        .send_all(&[
            (poison, 0),
            (world.sale("after", 1), 0),
            (world.sale("b", 2), 1),
            (world.sale("c", 3), 2),
        ])
        .await;
    let config = world.config().retry(RetryPolicy {
        max_attempts: 3,
        backoff: Backoff::Schedule {
            delays: vec![Duration::from_secs(2)],
        },
    });
    let running = Running::start(counting(&world, config));
    world.until_effects(2).await;
    assert_eq!(
        world.length(&world.dead_letter_topic()).await,
        0,
        "the others did not wait for the poison event"
    );
    world.until_committed(0, 2).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.retried, report.dead_letters), (3, 2, 1));

    let dead = world.read(&world.dead_letter_topic(), 1).await.remove(0);
    let original = world.read(&world.topic, 1).await.remove(0);
    assert_eq!(parts(&dead), parts(&original));
    let letter = DeadLetter::read(dead.headers().unwrap()).unwrap();
    assert_eq!((letter.error.as_str(), letter.attempts), ("out of stock", 3));
    assert_eq!(
        (letter.topic, letter.partition, letter.offset),
        (world.topic.clone(), 0, 0)
    );
    assert_eq!(letter.group, world.group);
    let lines = logs::with(&[
        "WARN",
        "sending to the dead-letter topic",
        &world.dead_letter_topic(),
        "out of stock",
    ]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    let mut effects = world.effects().await;
    effects.sort();
    assert_eq!(
        effects,
        [("after".to_owned(), 1), ("b".to_owned(), 2), ("c".to_owned(), 3)]
    );
}

/// What is permanent is not tried again; a panic counts as a failure and does not end the consumer.
#[tokio::test(flavor = "multi_thread")]
async fn permanent_failures_are_not_retried_and_panics_are() {
    let Some(world) = World::new(1).await else { return };
    world
        .send_all(&[
            (world.sale("a", -2), 0),
            (world.sale("b", -3), 0),
            (world.sale("c", 1), 0),
        ])
        .await;
    let running = Running::start(counting(&world, world.config()));
    world.until_committed(0, 3).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.retried, report.dead_letters), (1, 2, 2));
    let letters = world.read(&world.dead_letter_topic(), 2).await;
    let read = |record: &OwnedMessage| DeadLetter::read(record.headers().unwrap()).unwrap();
    let told: Vec<_> = letters
        .iter()
        .map(|record| (read(record).error, read(record).attempts))
        .collect();
    assert_eq!(told[0], ("no such product".to_owned(), 1));
    assert_eq!(told[1], ("the handler panicked: a bug in the handler".to_owned(), 3));
    assert_eq!(world.effects().await, [("c".to_owned(), 1)]);
    assert_eq!(world.recorded().await.len(), 1);
}

/// What cannot be read goes to the dead-letter topic as it is: bytes that are no event, a tombstone, an event whose
/// payload is of another type, and one without the aggregate that its handler asks for.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_decoded_is_dead_lettered_as_it_is() {
    let Some(world) = World::new(1).await else { return };
    let record = |payload| FutureRecord {
        topic: &world.topic,
        partition: Some(0),
        payload,
        key: Some(&b"\xfe\x00"[..]),
        timestamp: None,
        headers: Some(OwnedHeaders::new().insert(Header {
            key: "raw",
            value: Some(&[0xff_u8, 0][..]),
        })),
    };
    world.send_record(record(Some(&[0, 159, 146, 150][..]))).await;
    world.send_record(record(None)).await;
    world
        .send(
            &Message::new(&world.topic, "{\"n\":\"many\"}").event_type(SOLD),
            Some(0),
        )
        .await;
    world
        .send(&Message::new(&world.topic, "{\"n\":1}").event_type(SOLD), Some(0))
        .await;
    world.send(&world.sale("a", 1), Some(0)).await;
    let effects = world.clone();
    let running = Running::start(world.consumer().on(
        SOLD,
        Once::per_aggregate("SOLD"),
        async move |tx: &mut PgConnection, event: Received<Sale>| Ok(effects.effect(tx, "a", event.payload.n).await?),
    ));
    world.until_committed(0, 5).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.retried, report.dead_letters), (1, 0, 4));
    let dead = world.read(&world.dead_letter_topic(), 4).await;
    let original = world.read(&world.topic, 4).await;
    assert_eq!(
        dead.iter().map(parts).collect::<Vec<_>>(),
        original.iter().map(parts).collect::<Vec<_>>()
    );
    let error = |n: usize| DeadLetter::read(dead[n].headers().unwrap()).unwrap().error;
    assert!(error(0).contains("ce_id is missing"), "{}", error(0));
    assert!(error(1).contains("tombstone"), "{}", error(1));
    assert!(error(2).contains("invalid type: string"), "{}", error(2));
    assert!(
        error(3).contains("has no aggregate") && error(3).contains("Once::per_event"),
        "{}",
        error(3)
    );
}

/// Without a dead-letter topic nothing is skipped: the partition waits, and the log says what to do.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_topic_that_cannot_be_written_is_waited_for() {
    if support::left_out("kafka") || support::left_out("postgres") {
        return;
    }
    let world = World::on(&support::bootstrap()).await;
    world.create_topic(&world.topic, 1, &[]).await;
    world
        .send_all(&[
            (world.sale("a", 1), 0),
            (world.sale("b", -2), 0),
            (world.sale("c", 2), 0),
        ])
        .await;
    let running = Running::start(counting(&world, world.config()));
    let warned = async || {
        !logs::with(&[
            "WARN",
            "cannot be written",
            &world.dead_letter_topic(),
            "posthaste topics apply",
        ])
        .is_empty()
    };
    until("the log says what to do", warned).await;
    assert_eq!(world.effects().await.len(), 1, "nothing was skipped");
    assert!(world.committed(0).await.unwrap_or_default() <= 1);
    world.create_topic(&world.dead_letter_topic(), 1, &[]).await;
    world.until_committed(0, 3).await;
    assert_eq!(running.stop().await.dead_letters, 1);
    assert_eq!(world.length(&world.dead_letter_topic()).await, 1);
}

/// An inbox whose database is unavailable at first.
struct UnavailableInbox {
    inbox: PostgresInbox,
    failures: Arc<AtomicU32>,
}

impl Inbox for UnavailableInbox {
    type Connection = PgConnection;

    async fn record(&self, tx: &mut PgConnection, key: &str) -> Result<bool, StoreError> {
        self.inbox.record(tx, key).await
    }

    async fn mark(&self, tx: &mut PgConnection, mark: Mark) -> Result<(), StoreError> {
        self.inbox.mark(tx, mark).await
    }

    async fn prove(&self, tx: &mut PgConnection, mark: Mark) -> Result<(), StoreError> {
        self.inbox.prove(tx, mark).await
    }
}

impl InboxStore for UnavailableInbox {
    type Transaction = Transaction<'static, Postgres>;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        if self.failures.fetch_sub(1, Ordering::Relaxed) > 1 {
            return Err(StoreError {
                kind: StoreErrorKind::Unavailable,
                message: "unavailable".to_owned(),
                remedy: None,
                source: None,
            });
        }
        self.inbox.begin().await
    }

    async fn commit(&self, tx: Self::Transaction) -> Result<(), StoreError> {
        self.inbox.commit(tx).await
    }

    async fn purge(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        self.inbox.purge(keep, limit).await
    }
}

/// A database that is unavailable is no fault of the event: it waits and uses up no attempt.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_unavailable_costs_no_attempt() {
    let Some(world) = World::new(1).await else { return };
    world.send(&world.sale("a", 1), Some(0)).await;
    let inbox = UnavailableInbox {
        inbox: world.inbox(),
        failures: Arc::new(AtomicU32::new(7)),
    };
    let attempts = support::shared(Vec::new());
    let seen = Arc::clone(&attempts);
    let running = Running::start(Consumer::new(world.config(), inbox).on(
        SOLD,
        Once::per_event(),
        async move |_: &mut PgConnection, event: Received<Sale>| {
            seen.lock().unwrap().push(event.attempt);
            Ok(())
        },
    ));
    world.until_committed(0, 1).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.retried, report.dead_letters), (1, 0, 0));
    assert_eq!(*attempts.lock().unwrap(), [1]);
    assert_eq!(
        logs::with(&["WARN", "using the database failed", &world.group]).len(),
        1
    );
}

/// A topic that is not there is named, with the remedy, and read once it is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_does_not_exist_is_waited_for() {
    if support::left_out("kafka") || support::left_out("postgres") {
        return;
    }
    let world = World::on(&support::bootstrap()).await;
    let connection = world
        .config()
        .connection
        .property("topic.metadata.refresh.interval.ms", "500");
    let config = world.config().connection(connection);
    let running = Running::start(counting(&world, config));
    let warned = || logs::with(&["WARN", "posthaste topics apply", &world.topic]);
    until("the log says what to do", async || !warned().is_empty()).await;
    world.create_topic(&world.topic, 1, &[]).await;
    world.send(&world.sale("a", 1), Some(0)).await;
    world.until_committed(0, 1).await;
    assert_eq!(running.stop().await.handled, 1);
    assert_eq!(warned().len(), 1, "{:#?}", warned());
}

/// Settings and inboxes that can never work are errors at the start, with the remedy.
#[tokio::test(flavor = "multi_thread")]
async fn what_can_never_work_is_an_error_at_the_start() {
    if support::left_out("postgres") {
        return;
    }
    let world = World::on("127.0.0.1:1").await;
    let handler = async |_: &mut PgConnection, _: Received<Sale>| Ok(());
    let told = async |consumer: Consumer<PostgresInbox>| Running::start(consumer).end().await.unwrap_err().to_string();
    let none = told(world.consumer()).await;
    assert!(
        none.contains("handlers = none") && none.contains("Consumer::on"),
        "{none}"
    );
    let twice = told(
        world
            .consumer()
            .on_idempotent(SOLD, handler)
            .on(SOLD, Once::per_event(), handler),
    )
    .await;
    assert!(twice.contains(SOLD) && twice.contains("two handlers"), "{twice}");
    let mut config = world.config();
    config.connection = config.connection.property("enable.auto.commit", "true");
    let refused = told(Consumer::new(config, world.inbox()).on_idempotent(SOLD, handler)).await;
    assert!(
        refused.contains("connection.properties.enable.auto.commit"),
        "{refused}"
    );
    let drop_table = format!("drop table {}.inbox", world.schema);
    sqlx::query(sqlx::AssertSqlSafe(drop_table))
        .execute(world.store.pool())
        .await
        .unwrap();
    let no_table = told(world.consumer().on_idempotent(SOLD, handler)).await;
    assert!(no_table.contains("posthaste migrate up"), "{no_table}");
}
