//! Writes what could not be handled to `{topic}.dlq`.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use chrono::Utc;
use posthaste_kafka::dead_letter::{self, DeadLetter};
use posthaste_kafka::error::{Cause, explain_error};
use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::producer::{FutureProducer, FutureRecord};

use super::context::LoggingContext;
use super::properties::dead_letter_properties;
use super::record::KafkaRecord;
use crate::config::{ConsumerConfig, InvalidConfig, TooLarge};
use crate::source::{DeadLetterSink, Record, Written};
use crate::upkeep::instrument;

/// How long a letter may wait for room in the producer's queue.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(10);

/// How much of an error is kept in a record that is too large with more of it.
const SHORT_ERROR_BYTES: usize = 200;

/// The longest key of a stub.
const MAX_STUB_KEY_BYTES: usize = 1_000;

/// How much of a dead letter is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Whole,
    ShortError,
    NoError,
    Stub,
}

impl Form {
    fn error(self, error: &str) -> String {
        match self {
            Self::Whole => error.to_owned(),
            Self::ShortError | Self::Stub => error[..error.floor_char_boundary(SHORT_ERROR_BYTES)].to_owned(),
            Self::NoError => String::new(),
        }
    }
}

/// The way to the dead-letter topics. The producer is made when the first letter is written: most consumers never need
/// one.
pub(super) struct KafkaDeadLetters {
    group: String,
    too_large: TooLarge,
    properties: ClientConfig,
    producer: Mutex<Option<FutureProducer<LoggingContext>>>,
}

impl KafkaDeadLetters {
    pub(super) fn new(config: &ConsumerConfig) -> Result<Self, InvalidConfig> {
        let properties = dead_letter_properties(config)?;
        Ok(Self {
            group: config.group.clone(),
            too_large: config.too_large,
            properties,
            producer: Mutex::new(None),
        })
    }

    /// Returns once the record is durable, or with what is to be done about it.
    ///
    /// What is added to a record may make it too large for the topic, and a producer that chooses the size of its
    /// records could stop a partition with that. So the error is shortened then, and left out, and at last a stub takes
    /// the record's place.
    async fn write_in_some_form(&self, record: &KafkaRecord, error: &str, attempts: u32) -> Result<(), String> {
        let topic = dead_letter::topic_for(record.topic());
        let mut forms = [Form::Whole, Form::ShortError, Form::NoError].into_iter();
        let mut stub = (self.too_large == TooLarge::Stub).then_some(Form::Stub);
        let mut form = forms.next();
        let mut refused = None;
        while let Some(this) = form {
            let Err(error) = self.send(record, error, attempts, this).await else {
                if this == Form::Stub {
                    instrument::stubbed(record, &topic);
                }
                return Ok(());
            };
            let explanation = explain_error(&error, Some(&topic));
            match explanation.cause {
                Cause::TooLarge => {}
                Cause::Fatal => {
                    self.forget();
                    return Err(explanation.text);
                }
                _ => return Err(explanation.text),
            }
            refused = Some(explanation.text);
            form = forms.next().or_else(|| stub.take());
        }
        Err(refused.unwrap_or_default())
    }

    async fn send(&self, record: &KafkaRecord, error: &str, attempts: u32, form: Form) -> Result<(), KafkaError> {
        let topic = dead_letter::topic_for(record.topic());
        let death = DeadLetter {
            error: form.error(error),
            attempts,
            topic: record.topic().to_owned(),
            partition: record.partition(),
            offset: record.offset(),
            time: Utc::now(),
            group: self.group.clone(),
        };
        let is_stub = form == Form::Stub;
        let headers = if is_stub {
            death.stub(record.size())
        } else {
            death.add_to(record.headers())
        };
        let letter = FutureRecord {
            topic: &topic,
            partition: None,
            payload: record.payload().filter(|_| !is_stub),
            key: record.key().filter(|key| !is_stub || key.len() <= MAX_STUB_KEY_BYTES),
            timestamp: None,
            headers: Some(headers),
        };
        let sent = self.producer()?.send(letter, QUEUE_TIMEOUT).await;
        sent.map(drop).map_err(|(error, _)| error)
    }

    /// Lets go of a producer that has come to an end. Where it may block, for it waits for its threads.
    fn forget(&self) {
        let dead = self.producer.lock().unwrap_or_else(PoisonError::into_inner).take();
        tokio::task::spawn_blocking(move || drop(dead));
    }

    fn producer(&self) -> Result<FutureProducer<LoggingContext>, KafkaError> {
        let mut made = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(producer) = &*made {
            return Ok(producer.clone());
        }
        let producer: FutureProducer<LoggingContext> = self.properties.create_with_context(LoggingContext)?;
        Ok(made.insert(producer).clone())
    }
}

impl DeadLetterSink<KafkaRecord> for KafkaDeadLetters {
    fn destination(&self, record: &KafkaRecord) -> String {
        dead_letter::topic_for(record.topic())
    }

    fn write<'a>(&'a self, record: &'a KafkaRecord, error: &'a str, attempts: u32) -> Written<'a> {
        Box::pin(self.write_in_some_form(record, error, attempts))
    }
}
