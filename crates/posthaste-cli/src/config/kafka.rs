//! Which Kafka cluster, and which topics it should have.

use std::collections::BTreeMap;

use anyhow::bail;
use posthaste_kafka::connection::{Connection, reading};
use posthaste_kafka::topics::{DeclaredTopics, TopicSpec};
use serde::Deserialize;

/// A Kafka cluster, and the topics it should have.
#[derive(Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KafkaConfig {
    #[serde(deserialize_with = "reading::brokers")]
    brokers: Vec<String>,
    client_id: Option<String>,
    #[serde(deserialize_with = "reading::properties")]
    properties: BTreeMap<String, String>,
    topic_defaults: TopicSpec,
    topics: BTreeMap<String, TopicSpec>,
}

impl KafkaConfig {
    /// The way to the cluster. See [`Connection`] for its settings.
    pub fn connection(&self) -> anyhow::Result<Connection> {
        match self.settings() {
            settings if settings.brokers.is_empty() => bail!(
                "kafka.brokers: is missing; name at least one broker, such as kafka.brokers = [\"127.0.0.1:9092\"]"
            ),
            settings => Ok(settings),
        }
    }

    /// The same, with or without brokers.
    pub(super) fn settings(&self) -> Connection {
        Connection {
            brokers: self.brokers.clone(),
            client_id: self.client_id.clone(),
            properties: self.properties.clone(),
        }
    }

    /// The topics that the cluster should have.
    pub fn declared_topics(&self) -> DeclaredTopics {
        DeclaredTopics {
            defaults: self.topic_defaults.clone(),
            topics: self.topics.clone(),
        }
    }
}

impl std::fmt::Debug for KafkaConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The connection hides its secrets.
        f.debug_struct("KafkaConfig")
            .field("connection", &self.settings())
            .field("topics", &self.declared_topics())
            .finish()
    }
}
