//! A consumer group's subscription as a source of records.

use std::sync::Arc;
use std::time::Duration;

use posthaste_kafka::InvalidConnection;
use posthaste_kafka::error::explain_error;
use rdkafka::consumer::Consumer;
use rdkafka::error::KafkaError;

use super::commit::KafkaCommit;
use super::context::{Client, Context};
use super::dead_letters::KafkaDeadLetters;
use super::initial_partitions::InitialPartitions;
use super::partitions::Partitions;
use super::rebalance::Rebalancing;
use super::record::KafkaRecord;
use super::unsettled::Unsettled;
use crate::config::{ConsumerConfig, InvalidConfig};
use crate::source::{Commit, DeadLetterSink, Lane, RebalanceListener, Source, SourceError};

pub(crate) struct KafkaSource {
    client: Arc<Client>,
    topics: Vec<String>,
    partitions: Arc<Partitions>,
    unsettled: Option<Arc<Unsettled>>,
    committer: Arc<KafkaCommit>,
    dead_letters: Arc<KafkaDeadLetters>,
}

impl KafkaSource {
    pub(crate) fn new(config: &ConsumerConfig) -> Result<Self, InvalidConfig> {
        let mut properties = config.consumer_properties()?;
        let dead_letters = KafkaDeadLetters::new(config)?;
        let begins_at_the_end = matches!(properties.get("auto.offset.reset"), Some("latest" | "largest" | "end"));
        if begins_at_the_end {
            // The end is where a new group is put by a commit of its own; the property would also hold for an offset that
            // is no longer there, and pass over what still is.
            properties.set("auto.offset.reset", "earliest");
        }
        let partitions = Arc::new(Partitions::default());
        let initial_partitions = Arc::new(InitialPartitions::default());
        let unsettled = begins_at_the_end
            .then(|| Arc::new(Unsettled::new(Arc::clone(&partitions), Arc::clone(&initial_partitions))));
        let rebalancing = Rebalancing {
            partitions: Arc::clone(&partitions),
            unsettled: unsettled.clone(),
        };
        let mut client: Client = properties
            .create_with_context(Context::new(Box::new(rebalancing)))
            .map_err(|error| InvalidConfig::from(InvalidConnection::from(error)))?;
        let wake = Arc::downgrade(&partitions);
        client.set_nonempty_callback(move || {
            if let Some(partitions) = wake.upgrade() {
                partitions.wake();
            }
        });
        let client = Arc::new(client);
        partitions.belong_to(&client);
        let committer = KafkaCommit {
            client: Arc::downgrade(&client),
            initial_partitions,
        };
        Ok(Self {
            client,
            topics: config.topics.clone(),
            partitions,
            unsettled,
            committer: Arc::new(committer),
            dead_letters: Arc::new(dead_letters),
        })
    }
}

impl Source for KafkaSource {
    type Record = KafkaRecord;

    fn committer(&self) -> Arc<dyn Commit> {
        Arc::clone(&self.committer) as Arc<dyn Commit>
    }

    fn dead_letters(&self) -> Arc<dyn DeadLetterSink<KafkaRecord>> {
        Arc::clone(&self.dead_letters) as Arc<dyn DeadLetterSink<KafkaRecord>>
    }

    fn subscribe(&mut self, listener: Arc<dyn RebalanceListener>) -> Result<(), SourceError> {
        self.partitions.report_to(listener);
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        let subscribed = self.client.subscribe(&topics);
        subscribed.map_err(|error| SourceError(explain_error(&error, None).text))
    }

    fn serve(&mut self) -> Result<(), SourceError> {
        while let Some(result) = self.client.poll(Duration::ZERO) {
            match result {
                Ok(record) => self.partitions.keep(&record),
                Err(KafkaError::MessageConsumptionFatal(code)) => {
                    return Err(SourceError(format!(
                        "the client cannot go on: {code}; start the consumer again"
                    )));
                }
                // The context has been told.
                Err(_) => {}
            }
        }
        self.client.context().check()?;
        if let Some(unsettled) = &self.unsettled
            && !self.partitions.is_closing()
        {
            unsettled.retry_lookup(&self.client);
        }
        Ok(())
    }

    fn receive(&mut self, lane: &Lane) -> Result<Option<KafkaRecord>, SourceError> {
        let record = self.partitions.receive(lane)?;
        if record.is_some() {
            self.client.context().reads();
        }
        Ok(record)
    }
}

impl Drop for KafkaSource {
    fn drop(&mut self) {
        self.partitions.clear();
    }
}
