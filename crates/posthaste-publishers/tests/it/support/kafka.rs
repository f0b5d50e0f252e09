//! Topics on a real cluster, and what stands in them.
#![allow(dead_code, reason = "each test binary uses its own part of it")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use posthaste_core::publisher::{Outcome, PublishError};
use posthaste_kafka::Connection;
use posthaste_kafka::event::{ReceivedEvent, decode};
use posthaste_publishers::kafka::{KafkaOptions, KafkaPublisher};
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers as _, Message as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use super::patient_admin;

pub const TIMEOUT: Duration = Duration::from_mins(1);

/// The brokers that tests share; `None` where the test runner said that there are none.
pub fn shared() -> Option<String> {
    if without_kafka() {
        return None;
    }
    let brokers = std::env::var("POSTHASTE_TEST_KAFKA").unwrap_or_default();
    assert!(
        !brokers.is_empty(),
        "POSTHASTE_TEST_KAFKA is not set; run `cargo xtask test`, or `cargo xtask services up` and what it prints"
    );
    Some(brokers)
}

pub fn without_kafka() -> bool {
    let without = std::env::var("POSTHASTE_TEST_WITHOUT").unwrap_or_default();
    let without = without.split(',').any(|server| server == "kafka");
    if without {
        eprintln!("skipped: there is no Kafka");
    }
    without
}

/// A topic of its own.
pub struct Topic {
    pub brokers: String,
    pub name: String,
}

/// A record as it stands in a topic.
#[derive(Clone, Debug)]
pub struct Stored {
    pub key: Option<String>,
    pub partition: i32,
    pub timestamp: i64,
    pub headers: BTreeMap<String, String>,
    pub payload: Vec<u8>,
    pub event: ReceivedEvent,
}

impl Topic {
    pub async fn create(brokers: &str, partitions: i32, settings: &[(&str, &str)]) -> Self {
        let topic = Self::absent(brokers);
        topic.make(partitions, settings).await;
        topic
    }

    /// A name that no topic has.
    pub fn absent(brokers: &str) -> Self {
        Self {
            brokers: brokers.to_owned(),
            name: format!("publisher-{}", uuid::Uuid::new_v4().simple()),
        }
    }

    pub async fn make(&self, partitions: i32, settings: &[(&str, &str)]) {
        let admin = admin(&self.brokers);
        let new = NewTopic::new(&self.name, partitions, TopicReplication::Fixed(-1));
        let new = settings.iter().fold(new, |new, (name, value)| new.set(name, value));
        patient_admin::create_topic(&admin, &new).await;
        // Brokers learn of it one after the other.
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let metadata = admin.inner().fetch_metadata(Some(&self.name), TIMEOUT).unwrap();
            let ready = metadata.topics().iter().any(|topic| {
                topic.error().is_none()
                    && !topic.partitions().is_empty()
                    && topic.partitions().iter().all(|p| p.leader() >= 0)
            });
            if ready {
                return;
            }
            assert!(Instant::now() < deadline, "the topic does not come");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub async fn set(&self, name: &str, value: &str) {
        let change = AlterConfig::new(ResourceSpecifier::Topic(&self.name)).set(name, value);
        let done = admin(&self.brokers)
            .alter_configs([&change], &AdminOptions::new())
            .await
            .unwrap();
        assert!(done[0].is_ok(), "{done:?}");
    }

    /// Everything in the topic: in order per partition, one partition after the other.
    pub fn records(&self) -> Vec<Stored> {
        let consumer: BaseConsumer = client(&self.brokers).set("group.id", "none").create().unwrap();
        let metadata = consumer.fetch_metadata(Some(&self.name), TIMEOUT).unwrap();
        let mut stored = Vec::new();
        for partition in metadata.topics()[0].partitions() {
            let (low, high) = consumer.fetch_watermarks(&self.name, partition.id(), TIMEOUT).unwrap();
            if low == high {
                continue;
            }
            let mut assignment = TopicPartitionList::new();
            assignment
                .add_partition_offset(&self.name, partition.id(), Offset::Beginning)
                .unwrap();
            consumer.assign(&assignment).unwrap();
            let deadline = Instant::now() + TIMEOUT;
            loop {
                assert!(Instant::now() < deadline, "got only {} of {high}", stored.len());
                let Some(Ok(record)) = consumer.poll(Duration::from_millis(500)) else {
                    continue;
                };
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                let headers = record.headers().unwrap();
                stored.push(Stored {
                    key: record.key().map(text),
                    partition: record.partition(),
                    timestamp: record.timestamp().to_millis().unwrap_or_default(),
                    headers: headers
                        .iter()
                        .map(|h| (h.key.to_owned(), text(h.value.unwrap())))
                        .collect(),
                    payload: record.payload().unwrap().to_vec(),
                    event: decode(Some(headers), record.payload()).unwrap(),
                });
                if record.offset() + 1 >= high {
                    break;
                }
            }
        }
        stored
    }

    /// The payloads of one key, in order.
    pub fn payloads(&self, key: &str) -> Vec<String> {
        let of_key = self
            .records()
            .into_iter()
            .filter(|record| record.key.as_deref() == Some(key));
        of_key
            .map(|record| String::from_utf8(record.payload).unwrap())
            .collect()
    }

    pub fn options(&self) -> KafkaOptions {
        KafkaOptions::new(Connection::to(&self.brokers))
    }

    pub fn publisher(&self, properties: &[(&str, &str)]) -> KafkaPublisher {
        let mut options = self.options();
        for (name, value) in properties {
            options.connection = options.connection.property(*name, *value);
        }
        KafkaPublisher::new(options).unwrap()
    }
}

pub fn client(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers);
    config
}

fn admin(brokers: &str) -> AdminClient<DefaultClientContext> {
    client(brokers).create().unwrap()
}

/// The error of a message that failed.
pub fn failure(outcome: &Outcome) -> PublishError {
    match outcome {
        Outcome::Failed(error) => error.clone(),
        other => panic!("{other:?} is no failure"),
    }
}
