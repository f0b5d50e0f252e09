//! The publisher.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::publisher::{Batch, Capabilities, LaneOrder, PublishError, Publisher, Report};
use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;

use super::context::Observer;
use super::learn::Directory;
use super::options::{InvalidKafkaOptions, KafkaOptions};
use super::producer::{Producers, Role, Slot};
use super::publication::Publication;
use super::topics::Topics;
use super::warmth::Warmth;

/// Publishes to Kafka: one record per message, partitioned by ordering key, else by aggregate id.
///
/// A message counts as delivered once the broker has acknowledged it, by default with all replicas in sync. Several
/// messages of one lane are on their way at the same time, and still none is written after an earlier one of its lane
/// has failed: see `docs/adr/0004-kafka-order.md`.
///
/// A cluster that is away, wrong credentials, and a topic that is not there are failures of messages, not of the
/// publisher: it goes on by itself once they are mended.
pub struct KafkaPublisher {
    pub(super) options: KafkaOptions,
    config: ClientConfig,
    pub(super) observer: Arc<Observer>,
    pub(super) topics: Arc<Topics>,
    pub(super) warmth: Arc<Warmth>,
    directory: Arc<Directory>,
    lone: Arc<Slot>,
    lanes: Arc<Slot>,
}

/// What a cluster says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Its id.
    pub id: Option<String>,
    /// Its brokers, as `host:port`.
    pub brokers: Vec<String>,
}

impl KafkaPublisher {
    /// A publisher with these options. Does not wait for a connection: a relay may start before its broker.
    pub fn new(options: KafkaOptions) -> Result<Self, InvalidKafkaOptions> {
        let config = options.client_config()?;
        let (topics, warmth) = (Arc::default(), Arc::default());
        let observer = Observer::new(
            options.unknown_topic,
            options.effective_answer_within(),
            &topics,
            &warmth,
        );
        let observer = Arc::new(observer);
        let slot = |role| {
            Slot::new(
                role,
                &config,
                &observer,
                &warmth,
                &topics,
                options.effective_answer_within(),
            )
        };
        let (lone, lanes) = (slot(Role::Lone), slot(Role::Lanes));
        // Settings that are wrong only together show when a client is made of them.
        lone.producer().map_err(posthaste_kafka::InvalidConnection::from)?;
        let directory = Directory::new(&config, &observer, &topics, &lone, ask_within(&options));
        Ok(Self {
            options,
            config,
            observer,
            topics,
            warmth,
            directory,
            lone,
            lanes,
        })
    }

    /// Asks the cluster who it is; the error says why it cannot be asked.
    pub async fn cluster(&self) -> Result<Cluster, PublishError> {
        let failure = |error: &KafkaError| self.observer.failure(error, None);
        let producer = self.lone.producer().map_err(|error| failure(&error))?;
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

    /// The limit of a topic that is below so many bytes, where the size of a message tells its size in a request.
    pub(super) async fn limit_below(&self, topic: &str, bytes: usize) -> Option<usize> {
        if self.config.get("compression.type").is_some_and(|codec| codec != "none") {
            return None;
        }
        self.directory.limit_below(topic, bytes).await
    }

    /// The producers for a batch, which may hold several messages of one lane.
    pub(super) fn producers(&self, several: bool) -> Result<Producers<'_>, KafkaError> {
        let idempotent = self
            .config
            .get("enable.idempotence")
            .is_some_and(|value| value == "true");
        Producers::new(&self.lone, (several && idempotent).then_some(&*self.lanes))
    }
}

/// How long the producers may take to end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a question about topics or the cluster may take.
fn ask_within(options: &KafkaOptions) -> Duration {
    Duration::from_secs(5).min(options.effective_answer_within() / 4)
}

#[async_trait]
impl Publisher for KafkaPublisher {
    async fn publish(&self, batch: Batch, report: Report) {
        Publication::begin(self, &batch, report).await.run().await;
    }

    fn name(&self) -> &'static str {
        "kafka"
    }

    /// Its batches are divided by librdkafka. A broker drops what its own producer repeats, but not what another one sent
    /// before, so it does not count as deduplicating.
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(LaneOrder::Pipelined)
    }

    async fn check(&self) -> Result<String, PublishError> {
        let cluster = self.cluster().await?;
        let (count, brokers) = (cluster.brokers.len(), cluster.brokers.join(", "));
        let s = if count == 1 { "" } else { "s" };
        let id = cluster.id.unwrap_or_else(|| "unknown".to_owned());
        Ok(format!("kafka, {count} broker{s}: {brokers} (cluster {id})"))
    }

    /// Waits for answers that are on their way, and for the end of the producers' threads.
    async fn close(&self) {
        let slots = [Arc::clone(&self.lone), Arc::clone(&self.lanes)];
        let closing = tokio::task::spawn_blocking(move || {
            slots.iter().for_each(|slot| slot.close());
            slots.iter().all(|slot| slot.wait_until_closed(CLOSE_TIMEOUT))
        });
        if !closing.await.unwrap_or_default() {
            tracing::debug!("the Kafka producers did not end within {CLOSE_TIMEOUT:?}");
        }
    }
}

impl fmt::Debug for KafkaPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaPublisher")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
