//! Learns what the cluster knows of topics.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use futures::{StreamExt, stream};
use posthaste_core::publisher::{ErrorKind, PublishError};
use rdkafka::admin::AdminClient;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::KafkaError;

use super::context::Asking;
use super::publisher::KafkaPublisher;
use super::topics::{self, Absence, Facts};

/// How many topics are asked for side by side.
const AT_A_TIME: usize = 16;

/// How long the question for a topic's limit may take. Without an answer the broker is left to judge.
const LIMITS_WITHIN: Duration = Duration::from_secs(2);

impl KafkaPublisher {
    /// Learns what is not known yet, or long known, of these topics; returns the error of each that cannot be used.
    pub(super) async fn learn(&self, topics: BTreeSet<String>) -> HashMap<String, PublishError> {
        let asked = topics.into_iter().filter(|topic| !self.topics.is_fresh(topic));
        let answers: Vec<_> = stream::iter(asked)
            .map(|topic| async { (self.ask_for_partitions(&topic).await, topic) })
            .buffer_unordered(AT_A_TIME)
            .collect()
            .await;
        let mut unusable = HashMap::new();
        let mut found: Vec<(String, usize)> = Vec::new();
        for (answer, topic) in answers {
            match answer {
                Ok(partitions) => found.push((topic, partitions)),
                Err(error) => {
                    let failure = self.observer.failure(&error, Some(&topic));
                    let is_away = failure.kind == ErrorKind::Transport;
                    // What was true before will do until somebody can be asked.
                    if !is_away || self.topics.facts(&topic).is_none() {
                        unusable.insert(topic, failure);
                    }
                }
            }
        }
        self.learn_limits(found).await;
        unusable
    }

    /// The largest request that a topic takes, where the size of a message tells its size in a request.
    pub(super) fn limit(&self, topic: &str) -> Option<usize> {
        let compressed = self.config.get("compression.type").is_some_and(|codec| codec != "none");
        let facts = self.topics.facts(topic).filter(|_| !compressed);
        facts.and_then(|facts| facts.max_message_bytes)
    }

    async fn ask_for_partitions(&self, topic: &str) -> Result<usize, KafkaError> {
        // A topic that is not there must not hold up every batch.
        let looks = match self.topics.absence(topic) {
            Absence::Recent(error) => return Err(error),
            Absence::Long => 1,
            Absence::Unknown => topics::LOOKS,
        };
        let producer = self.producers(false)?.lone();
        let (name, within) = (topic.to_owned(), self.ask_within());
        let answer = tokio::task::spawn_blocking(move || topics::partitions(producer.client(), &name, looks, within))
            .await
            .unwrap_or(Err(KafkaError::Canceled));
        if let Err(error) = &answer {
            self.topics.missed(topic, error.clone());
        }
        answer
    }

    async fn learn_limits(&self, found: Vec<(String, usize)>) {
        if found.is_empty() {
            return;
        }
        let names: Vec<String> = found.iter().map(|(topic, _)| topic.clone()).collect();
        let limits = match AdminClient::from_config_and_context(&self.config, Asking) {
            Ok(admin) => topics::limits(&admin, &names, LIMITS_WITHIN).await,
            Err(_) => HashMap::new(),
        };
        for (topic, partitions) in found {
            let facts = Facts {
                partitions,
                max_message_bytes: limits.get(&topic).copied(),
            };
            self.topics.learnt(&topic, facts);
        }
    }
}
