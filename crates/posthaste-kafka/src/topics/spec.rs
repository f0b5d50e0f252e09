//! What is declared.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::retention::Retention;
use crate::connection::reading;
use crate::dead_letter;

/// What is asked of a topic.
///
/// What is left out is taken from the defaults for all topics, and where they leave it out too, as stated here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TopicSpec {
    /// How many partitions, which is how many consumers of a group can share the work. Defaults to 3.
    pub partitions: Option<u32>,
    /// How many brokers keep a copy. Holds for the dead-letter topic too. Defaults to the cluster's
    /// `default.replication.factor`.
    pub replication_factor: Option<u32>,
    /// How many copies must be written before a record counts as sent. Holds for the dead-letter topic too. Defaults to
    /// the cluster's `min.insync.replicas`.
    pub min_insync_replicas: Option<u32>,
    /// How long records are kept. Defaults to 7 days.
    pub retention: Option<Retention>,
    /// Anything else that Kafka can be told of a topic, such as `max.message.bytes`. Added to that of the defaults.
    #[serde(deserialize_with = "reading::properties")]
    pub config: BTreeMap<String, String>,
    /// Whether there is a `.dlq` topic for records that no consumer could handle. Defaults to true.
    pub dlq: Option<bool>,
    /// How many partitions that one has. Defaults to 1.
    pub dlq_partitions: Option<u32>,
    /// How long it keeps them. Defaults to 30 days.
    pub dlq_retention: Option<Retention>,
    /// Anything else for the `.dlq` topic. It has none of `config`, which might have Kafka delete dead letters; but unless
    /// its `max.message.bytes` is set here, it takes records that are larger than the topic's by what is added to a dead
    /// letter.
    #[serde(deserialize_with = "reading::properties")]
    pub dlq_config: BTreeMap<String, String>,
}

/// Topics as they ought to be.
///
/// ```
/// use posthaste_kafka::topics::{DeclaredTopics, TopicSpec};
///
/// let declared = DeclaredTopics::named(["order-events", "stock-events"]).defaults(TopicSpec {
///     replication_factor: Some(3),
///     min_insync_replicas: Some(2),
///     ..TopicSpec::default()
/// });
/// assert_eq!(declared.wanted().len(), 4, "each has a dead-letter topic");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredTopics {
    /// What holds for all of them unless they say otherwise.
    pub defaults: TopicSpec,
    /// What is particular to each, by name.
    pub topics: BTreeMap<String, TopicSpec>,
}

impl DeclaredTopics {
    /// Topics with nothing particular to them.
    pub fn named<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self {
            defaults: TopicSpec::default(),
            topics: names
                .into_iter()
                .map(|name| (name.into(), TopicSpec::default()))
                .collect(),
        }
    }

    /// Sets what holds for all of them.
    #[must_use]
    pub fn defaults(mut self, defaults: TopicSpec) -> Self {
        self.defaults = defaults;
        self
    }

    /// Adds a topic.
    #[must_use]
    pub fn topic(mut self, name: impl Into<String>, spec: TopicSpec) -> Self {
        self.topics.insert(name.into(), spec);
        self
    }

    /// Every topic that should be there, each followed by its dead-letter topic.
    pub fn wanted(&self) -> Vec<WantedTopic> {
        let both = |(name, spec): (&String, &TopicSpec)| self.resolve(name, spec);
        self.topics.iter().flat_map(both).collect()
    }

    fn resolve(&self, name: &str, spec: &TopicSpec) -> Vec<WantedTopic> {
        let defaults = &self.defaults;
        let replication_factor = spec.replication_factor.or(defaults.replication_factor);
        let min_insync_replicas = spec.min_insync_replicas.or(defaults.min_insync_replicas);
        let wanted = |name: String, partitions: u32, retention: Retention, rest: BTreeMap<String, String>| {
            let mut config = rest;
            config.insert(RETENTION.to_owned(), retention.millis());
            if let Some(replicas) = min_insync_replicas {
                config.insert(MIN_INSYNC.to_owned(), replicas.to_string());
            }
            WantedTopic {
                name,
                partitions,
                replication_factor,
                config,
            }
        };
        let config = merged(&defaults.config, &spec.config);
        let mut dlq_config = merged(&defaults.dlq_config, &spec.dlq_config);
        let largest = config.get(MAX_BYTES).and_then(|bytes| bytes.parse::<u32>().ok());
        if let Some(bytes) = largest {
            dlq_config
                .entry(MAX_BYTES.to_owned())
                .or_insert(with_room(bytes).to_string());
        }
        let topic = wanted(
            name.to_owned(),
            spec.partitions.or(defaults.partitions).unwrap_or(3),
            spec.retention.or(defaults.retention).unwrap_or(Retention::days(7)),
            config,
        );
        if !spec.dlq.or(defaults.dlq).unwrap_or(true) {
            return vec![topic];
        }
        let dlq = wanted(
            dead_letter::topic_for(name),
            spec.dlq_partitions.or(defaults.dlq_partitions).unwrap_or(1),
            spec.dlq_retention
                .or(defaults.dlq_retention)
                .unwrap_or(Retention::days(30)),
            dlq_config,
        );
        vec![topic, dlq]
    }
}

pub(super) const RETENTION: &str = "retention.ms";
pub(super) const MIN_INSYNC: &str = "min.insync.replicas";
pub(super) const MAX_BYTES: &str = "max.message.bytes";

/// Above what the error and the other headers of a dead letter can take.
const DEAD_LETTER_HEADER_BYTES: u32 = 16 * 1024;

/// What a dead-letter topic must take, given what its topic takes.
pub(super) fn with_room(bytes: u32) -> u32 {
    bytes
        .saturating_add(DEAD_LETTER_HEADER_BYTES)
        .min(i32::MAX.unsigned_abs())
}

fn merged(defaults: &BTreeMap<String, String>, own: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut merged = defaults.clone();
    merged.extend(own.clone());
    merged
}

/// A topic with everything that was declared for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedTopic {
    /// Its name.
    pub name: String,
    /// How many partitions.
    pub partitions: u32,
    /// How many copies; `None` leaves it to the cluster.
    pub replication_factor: Option<u32>,
    /// Kafka's own names and values.
    pub config: BTreeMap<String, String>,
}
