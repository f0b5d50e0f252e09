//! What a publisher keeps of a cluster: its producers, and what is known of topics.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use posthaste_core::publisher::PublishError;
use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;

use super::acks::AckTracker;
use super::context::Observer;
use super::in_flight::InFlight;
use super::learn::Directory;
use super::options::{InvalidKafkaOptions, KafkaOptions};
use super::producer::{Producers, Shared, Slot};
use super::requests::{self, Requests};
use super::role::Role;
use super::topics::Topics;

/// How long a producer lets messages wait for others to the same partition.
const LINGER: &str = "linger.ms";

/// How long messages without a key go to the same partition: twice `linger.ms` unless it is set.
const STICKINESS: &str = "sticky.partitioning.linger.ms";

/// What a cluster says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Its id.
    pub id: Option<String>,
    /// Its brokers, as `host:port`.
    pub brokers: Vec<String>,
}

/// Everything that publications share.
pub(super) struct KafkaClient {
    pub(super) options: KafkaOptions,
    config: ClientConfig,
    pub(super) observer: Arc<Observer>,
    pub(super) topics: Arc<Topics>,
    pub(super) acks: Arc<AckTracker>,
    pub(super) in_flight: Arc<InFlight>,
    directory: Arc<Directory>,
    /// For what is alone with its lane while little is on its way: it goes out at once.
    prompt: Arc<Slot>,
    lone: Arc<Slot>,
    lanes: Arc<Slot>,
}

impl KafkaClient {
    /// A publisher with these options. Does not wait for a connection: a relay may start before its broker.
    pub(super) fn new(options: KafkaOptions) -> Result<Self, InvalidKafkaOptions> {
        let config = options.client_config()?;
        let (topics, acks, in_flight) = (Arc::default(), Arc::default(), Arc::default());
        let observer = Observer::new(options.unknown_topic, options.effective_answer_within(), &topics, &acks);
        let shared = Shared {
            observer: Arc::new(observer),
            acks,
            topics,
            in_flight,
        };
        let requests = Requests::of(&config, options.connection.sets(requests::PROPERTY));
        let within = options.effective_answer_within();
        let slot = |role, config| Slot::new(role, config, requests, &shared, within);
        let (lone, lanes) = (slot(Role::Lone, &config), slot(Role::Lanes, &config));
        let prompt = if options.connection.sets(LINGER) {
            Arc::clone(&lone)
        } else {
            slot(Role::Lone, &without_linger(&config, &options))
        };
        // Settings that are wrong only together show when a client is made of them.
        prompt.producer().map_err(posthaste_kafka::InvalidConnection::from)?;
        let Shared {
            observer,
            acks,
            topics,
            in_flight,
        } = shared;
        let directory = Directory::new(&config, &observer, &topics, &prompt, ask_within(&options));
        Ok(Self {
            options,
            config,
            observer,
            topics,
            acks,
            in_flight,
            directory,
            prompt,
            lone,
            lanes,
        })
    }

    /// Asks the cluster who it is; the error says why it cannot be asked.
    pub(super) async fn cluster(&self) -> Result<Cluster, PublishError> {
        let failure = |error: &KafkaError| self.observer.failure(error, None);
        let producer = self.prompt.producer().map_err(|error| failure(&error))?;
        let within = ask_within(&self.options);
        let asked = tokio::task::spawn_blocking(move || {
            let client = producer.client();
            let metadata = client.fetch_metadata(None, within)?;
            let address = |broker: &rdkafka::metadata::MetadataBroker| format!("{}:{}", broker.host(), broker.port());
            Ok(Cluster {
                brokers: metadata.brokers().iter().map(address).collect(),
                id: client.fetch_cluster_id(within),
            })
        });
        match asked.await {
            Ok(answer) => answer.map_err(|error| failure(&error)),
            Err(error) => Err(PublishError::unknown(error.to_string())),
        }
    }

    /// Learns of these topics what is not known; returns the error of each that cannot be used.
    pub(super) async fn learn(&self, topics: BTreeSet<String>) -> HashMap<String, PublishError> {
        self.directory.learn(topics).await
    }

    /// The largest record that a topic takes, as far as that is known and the size of a message tells its size in a request.
    pub(super) fn known_limit(&self, topic: &str) -> Option<usize> {
        let facts = self.topics.facts(topic).filter(|_| !self.compresses())?;
        facts.max_message_bytes
    }

    fn compresses(&self) -> bool {
        self.config.get("compression.type").is_some_and(|codec| codec != "none")
    }

    /// The limit of a topic that is below so many bytes, where the size of a message tells its size in a request.
    pub(super) async fn limit_below(&self, topic: &str, bytes: usize) -> Option<usize> {
        if self.compresses() {
            return None;
        }
        self.directory.limit_below(topic, bytes).await
    }

    /// Waits for answers that are on their way, and for the end of the producers' threads; returns whether they have ended.
    pub(super) async fn close(&self, within: Duration) -> bool {
        let slots = [&self.prompt, &self.lone, &self.lanes].map(Arc::clone);
        let until = Instant::now() + within;
        let closing = tokio::task::spawn_blocking(move || {
            for slot in &slots {
                slot.close();
            }
            let left = || until.saturating_duration_since(Instant::now());
            slots.iter().all(|slot| slot.wait_until_closed(left()))
        });
        closing.await.unwrap_or_default()
    }

    /// The producers for a batch, which may hold several messages of one lane, and be one of few messages on their way.
    pub(super) fn producers(&self, several: bool, is_light: bool) -> Result<Producers<'_>, KafkaError> {
        let idempotent = self
            .config
            .get("enable.idempotence")
            .is_some_and(|value| value == "true");
        let lone = if is_light { &self.prompt } else { &self.lone };
        Producers::new(lone, (several && idempotent).then_some(&*self.lanes))
    }
}

/// The settings of a producer whose messages go out at once. Those without a key still keep to one partition for a moment.
fn without_linger(config: &ClientConfig, options: &KafkaOptions) -> ClientConfig {
    let mut config = config.clone();
    config.set(LINGER, "0");
    if !options.connection.sets(STICKINESS) {
        config.set(STICKINESS, "4");
    }
    config
}

/// How long a question about topics or the cluster may take.
fn ask_within(options: &KafkaOptions) -> Duration {
    Duration::from_secs(5).min(options.effective_answer_within() / 4)
}
