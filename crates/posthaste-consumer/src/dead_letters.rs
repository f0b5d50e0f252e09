//! Writes what could not be handled to `{topic}.dlq`.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use chrono::Utc;
use posthaste_kafka::dead_letter::{self, DeadLetter};
use posthaste_kafka::error::{Cause, explain_error};
use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::producer::{FutureProducer, FutureRecord};

use crate::context::Quiet;
use crate::delivery::Delivery;

/// How long a letter may wait for room in the producer's queue.
const ROOM: Duration = Duration::from_secs(10);

/// The way to the dead-letter topics. The producer is made when the first letter is written: most consumers never need
/// one.
pub(crate) struct DeadLetters {
    group: String,
    properties: ClientConfig,
    producer: Mutex<Option<FutureProducer<Quiet>>>,
}

impl DeadLetters {
    pub(crate) fn new(group: &str, properties: ClientConfig) -> Self {
        Self {
            group: group.to_owned(),
            properties,
            producer: Mutex::new(None),
        }
    }

    /// Returns once the record is durable, or with what is to be done about it.
    pub(crate) async fn write(&self, delivery: &Delivery, error: &str, attempts: u32) -> Result<(), String> {
        let topic = dead_letter::topic_for(delivery.topic());
        let letter = DeadLetter {
            error: error.to_owned(),
            attempts,
            topic: delivery.topic().to_owned(),
            partition: delivery.partition(),
            offset: delivery.offset(),
            time: Utc::now(),
            group: self.group.clone(),
        };
        let sent = match self.producer() {
            Ok(producer) => {
                let record = FutureRecord {
                    topic: &topic,
                    partition: None,
                    payload: delivery.payload(),
                    key: delivery.key(),
                    timestamp: None,
                    headers: Some(letter.add_to(delivery.headers())),
                };
                producer.send(record, ROOM).await.map(drop).map_err(|(error, _)| error)
            }
            Err(error) => Err(error),
        };
        sent.map_err(|error| {
            let explanation = explain_error(&error, Some(&topic));
            if explanation.cause == Cause::Fatal {
                *self.producer.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
            explanation.text
        })
    }

    fn producer(&self) -> Result<FutureProducer<Quiet>, KafkaError> {
        let mut made = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(producer) = &*made {
            return Ok(producer.clone());
        }
        let producer: FutureProducer<Quiet> = self.properties.create_with_context(Quiet)?;
        Ok(made.insert(producer).clone())
    }
}
