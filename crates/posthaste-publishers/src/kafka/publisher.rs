//! The publisher.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use posthaste_core::publisher::{Batch, ErrorKind, PublishError, Publisher, Report};
use rdkafka::ClientConfig;
use rdkafka::admin::AdminClient;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::KafkaError;

use super::batch::{End, Ongoing};
use super::context::{Asking, Observer};
use super::hand_over::{Desk, Patience, Place, places};
use super::options::{InvalidKafkaOptions, KafkaOptions};
use super::producer::{Producer, Role, Slot};
use super::route;
use super::topics::{self, Facts, Topics};
use super::warmth::{self, Warmth};

/// How long a question about topics or the cluster may take.
const ASK_WITHIN: Duration = Duration::from_secs(5);

/// How long the question for a topic's limit may take, without which the default is assumed.
const LIMITS_WITHIN: Duration = Duration::from_secs(2);

/// How long what was taken back may take to be reported.
const LAST_REPORTS: Duration = Duration::from_secs(5);

/// Publishes to Kafka: one record per message, partitioned by ordering key, else by aggregate id.
///
/// A message counts as delivered once the broker has acknowledged it, by default with all replicas in sync. Several messages
/// of one lane are on their way at the same time, and still none is written after an earlier one of its lane has failed:
/// see `docs/adr/0004-kafka-order.md`.
///
/// A cluster that is away, wrong credentials, and a topic that is not there are failures of messages, not of the
/// publisher: it goes on by itself once they are mended.
pub struct KafkaPublisher {
    options: KafkaOptions,
    config: ClientConfig,
    delivery_timeout: Duration,
    compressed: bool,
    idempotent: bool,
    observer: Arc<Observer>,
    topics: Arc<Topics>,
    warmth: Arc<Warmth>,
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
    /// A publisher with these options. Does not connect: a relay may start before its broker.
    pub fn new(options: KafkaOptions) -> Result<Self, InvalidKafkaOptions> {
        let config = options.client_config()?;
        let is = |name: &str, values: &[&str]| config.get(name).is_some_and(|value| values.contains(&value));
        let observer = Arc::new(Observer::new(options.unknown_topic));
        let (topics, warmth) = (Arc::default(), Arc::default());
        let lone = Slot::new(Role::Lone, &config, &observer, &warmth, &topics);
        // Settings that are wrong only together show when a client is made of them.
        lone.producer().map_err(posthaste_kafka::InvalidConnection::from)?;
        Ok(Self {
            delivery_timeout: KafkaOptions::delivery_timeout(&config),
            compressed: !is("compression.type", &["none"]) && config.get("compression.type").is_some(),
            idempotent: is("enable.idempotence", &["true", "t", "1"]),
            lone,
            lanes: Slot::new(Role::Lanes, &config, &observer, &warmth, &topics),
            options,
            config,
            observer,
            topics,
            warmth,
        })
    }

    /// Asks the cluster who it is; the error says why it cannot be asked.
    pub async fn cluster(&self) -> Result<Cluster, PublishError> {
        let producer = self
            .lone
            .producer()
            .map_err(|error| self.observer.failure(&error, None))?;
        let asked = tokio::task::spawn_blocking(move || {
            let client = producer.client();
            let metadata = client.fetch_metadata(None, ASK_WITHIN)?;
            let brokers = metadata.brokers().iter();
            Ok(Cluster {
                brokers: brokers
                    .map(|broker| format!("{}:{}", broker.host(), broker.port()))
                    .collect(),
                id: client.fetch_cluster_id(ASK_WITHIN),
            })
        });
        match asked.await {
            Ok(answer) => answer.map_err(|error: KafkaError| self.observer.failure(&error, None)),
            Err(error) => Err(PublishError::unknown(error.to_string())),
        }
    }

    /// Learns what is not known yet of these topics; the error of each that cannot be used.
    async fn learn(&self, topics: BTreeSet<String>) -> HashMap<String, PublishError> {
        let unknown: Vec<String> = topics
            .into_iter()
            .filter(|topic| self.topics.known(topic).is_none())
            .collect();
        if unknown.is_empty() {
            return HashMap::new();
        }
        let mut failed = HashMap::new();
        let mut found: Vec<(String, usize)> = Vec::new();
        let mut away = None;
        for topic in unknown {
            // What does not answer for one topic is not asked for the next.
            let answer = match &away {
                None => self.ask_for_partitions(&topic).await,
                Some(error) => Err(KafkaError::clone(error)),
            };
            match answer {
                Ok(partitions) => found.push((topic, partitions)),
                Err(error) => {
                    let failure = self.observer.failure(&error, Some(&topic));
                    if failure.kind == ErrorKind::Transport {
                        away = Some(error);
                    }
                    failed.insert(topic, failure);
                }
            }
        }
        let names: Vec<String> = found.iter().map(|(topic, _)| topic.clone()).collect();
        let limits = match AdminClient::from_config_and_context(&self.config, Asking) {
            Ok(admin) if !names.is_empty() => topics::limits(&admin, &names, LIMITS_WITHIN).await,
            _ => HashMap::new(),
        };
        for (topic, partitions) in found {
            if let Some(&max_message_bytes) = limits.get(&topic) {
                self.topics.learnt(
                    &topic,
                    Facts {
                        partitions,
                        max_message_bytes,
                    },
                );
            }
        }
        failed
    }

    async fn ask_for_partitions(&self, topic: &str) -> Result<usize, KafkaError> {
        let (producer, topic) = (self.lone.producer()?, topic.to_owned());
        tokio::task::spawn_blocking(move || topics::partitions(producer.client(), &topic, ASK_WITHIN))
            .await
            .unwrap_or(Err(KafkaError::Canceled))
    }

    /// Waits for the answers; what does not come in time is taken back.
    async fn answers(&self, ongoing: &Ongoing, begun: Instant, used: &Used<'_>) {
        loop {
            let silent = ongoing.last_answer().max(begun) + self.options.answer_within;
            let latest = begun + self.delivery_timeout;
            let until = tokio::time::Instant::from_std(silent.min(latest));
            if tokio::time::timeout_at(until, ongoing.over()).await.is_ok() {
                return;
            }
            let now = Instant::now();
            if now >= latest || now >= ongoing.last_answer().max(begun) + self.options.answer_within {
                break;
            }
        }
        ongoing.give_up(self.observer.silence(begun.elapsed().min(self.options.answer_within)));
        used.take_back();
        let _ = tokio::time::timeout(LAST_REPORTS, ongoing.over()).await;
    }
}

/// The producers that a batch was handed to. If the batch is abandoned, they take back what they hold of it: it must not
/// be sent long after its lease.
struct Used<'a> {
    ongoing: Arc<Ongoing>,
    slots: [&'a Slot; 2],
    producers: &'a Producers,
}

/// The producers for one batch.
struct Producers {
    lone: Arc<Producer>,
    lanes: Option<Arc<Producer>>,
}

impl Used<'_> {
    fn take_back(&self) {
        let [lone, lanes] = self.slots;
        lone.replace(self.producers.lone.generation);
        if let Some(producer) = &self.producers.lanes {
            lanes.replace(producer.generation);
        }
    }
}

impl Drop for Used<'_> {
    fn drop(&mut self) {
        if !self.ongoing.is_over() {
            self.take_back();
        }
    }
}

/// How a lane is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It has one message.
    Alone,
    /// In one go.
    Together,
    /// The first message, and the rest once that is answered.
    HeadFirst,
    /// The first message only; the rest with the next batch.
    HeadOnly,
}

#[async_trait]
impl Publisher for KafkaPublisher {
    async fn publish(&self, batch: Batch, report: Report) {
        let (places, lanes) = places(&batch.deliveries);
        let mut ids = vec![Vec::new(); lanes];
        for (delivery, at) in batch.deliveries.iter().zip(&places) {
            ids[at.lane].push(delivery.message.id);
        }
        let lengths: Vec<usize> = ids.iter().map(Vec::len).collect();
        let ongoing = Arc::new(Ongoing::new(ids, report));
        let routed: Vec<_> = batch
            .deliveries
            .iter()
            .map(|delivery| route::topic(&self.options.routes, &delivery.message))
            .collect();
        let wanted = routed
            .iter()
            .flatten()
            .map(|topic| topic.clone().into_owned())
            .collect();
        let unusable = self.learn(wanted).await;
        let producers = match self.producers(lengths.iter().any(|length| *length > 1)) {
            Ok(producers) => producers,
            Err(error) => {
                for at in &places {
                    ongoing.end(at.lane, at.place, End::Failed(error.clone()));
                }
                return;
            }
        };
        let used = Used {
            ongoing: Arc::clone(&ongoing),
            slots: [&self.lone, &self.lanes],
            producers: &producers,
        };
        let desk = Desk {
            batch: &batch,
            ongoing: &ongoing,
            observer: &self.observer,
            format: self.options.format,
            id_header: self.options.id_header.as_deref(),
            patience: Patience::new(self.options.answer_within),
        };
        let begun = Instant::now();
        let mut ways: Vec<Option<Way>> = vec![None; lanes];
        let mut later: Vec<usize> = Vec::new();
        for (number, at) in places.iter().enumerate() {
            let topic = match usable(&routed[number], &unusable) {
                Ok(topic) => topic,
                Err(error) => {
                    ongoing.end(at.lane, at.place, End::Failed(error));
                    continue;
                }
            };
            let lane = batch.deliveries[number].message.lane();
            let way = *ways[at.lane].get_or_insert_with(|| self.way(lengths[at.lane], topic, lane, &producers));
            match (way, at.place) {
                (Way::HeadFirst, 1..) => later.push(number),
                (Way::HeadOnly, 1..) => ongoing.end(at.lane, at.place, End::NotHandedOver),
                _ => self.send(&desk, number, *at, topic, way, &producers).await,
            }
        }
        if !later.is_empty() {
            let heads: Vec<usize> = later.iter().map(|&number| places[number].lane).collect();
            let patience = self.options.answer_within;
            let answered = tokio::time::timeout(patience, ongoing.heads_answered(&heads)).await;
            for number in later {
                let at = places[number];
                match usable(&routed[number], &unusable) {
                    Ok(topic) if answered.is_ok() => {
                        self.send(&desk, number, at, topic, Way::HeadFirst, &producers).await;
                    }
                    _ => ongoing.end(at.lane, at.place, End::NotHandedOver),
                }
            }
        }
        self.answers(&ongoing, begun, &used).await;
    }

    fn name(&self) -> &'static str {
        "kafka"
    }
}

fn usable<'a>(
    routed: &'a Result<Cow<'a, str>, PublishError>,
    unusable: &HashMap<String, PublishError>,
) -> Result<&'a str, PublishError> {
    let topic = routed.as_deref().map_err(Clone::clone)?;
    unusable.get(topic).map_or(Ok(topic), |error| Err(error.clone()))
}

impl KafkaPublisher {
    fn producers(&self, several: bool) -> Result<Producers, PublishError> {
        let lone = self.lone.producer();
        let lanes = (several && self.idempotent).then(|| self.lanes.producer()).transpose();
        match (lone, lanes) {
            (Ok(lone), Ok(lanes)) => Ok(Producers { lone, lanes }),
            (Err(error), _) | (_, Err(error)) => Err(self.observer.failure(&error, None)),
        }
    }

    fn way(&self, length: usize, topic: &str, lane: Option<(&str, &str)>, producers: &Producers) -> Way {
        let Some((own_topic, key)) = lane.filter(|_| length > 1) else {
            return Way::Alone;
        };
        let Some(strict) = producers.lanes.as_ref().filter(|_| !self.warmth.is_doubted(topic)) else {
            return Way::HeadOnly;
        };
        let partitions = self.topics.known(topic).map_or(0, |facts| facts.partitions);
        if self
            .warmth
            .is_warm(strict.generation, warmth::lane(own_topic, key), topic, partitions)
        {
            Way::Together
        } else {
            Way::HeadFirst
        }
    }

    async fn send(&self, desk: &Desk<'_>, number: usize, at: Place, topic: &str, way: Way, producers: &Producers) {
        let delivery = &desk.batch.deliveries[number];
        let limit = self.topics.known(topic).map(|facts| facts.max_message_bytes);
        let limit = limit.filter(|_| !self.compressed);
        let (producer, warms) = match (way, &producers.lanes) {
            (Way::Together | Way::HeadFirst, Some(strict)) => {
                let lane = delivery.message.lane().filter(|_| at.place == 0);
                (strict, lane.map(|(topic, key)| warmth::lane(topic, key)))
            }
            _ => (&producers.lone, None),
        };
        desk.hand_over(delivery, at, topic, limit, producer, warms).await;
    }
}

impl fmt::Debug for KafkaPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaPublisher")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
