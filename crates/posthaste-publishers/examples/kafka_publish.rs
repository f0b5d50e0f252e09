//! How fast the Kafka publisher is, beside a bare producer with the same keys, headers and payloads.
//!
//! ```text
//! cargo run --release -p posthaste-publishers --features kafka --example kafka_publish -- [BROKERS] [MESSAGES]
//! ```
//!
//! Without brokers, librdkafka's mock cluster runs in a process of its own. Both are measured in turns, and what counts is
//! their ratio.

use std::io::{self, BufRead, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use chrono::Utc;
use futures::stream::{self, StreamExt};
use posthaste_core::publisher::{Delivery, LeaseCheck, Outcome, OutcomeSink, Place};
use posthaste_core::{Batch, Message, Publisher, Report};
use posthaste_kafka::Connection;
use posthaste_kafka::event::{Encoder, Format};
use posthaste_publishers::kafka::{KafkaOptions, KafkaPublisher};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseRecord, Producer, ThreadedProducer};

const MESSAGES: usize = 300_000;
const KEYS: usize = 1_000;
const BATCH: usize = 2_000;
const BATCHES_IN_FLIGHT: usize = 8;
const ROUNDS: usize = 3;
const TOPIC: &str = "kafka-publish-bench";

#[tokio::main(worker_threads = 2)]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let brokers = arguments.next().unwrap_or_else(|| "mock".to_owned());
    if brokers == "serve" {
        return serve();
    }
    let messages = arguments
        .next()
        .map_or(MESSAGES, |text| text.parse().expect("a number"));
    let (brokers, mock) = if brokers == "mock" {
        start_mock()
    } else {
        (brokers, None)
    };
    if mock.is_none() {
        create_topic(&brokers).await;
    }
    let publisher = KafkaPublisher::new(KafkaOptions::new(Connection::to(brokers.as_str()))).expect("valid options");
    let config = KafkaOptions::new(Connection::to(brokers.as_str()))
        .client_config()
        .expect("valid options");
    let bare: ThreadedProducer<rdkafka::producer::DefaultProducerContext> = config.create().expect("a producer");
    publish(&publisher, batches(BATCH * 4)).await;
    produce(&bare, &batches(BATCH * 4));
    println!("{messages} messages of 300 bytes, {KEYS} keys, batches of {BATCH}, {BATCHES_IN_FLIGHT} in flight");
    for _ in 0..ROUNDS {
        let prepared = batches(messages);
        let begin = Moment::now();
        produce(&bare, &prepared);
        begin.tell("bare producer", messages);
        let begin = Moment::now();
        publish(&publisher, prepared).await;
        begin.tell("publisher", messages);
    }
    latency(&publisher).await;
    if let Some(mut mock) = mock {
        drop(mock.stdin.take());
        mock.wait().expect("it ends with its input");
    }
}

/// From the call to the answer, for one message at a time.
async fn latency(publisher: &KafkaPublisher) {
    let mut took = Vec::new();
    for batch in batches(BATCH * 5).into_iter().flatten().take(1_000) {
        let begin = Instant::now();
        publish(publisher, vec![vec![batch]]).await;
        took.push(begin.elapsed());
    }
    took.sort();
    println!(
        "one at a time: p50 {:.1?}, p99 {:.1?}",
        took[took.len() / 2],
        took[took.len() * 99 / 100]
    );
}

struct Moment(Instant, Duration);

impl Moment {
    fn now() -> Self {
        Self(Instant::now(), cpu_time())
    }

    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn tell(&self, name: &str, messages: usize) {
        let (wall, cpu) = (self.0.elapsed(), cpu_time().saturating_sub(self.1));
        let per_second = messages as f64 / wall.as_secs_f64();
        let micros = cpu.as_secs_f64() * 1e6 / messages as f64;
        println!("{name:>15}: {per_second:>9.0} messages/s, {micros:.2} µs of CPU each");
    }
}

/// The CPU time of this process so far, in the kernel's ticks of 10 ms.
fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = [11, 12]
        .map(|field: usize| fields[field].parse::<u64>().expect("a number"))
        .iter()
        .sum();
    Duration::from_millis(ticks * 10)
}

fn batches(messages: usize) -> Vec<Vec<Delivery>> {
    let payload = format!("{{\"text\":\"{}\"}}", "x".repeat(289));
    let delivery = |n: usize| {
        let key = (n % KEYS).to_string();
        let message = Message::new(TOPIC, payload.clone())
            .key(key.clone())
            .event_type("acme.orders.created.v1")
            .source("orders")
            .aggregate("Order", key);
        Delivery::new(message, Utc::now())
    };
    (0..messages)
        .step_by(BATCH)
        .map(|from| (from..(from + BATCH).min(messages)).map(delivery).collect())
        .collect()
}

/// As cheap as can be.
#[derive(Default)]
struct Counted(AtomicUsize);

impl OutcomeSink for Counted {
    fn outcome(&self, _: Place, outcome: Outcome) {
        assert!(outcome.is_delivered(), "{outcome:?}");
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn delivered_all(&self, places: &[Place]) {
        self.0.fetch_add(places.len(), Ordering::Relaxed);
    }
}

struct Always;

impl LeaseCheck for Always {
    fn may_send(&self, _: Place) -> bool {
        true
    }
}

async fn publish(publisher: &KafkaPublisher, batches: Vec<Vec<Delivery>>) {
    let (messages, counted) = (
        batches.iter().map(Vec::len).sum::<usize>(),
        Arc::new(Counted::default()),
    );
    let one = |deliveries: Vec<Delivery>| {
        let report = Report::to(Arc::clone(&counted) as Arc<dyn OutcomeSink>);
        publisher.publish(Batch::new(deliveries, Arc::new(Always)), report)
    };
    // `buffered` polls them in order for the first time.
    stream::iter(batches)
        .map(one)
        .buffered(BATCHES_IN_FLIGHT)
        .collect::<()>()
        .await;
    let delivered: usize = counted.0.load(Ordering::Relaxed);
    assert_eq!(delivered, messages, "every message was delivered");
}

fn produce(producer: &ThreadedProducer<rdkafka::producer::DefaultProducerContext>, batches: &[Vec<Delivery>]) {
    let mut records = Encoder::new(Format::Binary, None);
    for delivery in batches.iter().flatten() {
        let encoded = records.encode(&delivery.message, delivery.created_at).expect("binary");
        let mut record = BaseRecord::to(&delivery.message.topic)
            .payload(&*encoded.payload)
            .headers(encoded.headers);
        record.key = encoded.key;
        while let Err((error, again)) = producer.send(record) {
            assert_eq!(error.rdkafka_error_code(), Some(RDKafkaErrorCode::QueueFull));
            std::thread::sleep(Duration::from_millis(1));
            record = again;
        }
    }
    producer
        .flush(Duration::from_mins(1))
        .expect("every message was delivered");
}

async fn create_topic(brokers: &str) {
    let mut config = rdkafka::ClientConfig::new();
    let admin: AdminClient<DefaultClientContext> = config.set("bootstrap.servers", brokers).create().expect("a client");
    let topic = NewTopic::new(TOPIC, 3, TopicReplication::Fixed(1));
    // It may be there from an earlier run.
    let _ = admin.create_topics([&topic], &AdminOptions::new()).await;
}

/// Mock brokers in a process of their own, which ends with its input.
fn start_mock() -> (String, Option<Child>) {
    let program = std::env::current_exe().expect("this program");
    let mut child = Command::new(program)
        .arg("serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut brokers = String::new();
    let output = child.stdout.take().expect("piped");
    io::BufReader::new(output).read_line(&mut brokers).expect("its address");
    (brokers.trim().to_owned(), Some(child))
}

fn serve() {
    let cluster = MockCluster::new(3).expect("mock brokers");
    cluster.create_topic(TOPIC, 3, 3).expect("a topic");
    println!("{}", cluster.bootstrap_servers());
    io::stdout().flush().expect("a pipe");
    let _ = io::stdin().read_line(&mut String::new());
}
