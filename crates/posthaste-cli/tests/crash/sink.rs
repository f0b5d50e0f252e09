//! Where relays deliver, and what arrived there.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use posthaste_core::MessageId;
use rdkafka::admin::{AdminClient, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{BorrowedMessage, Headers};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use serde::Deserialize;

use crate::patient_admin;

const PARTITIONS: i32 = 3;

/// What a world's relays deliver to.
pub enum Sink {
    File,
    Kafka { brokers: String, topic: String },
}

#[derive(Deserialize)]
struct Line {
    id: MessageId,
}

impl Sink {
    /// A new topic on three replicas.
    pub async fn kafka(brokers: &str) -> Self {
        let topic = format!("crash-{}", uuid::Uuid::new_v4().simple());
        Self::create(brokers, &topic).await;
        Self::Kafka {
            brokers: brokers.to_owned(),
            topic,
        }
    }

    /// Creates a topic on three replicas.
    pub async fn create(brokers: &str, topic: &str) {
        let admin: AdminClient<DefaultClientContext> = client(brokers).create().unwrap();
        let wanted = NewTopic::new(topic, PARTITIONS, TopicReplication::Fixed(3)).set("min.insync.replicas", "2");
        patient_admin::create_topic(&admin, &wanted).await;
    }

    pub fn topic(&self) -> &str {
        match self {
            Self::File => "orders",
            Self::Kafka { topic, .. } => topic,
        }
    }

    /// The relays' settings.
    pub fn settings(&self, dir: &Path) -> String {
        match self {
            Self::File => format!(
                "[publisher]\nkind = \"file\"\npath = \"{}\"\nfsync = false",
                file(dir).display()
            ),
            Self::Kafka { brokers, .. } => {
                let brokers: Vec<_> = brokers.split(',').map(|broker| format!("\"{broker}\"")).collect();
                format!(
                    "[publisher]\nkind = \"kafka\"\n[kafka]\nbrokers = [{}]",
                    brokers.join(", ")
                )
            }
        }
    }

    /// The ids that arrived, in the order of their delivery; for Kafka in that of each partition, and so of each key.
    pub async fn deliveries(&self, dir: &Path) -> Vec<MessageId> {
        match self {
            Self::File => read_file(&file(dir)),
            Self::Kafka { brokers, topic } => Self::received(brokers, topic).await,
        }
    }

    /// The ids that arrived in a topic, in the order of each partition.
    pub async fn received(brokers: &str, topic: &str) -> Vec<MessageId> {
        let (brokers, topic) = (brokers.to_owned(), topic.to_owned());
        let reading = tokio::task::spawn_blocking(move || read_topic(&brokers, &topic));
        reading.await.unwrap()
    }

    /// What counts the deliveries as they come. While brokers do not answer it stands still.
    pub fn counter(&self, dir: &Path) -> Box<dyn FnMut() -> usize + Send> {
        match self {
            Self::File => Box::new(lines_of(file(dir))),
            Self::Kafka { brokers, topic } => Box::new(records_of(brokers, topic.clone())),
        }
    }
}

/// What relays deliver to, where it is a file.
pub fn file(dir: &Path) -> PathBuf {
    dir.join("sink.jsonl")
}

fn read_file(path: &Path) -> Vec<MessageId> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // A process that died while writing leaves half a line; that delivery did not happen.
    text.lines()
        .filter_map(|line| serde_json::from_str::<Line>(line).ok())
        .map(|line| line.id)
        .collect()
}

/// Counts the lines of a file that may not be there yet.
fn lines_of(path: PathBuf) -> impl FnMut() -> usize {
    let (mut open, mut lines, mut buffer) = (None, 0, Vec::new());
    move || {
        if open.is_none() {
            open = File::open(&path).ok();
        }
        if let Some(open) = &mut open {
            buffer.clear();
            open.read_to_end(&mut buffer).unwrap();
            lines += buffer.split(|byte| *byte == b'\n').count() - 1;
        }
        lines
    }
}

/// Counts the records of a topic.
fn records_of(brokers: &str, topic: String) -> impl FnMut() -> usize + use<> {
    const TIMEOUT: Duration = Duration::from_secs(1);
    let consumer: BaseConsumer = client(brokers).create().unwrap();
    let mut ends = HashMap::new();
    move || {
        for partition in 0..PARTITIONS {
            if let Ok((_, end)) = consumer.fetch_watermarks(&topic, partition, TIMEOUT) {
                ends.insert(partition, usize::try_from(end).unwrap());
            }
        }
        ends.values().sum()
    }
}

fn client(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers);
    config
}

fn read_topic(brokers: &str, topic: &str) -> Vec<MessageId> {
    const TIMEOUT: Duration = Duration::from_mins(1);
    let mut config = client(brokers);
    config.set("group.id", "oracle").set("enable.auto.commit", "false");
    let consumer: BaseConsumer = config.create().unwrap();
    let deadline = Instant::now() + TIMEOUT;
    let mut ids = Vec::new();
    for partition in 0..PARTITIONS {
        let (mut next, end) = loop {
            match consumer.fetch_watermarks(topic, partition, TIMEOUT) {
                Ok(marks) => break marks,
                // A partition has no leader for a while after its broker has died.
                Err(error) if Instant::now() > deadline => panic!("{topic}/{partition}: {error}"),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        };
        let mut assignment = TopicPartitionList::new();
        assignment
            .add_partition_offset(topic, partition, Offset::Offset(next))
            .unwrap();
        consumer.assign(&assignment).unwrap();
        while next < end {
            assert!(
                Instant::now() < deadline,
                "{topic}/{partition} cannot be read past {next}, up to {end}"
            );
            // A broker that just died is an error here; the client finds the next one by itself.
            if let Some(Ok(message)) = consumer.poll(Duration::from_millis(100)) {
                ids.push(event_id(&message));
                next = message.offset() + 1;
            }
        }
    }
    ids
}

fn event_id(message: &BorrowedMessage<'_>) -> MessageId {
    let headers = message.headers().expect("every event has headers");
    let id = headers
        .iter()
        .find(|header| header.key == "ce_id")
        .expect("every event has an id");
    std::str::from_utf8(id.value.unwrap()).unwrap().parse().unwrap()
}
