//! Learns what the cluster knows of topics, and keeps it up to date in the background.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::{StreamExt, stream};
use posthaste_core::publisher::PublishError;
use posthaste_kafka::error::{Cause, explain_error};
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use tokio::sync::OnceCell;

use super::admin::Admin;
use super::context::Observer;
use super::producer::Slot;
use super::topics::{self, Absence, Facts, Topics};

/// How many topics are asked for side by side.
const AT_A_TIME: usize = 16;

/// How long the question for a topic's limit may take. Without an answer the broker is left to judge.
const LIMITS_TIMEOUT: Duration = Duration::from_secs(2);

/// How much longer than one question all of a batch's questions may take together.
const LEARN_SLACK: Duration = Duration::from_secs(1);

/// What the publisher asks the cluster.
pub(super) struct Directory {
    config: ClientConfig,
    observer: Arc<Observer>,
    topics: Arc<Topics>,
    producer: Arc<Slot>,
    /// How long one question may take.
    timeout: Duration,
    /// One for all questions, made with the first.
    admin: OnceCell<Admin>,
    refreshing: AtomicBool,
}

/// Ends a refresh, whichever way it ends.
struct Refresh(Arc<Directory>);

impl Drop for Refresh {
    fn drop(&mut self) {
        self.0.refreshing.store(false, Ordering::Release);
    }
}

impl Directory {
    pub(super) fn new(
        config: &ClientConfig,
        observer: &Arc<Observer>,
        topics: &Arc<Topics>,
        producer: &Arc<Slot>,
        timeout: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            config: config.clone(),
            observer: Arc::clone(observer),
            topics: Arc::clone(topics),
            producer: Arc::clone(producer),
            timeout,
            admin: OnceCell::new(),
            refreshing: AtomicBool::new(false),
        })
    }

    /// Learns of these topics what is not known; returns the error of each that cannot be used. What is known, however
    /// long, is not waited for.
    pub(super) async fn learn(self: &Arc<Self>, wanted: BTreeSet<String>) -> HashMap<String, PublishError> {
        let (known, unknown): (Vec<_>, Vec<_>) =
            wanted.into_iter().partition(|topic| self.topics.facts(topic).is_some());
        let stale: Vec<String> = known.into_iter().filter(|topic| !self.topics.is_fresh(topic)).collect();
        if !stale.is_empty() {
            self.refresh(stale);
        }
        if unknown.is_empty() {
            return HashMap::new();
        }
        let deadline = tokio::time::Instant::now() + self.timeout + LEARN_SLACK;
        let mut unanswered: BTreeSet<String> = unknown.iter().cloned().collect();
        let mut unusable = HashMap::new();
        let mut found = Vec::new();
        let mut answers = Box::pin(
            stream::iter(unknown)
                .map(|topic| async { (self.ask_for_partitions(&topic).await, topic) })
                .buffer_unordered(AT_A_TIME),
        );
        while let Ok(Some((answer, topic))) = tokio::time::timeout_at(deadline, answers.next()).await {
            unanswered.remove(&topic);
            match answer {
                Ok(partitions) => found.push((topic, partitions)),
                Err(error) => {
                    let failure = self.observer.failure(&error, Some(&topic));
                    unusable.insert(topic, failure);
                }
            }
        }
        let silence = KafkaError::MetadataFetch(RDKafkaErrorCode::OperationTimedOut);
        for topic in unanswered {
            let failure = self.observer.failure(&silence, Some(&topic));
            unusable.insert(topic, failure);
        }
        let names: Vec<String> = found.iter().map(|(topic, _)| topic.clone()).collect();
        let limits = self.limits(&names).await;
        for (topic, (partitions, led_by_one)) in found {
            let max_message_bytes = limits.get(&topic).copied();
            let facts = Facts {
                partitions,
                led_by_one,
                max_message_bytes,
            };
            self.topics.learnt(&topic, facts);
        }
        unusable
    }

    /// Asks again for what is long known, while it is used.
    fn refresh(self: &Arc<Self>, topics: Vec<String>) {
        if self.refreshing.swap(true, Ordering::AcqRel) {
            return;
        }
        let refresh = Refresh(Arc::clone(self));
        tokio::spawn(async move {
            let directory = &refresh.0;
            let limits = directory.limits(&topics).await;
            for topic in topics {
                let Some(before) = directory.topics.facts(&topic) else {
                    continue;
                };
                match directory.ask_for_partitions(&topic).await {
                    Ok((partitions, led_by_one)) => {
                        let max_message_bytes = limits.get(&topic).copied().or(before.max_message_bytes);
                        let facts = Facts {
                            partitions,
                            led_by_one,
                            max_message_bytes,
                        };
                        directory.topics.learnt(&topic, facts);
                    }
                    // It was deleted: the next message to it is told.
                    Err(error) if explain_error(&error, None).cause == Cause::UnknownTopic => {
                        directory.topics.forget(&topic);
                    }
                    // What was true before will do until a broker can be asked.
                    Err(_) => directory.topics.ask_later(&topic),
                }
            }
        });
    }

    /// The limit of a topic that is below so many bytes. It is asked for once more before it is held against a message,
    /// since it may have been raised; one that cannot be asked for is left to the brokers.
    pub(super) async fn limit_below(&self, topic: &str, bytes: usize) -> Option<usize> {
        let facts = self.topics.facts(topic)?;
        let known = facts.max_message_bytes.filter(|limit| bytes > *limit)?;
        if self.topics.was_just_asked_for(topic) {
            return Some(known);
        }
        let limits = self.limits(&[topic.to_owned()]).await;
        let max_message_bytes = limits.get(topic).copied();
        let facts = Facts {
            max_message_bytes,
            ..facts
        };
        self.topics.learnt(topic, facts);
        max_message_bytes.filter(|limit| bytes > *limit)
    }

    async fn ask_for_partitions(&self, topic: &str) -> Result<(usize, usize), KafkaError> {
        // A topic that is not there must not hold up every batch.
        let looks = match self.topics.absence(topic) {
            Absence::Recent(error) => return Err(error),
            Absence::Long => 1,
            Absence::Unknown => topics::LOOKS,
        };
        let producer = self.producer.producer()?;
        let (name, timeout) = (topic.to_owned(), self.timeout);
        let asking = tokio::task::spawn_blocking(move || topics::partitions(producer.client(), &name, looks, timeout));
        let answer = asking.await.unwrap_or(Err(KafkaError::Canceled));
        match &answer {
            Ok(_) => self.observer.answered(),
            Err(error) => self.topics.missed(topic, error.clone()),
        }
        answer
    }

    /// The largest request that each topic takes, as far as the cluster lets us ask.
    async fn limits(&self, topics: &[String]) -> HashMap<String, usize> {
        if topics.is_empty() {
            return HashMap::new();
        }
        match self.admin.get_or_try_init(|| Admin::create(&self.config)).await {
            Ok(admin) => topics::limits(admin.client(), topics, LIMITS_TIMEOUT).await,
            Err(error) => {
                tracing::debug!(%error, "topics' limits cannot be asked for");
                HashMap::new()
            }
        }
    }
}
