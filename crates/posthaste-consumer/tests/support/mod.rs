//! A topic, a consumer group and a schema of its own for every test, on the servers that `cargo xtask test` starts.

#![allow(dead_code, reason = "each test target uses its own part of this module")]

pub mod logs;
pub mod memory;
#[path = "../../../posthaste-kafka/tests/support/patient_admin.rs"]
mod patient_admin;

use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use posthaste_consumer::source::Source;
use posthaste_consumer::{
    Connection, Consumer, ConsumerConfig, ConsumerError, ConsumerReport, OffsetReset, Once, Received,
};
use posthaste_core::store::SchemaStore;
use posthaste_core::{Backoff, InboxStore, Message, RetryPolicy};
use posthaste_kafka::event::{self, Format};
use posthaste_postgres::{PostgresInbox, PostgresStore};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::OwnedMessage;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Executor, PgConnection};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Longest wait for anything that should happen soon, also on a machine that has much else to do.
pub const SOON: Duration = Duration::from_mins(3);

/// Long enough that no member loses its partitions because the machine stood still for a while: their events would come
/// again.
const SESSION_TIMEOUT: Duration = Duration::from_secs(30);

/// For members that die: the group goes on without them after so long. Brokers allow no less.
pub const BRIEF_SESSION_TIMEOUT: Duration = Duration::from_secs(6);

/// Whether the test runner said that this machine lacks one of the servers.
pub fn left_out(server: &str) -> bool {
    let without = std::env::var("POSTHASTE_TEST_WITHOUT").unwrap_or_default();
    let left_out = without.split(',').any(|missing| missing == server);
    if left_out {
        eprintln!("left out: this machine has no {server}");
    }
    left_out
}

fn variable(name: &str) -> String {
    std::env::var(name)
        .unwrap_or_else(|_| panic!("{name} names no server: run these tests with `cargo xtask test`, or start servers with `cargo xtask services up`"))
}

pub fn bootstrap() -> String {
    variable("POSTHASTE_TEST_KAFKA")
}

/// The payload of the tests' events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sale {
    pub n: i64,
}

/// The type of the tests' events.
pub const SOLD: &str = "acme.order.paid.v1";

/// One test's servers.
#[derive(Clone)]
pub struct World {
    pub bootstrap: String,
    pub store: PostgresStore,
    pub schema: String,
    pub topic: String,
    pub group: String,
    pub replicas: i32,
    pub session_timeout: Duration,
}

impl World {
    /// A topic with its dead-letter topic, and a schema with a table `effects`; nothing if the machine lacks a server.
    pub async fn new(partitions: i32) -> Option<Self> {
        if left_out("kafka") || left_out("postgres") {
            return None;
        }
        let world = Self::on(&bootstrap()).await;
        world.create_topic(&world.topic, partitions, &[]).await;
        world.create_topic(&world.dead_letter_topic(), 1, &[]).await;
        Some(world)
    }

    /// A schema with a table `effects`, for a test that brings its own source.
    pub async fn without_kafka() -> Option<Self> {
        if left_out("postgres") {
            return None;
        }
        Some(Self::on("nowhere:1").await)
    }

    /// The same without topics, on brokers of the test's own.
    pub async fn on(bootstrap: &str) -> Self {
        logs::capture();
        let unique = uuid::Uuid::new_v4().simple().to_string();
        let schema = format!("t_{unique}");
        let pool = PgPoolOptions::new()
            .max_connections(12)
            .connect(&variable("POSTHASTE_TEST_POSTGRES_URL"))
            .await
            .expect("the test server is up");
        let store = PostgresStore::in_schema(pool, &schema).expect("a valid name");
        store.migrate().await.expect("migrations apply");
        let effects = format!("create table {schema}.effects (place bigserial, key text, n bigint)");
        store.pool().execute(AssertSqlSafe(effects)).await.unwrap();
        Self {
            bootstrap: bootstrap.to_owned(),
            store,
            schema,
            topic: format!("sales-{unique}"),
            group: format!("statistics-{unique}"),
            replicas: 1,
            session_timeout: SESSION_TIMEOUT,
        }
    }

    /// What another process needs to find this world.
    pub fn names(&self) -> String {
        [&self.bootstrap, &self.schema, &self.topic, &self.group]
            .map(String::as_str)
            .join(" ")
    }

    /// The world that another process made.
    pub async fn again(names: &str) -> Self {
        let [bootstrap, schema, topic, group] = names.split(' ').collect::<Vec<_>>()[..] else {
            panic!("four names, not {names}");
        };
        let world = Self::on(bootstrap).await;
        Self {
            store: PostgresStore::in_schema(world.store.pool().clone(), schema).unwrap(),
            schema: schema.to_owned(),
            topic: topic.to_owned(),
            group: group.to_owned(),
            ..world
        }
    }

    pub fn dead_letter_topic(&self) -> String {
        format!("{}.dlq", self.topic)
    }

    fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.bootstrap);
        config
    }

    pub fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.client().create().unwrap()
    }

    pub async fn create_topic(&self, name: &str, partitions: i32, settings: &[(&str, &str)]) {
        let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(self.replicas));
        for (name, value) in settings {
            topic = topic.set(name, value);
        }
        patient_admin::create_topic(&self.admin(), &topic).await;
    }

    /// Creates a topic with one partition, unless it is there.
    pub async fn ensure_topic(&self, name: &str) {
        self.create_topic(name, 1, &[]).await;
    }

    /// Adds partitions to the topic until it has so many.
    pub async fn grow(&self, partitions: usize) {
        let grown = NewPartitions::new(&self.topic, partitions);
        let (admin, options) = (self.admin(), patient_admin::options());
        let grow = async || admin.create_partitions([&grown], &options).await;
        let answer = patient_admin::answer(grow).await;
        // It has them already if the answer to the first request took too long.
        assert!(
            matches!(answer, Ok(_) | Err((_, RDKafkaErrorCode::InvalidPartitions))),
            "{answer:?}"
        );
        until("the partitions are there", async || {
            let metadata = admin.inner().fetch_metadata(Some(&self.topic), SOON).unwrap();
            metadata.topics()[0].partitions().len() == partitions
        })
        .await;
    }

    /// Settings that make a test quick: from the beginning, three attempts without a wait worth mentioning.
    pub fn config(&self) -> ConsumerConfig {
        ConsumerConfig::new(Connection::to(&self.bootstrap), &self.group, [&self.topic])
            .auto_offset_reset(OffsetReset::Earliest)
            .session_timeout(self.session_timeout)
            .heartbeat_interval(Duration::from_millis(500))
            .retry(RetryPolicy {
                max_attempts: 3,
                backoff: Backoff::Schedule {
                    delays: vec![Duration::from_millis(10)],
                },
            })
    }

    pub fn inbox(&self) -> PostgresInbox {
        self.store.inbox(&self.group)
    }

    /// A consumer whose effects are those of the key `a`, each event's once.
    pub fn counting(&self) -> Consumer<PostgresInbox> {
        let effects = self.clone();
        self.consumer().on(
            SOLD,
            Once::per_event(),
            async move |tx: &mut PgConnection, event: Received<Sale>| {
                Ok(effects.effect(tx, "a", event.payload.n).await?)
            },
        )
    }

    pub fn consumer(&self) -> Consumer<PostgresInbox> {
        Consumer::new(self.config(), self.inbox())
    }

    /// A sale of the key, about the aggregate `Order/{key}`.
    pub fn sale(&self, key: &str, n: i64) -> Message {
        Message::json(&self.topic, &Sale { n })
            .unwrap()
            .event_type(SOLD)
            .aggregate("Order", key)
            .key(key)
    }

    pub async fn send(&self, message: &Message, partition: Option<i32>) {
        let encoded = event::encode(message, Utc::now(), Format::Binary).unwrap();
        let record = FutureRecord {
            topic: &message.topic,
            partition,
            payload: Some(encoded.payload.as_ref()),
            key: encoded.key,
            timestamp: None,
            headers: Some(encoded.headers),
        };
        self.send_record(record).await;
    }

    pub async fn send_record<K: rdkafka::message::ToBytes + ?Sized>(&self, record: FutureRecord<'_, K, [u8]>) {
        let producer = self.producer();
        producer.send(record, SOON).await.map_err(|(error, _)| error).unwrap();
    }

    fn producer(&self) -> FutureProducer {
        self.client().set("acks", "all").set("linger.ms", "0").create().unwrap()
    }

    /// Sends many at once, in order.
    pub async fn send_all(&self, messages: &[(Message, i32)]) {
        let producer: FutureProducer = self
            .client()
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .create()
            .unwrap();
        let mut answers = Vec::new();
        for (message, partition) in messages {
            let encoded = event::encode(message, Utc::now(), Format::Binary).unwrap();
            let record = FutureRecord {
                topic: &message.topic,
                partition: Some(*partition),
                payload: Some(encoded.payload.as_ref()),
                key: encoded.key,
                timestamp: None,
                headers: Some(encoded.headers),
            };
            answers.push(producer.send_result(record).map_err(|(error, _)| error).unwrap());
        }
        for answer in answers {
            answer.await.unwrap().map_err(|(error, _)| error).unwrap();
        }
    }

    /// The group's committed offset, as the brokers know it.
    pub async fn committed(&self, partition: i32) -> Option<i64> {
        self.committed_as_told_to(&self.outsider(), partition).await
    }

    /// A client that asks for the group's offsets and is no member.
    fn outsider(&self) -> Arc<BaseConsumer> {
        Arc::new(self.client().set("group.id", &self.group).create().unwrap())
    }

    async fn committed_as_told_to(&self, outsider: &Arc<BaseConsumer>, partition: i32) -> Option<i64> {
        let (outsider, topic) = (Arc::clone(outsider), self.topic.clone());
        tokio::task::spawn_blocking(move || {
            let mut list = TopicPartitionList::new();
            list.add_partition(&topic, partition);
            // A coordinator that is still being chosen is asked again by who waits for the answer.
            let found = outsider.committed_offsets(list, Duration::from_secs(20)).ok()?;
            match found.find_partition(&topic, partition).unwrap().offset() {
                Offset::Offset(offset) => Some(offset),
                _ => None,
            }
        })
        .await
        .unwrap()
    }

    /// Waits until the group's committed offset is this one.
    pub async fn until_committed(&self, partition: i32, offset: i64) {
        let (outsider, deadline) = (self.outsider(), tokio::time::Instant::now() + SOON);
        loop {
            let last = self.committed_as_told_to(&outsider, partition).await;
            if last == Some(offset) {
                return;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "committed {last:?}, not {offset}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Reads the first records of a topic's first partition.
    pub async fn read(&self, topic: &str, count: usize) -> Vec<OwnedMessage> {
        let (config, topic) = (self.client().set("group.id", "reader").clone(), topic.to_owned());
        tokio::task::spawn_blocking(move || {
            let consumer: BaseConsumer = config.create().unwrap();
            let mut list = TopicPartitionList::new();
            list.add_partition_offset(&topic, 0, Offset::Beginning).unwrap();
            consumer.assign(&list).unwrap();
            let deadline = std::time::Instant::now() + SOON;
            let mut found = Vec::new();
            while found.len() < count {
                assert!(
                    std::time::Instant::now() < deadline,
                    "{} of {count} records in {topic}",
                    found.len()
                );
                if let Some(record) = consumer.poll(Duration::from_millis(200)) {
                    found.push(record.unwrap().detach());
                }
            }
            found
        })
        .await
        .unwrap()
    }

    /// How many records a topic's first partition has.
    pub async fn length(&self, topic: &str) -> i64 {
        let (config, topic) = (self.client(), topic.to_owned());
        tokio::task::spawn_blocking(move || {
            let consumer: BaseConsumer = config.create().unwrap();
            let (low, high) = consumer.fetch_watermarks(&topic, 0, Duration::from_secs(20)).unwrap();
            high - low
        })
        .await
        .unwrap()
    }

    /// What happened, in the order in which it was committed.
    pub async fn effects(&self) -> Vec<(String, i64)> {
        let sql = format!("select key, n from {}.effects order by place", self.schema);
        sqlx::query_as(AssertSqlSafe(sql))
            .fetch_all(self.store.pool())
            .await
            .unwrap()
    }

    /// Waits until so many effects happened, as long as there is progress.
    pub async fn until_effects(&self, count: usize) -> Vec<(String, i64)> {
        let (mut last, mut deadline) = (0, tokio::time::Instant::now() + SOON);
        loop {
            let effects = self.effects().await;
            if effects.len() >= count {
                return effects;
            }
            if effects.len() > last {
                (last, deadline) = (effects.len(), tokio::time::Instant::now() + SOON);
            }
            assert!(tokio::time::Instant::now() < deadline, "{last} of {count} effects");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The keys that the inbox has recorded.
    pub async fn recorded(&self) -> Vec<String> {
        let sql = format!("select key from {}.inbox order by key", self.schema);
        sqlx::query_scalar(AssertSqlSafe(sql))
            .fetch_all(self.store.pool())
            .await
            .unwrap()
    }

    /// Writes an effect within a transaction.
    pub async fn effect(&self, tx: &mut PgConnection, key: &str, n: i64) -> sqlx::Result<()> {
        let sql = format!("insert into {}.effects (key, n) values ($1, $2)", self.schema);
        sqlx::query(AssertSqlSafe(sql))
            .bind(key)
            .bind(n)
            .execute(tx)
            .await
            .map(drop)
    }
}

/// A consumer that runs beside the test.
pub struct Running {
    stop: CancellationToken,
    task: JoinHandle<Result<ConsumerReport, ConsumerError>>,
}

impl Running {
    pub fn start<I: InboxStore>(consumer: Consumer<I>) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(consumer.run_until(stop.clone()));
        Self { stop, task }
    }

    pub fn with_source<I: InboxStore>(consumer: Consumer<I>, source: impl Source) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(consumer.run_with_source(source, stop.clone()));
        Self { stop, task }
    }

    pub async fn stop(self) -> ConsumerReport {
        self.stop.cancel();
        self.end().await.unwrap()
    }

    /// Drops it in the middle of what it does.
    pub fn vanish(self) {
        self.task.abort();
    }

    /// Waits for it to end by itself.
    pub async fn end(self) -> Result<ConsumerReport, ConsumerError> {
        tokio::time::timeout(SOON, self.task)
            .await
            .expect("the consumer ends")
            .unwrap()
    }
}

/// Waits until something is so.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + SOON;
    while !is_so().await {
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Shares a value with handlers.
pub fn shared<T>(value: T) -> Arc<std::sync::Mutex<T>> {
    Arc::new(std::sync::Mutex::new(value))
}
