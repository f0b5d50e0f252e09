//! What librdkafka calls back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use posthaste_core::publisher::{ErrorKind, ErrorScope, PublishError};
use posthaste_core::readable::Readable;
use posthaste_kafka::error::{Cause, explain, explain_error};
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::producer::{DeliveryResult, NoCustomPartitioner, ProducerContext};

use super::acks::AckTracker;
use super::batch::End;
use super::in_flight::{InFlight, slot_of};
use super::options::UnknownTopic;
use super::role::Role;
use super::topics::Topics;

/// What the publisher wants to know of all its producers.
pub(super) struct Observer {
    unknown_topic: UnknownTopic,
    answer_within: Duration,
    topics: Arc<Topics>,
    acks: Arc<AckTracker>,
    /// Whether no broker could be reached, and none has answered since.
    all_down: AtomicBool,
    /// The latest that librdkafka said of its connections: why they fail stands here, and not in the delivery reports.
    trouble: Mutex<Option<Trouble>>,
    /// Whether there is any, so that a success need not take the lock to find out.
    troubled: AtomicBool,
}

struct Trouble {
    cause: Cause,
    text: String,
}

impl Observer {
    pub(super) fn new(
        unknown_topic: UnknownTopic,
        answer_within: Duration,
        topics: &Arc<Topics>,
        acks: &Arc<AckTracker>,
    ) -> Self {
        Self {
            unknown_topic,
            answer_within,
            topics: Arc::clone(topics),
            acks: Arc::clone(acks),
            all_down: AtomicBool::new(false),
            trouble: Mutex::new(None),
            troubled: AtomicBool::new(false),
        }
    }

    /// A broker's failure as the engine wants it.
    fn broker_failure(&self, error: &KafkaError, topic: &str) -> PublishError {
        let failure = self.failure(error, Some(topic));
        if explain_error(error, None).cause == Cause::TooLarge {
            // The topic takes less than what is known of it. The next attempt asks for its limit.
            return PublishError::transient(failure.message);
        }
        failure
    }

    /// A failure, classified, and with the reason if librdkafka gave one elsewhere.
    pub(super) fn failure(&self, error: &KafkaError, topic: Option<&str>) -> PublishError {
        let explained = explain_error(error, topic);
        let kind = match explained.cause {
            Cause::UnknownTopic if self.unknown_topic == UnknownTopic::Dead => ErrorKind::Permanent,
            cause => cause.kind(),
        };
        let mut message = explained.text;
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::MessageTimedOut) {
            message = message.replace("in time", &format!("within {}", Readable(self.answer_within)));
        }
        if explained.cause == Cause::BrokerUnavailable
            && let Some(trouble) = &*self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
        {
            match trouble.cause {
                // What kept the message is not a missing answer, but what was answered.
                Cause::Authentication => message.clone_from(&trouble.text),
                _ => message = format!("{message} (librdkafka: {})", trouble.text),
            }
        }
        let scope = match (kind, topic) {
            (ErrorKind::Transport, Some(topic)) => self.reach(explained.cause, topic),
            (ErrorKind::Transport | ErrorKind::Throttled { .. }, _) => ErrorScope::Broker,
            _ => ErrorScope::Message,
        };
        PublishError::new(kind, scope, message).caused_by(error.clone())
    }

    /// The failure of a message without an answer.
    pub(super) fn silence(&self, topic: Option<&str>) -> PublishError {
        self.failure(&KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut), topic)
    }

    /// What else would fail the same way: everything if no broker can be reached, the topic if none of its partitions
    /// answers, and otherwise what goes to the same partition.
    fn reach(&self, cause: Cause, topic: &str) -> ErrorScope {
        match cause {
            Cause::UnknownTopic | Cause::Authorisation => ErrorScope::Destination(topic.into()),
            Cause::BrokerUnavailable if self.all_down.load(Ordering::Relaxed) => ErrorScope::Broker,
            Cause::PartitionUnavailable | Cause::BrokerUnavailable => {
                let partitions = self.topics.facts(topic).map_or(0, |facts| facts.partitions);
                if self.acks.doubted(topic) < partitions {
                    ErrorScope::Partition(topic.into())
                } else {
                    ErrorScope::Destination(topic.into())
                }
            }
            _ => ErrorScope::Broker,
        }
    }

    /// A broker answered, whatever it was asked.
    pub(super) fn answered(&self) {
        if self.all_down.load(Ordering::Relaxed) {
            self.all_down.store(false, Ordering::Relaxed);
        }
    }

    fn note(&self, code: RDKafkaErrorCode, cause: Cause, text: String) {
        if code == RDKafkaErrorCode::AllBrokersDown {
            self.all_down.store(true, Ordering::Relaxed);
        }
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        // "All brokers are down" follows every reason, and must not hide it; nor must a connection that then breaks
        // off.
        let hides = match &*trouble {
            None => false,
            Some(_) if code == RDKafkaErrorCode::AllBrokersDown => true,
            Some(known) => known.cause == Cause::Authentication && cause == Cause::BrokerUnavailable,
        };
        if !hides {
            *trouble = Some(Trouble { cause, text });
            self.troubled.store(true, Ordering::Relaxed);
        }
    }

    fn succeeded(&self) {
        self.answered();
        if self.troubled.load(Ordering::Relaxed) && self.troubled.swap(false, Ordering::Relaxed) {
            *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

/// For clients that only ask.
pub(super) struct LoggingContext;

impl ClientContext for LoggingContext {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(target: "librdkafka", "{facility}: {message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "librdkafka", %error, "{reason}");
    }
}

/// The callbacks of one producer.
pub(super) struct Callbacks {
    pub(super) observer: Arc<Observer>,
    pub(super) acks: Arc<AckTracker>,
    pub(super) topics: Arc<Topics>,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) generation: u64,
    pub(super) role: Role,
    /// Most bytes of a request with several messages.
    pub(super) batch_bytes: usize,
    /// Whether it has come to its end.
    pub(super) ended: AtomicBool,
    /// Called when the producer has come to its end.
    pub(super) on_end: Box<dyn Fn(&str) + Send + Sync>,
}

impl ClientContext for Callbacks {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(target: "librdkafka", "{facility}: {message}");
        // A connection that is closed on us is no error to librdkafka; its guess at the reason stands in the log only.
        if facility == "FAIL" {
            let reason = message.split_once("]: ").map_or(message, |(_, reason)| reason);
            let hint = if reason.contains("APIVERSION") {
                "; check that the port is Kafka's and that security.protocol is what its listener expects"
            } else {
                ""
            };
            let code = RDKafkaErrorCode::BrokerTransportFailure;
            self.observer
                .note(code, Cause::BrokerUnavailable, format!("{reason}{hint}"));
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
        tracing::debug!(target: "librdkafka", code = code as i32, "{reason}");
        if code == RDKafkaErrorCode::Fatal {
            self.end(reason);
            return;
        }
        let explained = explain(code, None);
        match explained.cause {
            Cause::Authentication => self.observer.note(
                code,
                explained.cause,
                format!("{} (librdkafka: {reason})", explained.text),
            ),
            cause => self.observer.note(code, cause, reason.to_owned()),
        }
    }
}

impl Callbacks {
    fn end(&self, reason: &str) {
        self.ended.store(true, Ordering::Release);
        (self.on_end)(reason);
    }

    fn failed(&self, error: &KafkaError, topic: &str, partition: i32, bytes: usize) -> End {
        let cause = explain_error(error, None).cause;
        let stuck = self.role == Role::Lanes && !self.ended.load(Ordering::Acquire);
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::PurgeQueue | RDKafkaErrorCode::PurgeInflight) if stuck => {
                // What it still held when it was replaced is what was not answered.
                self.acks.mark_suspect(topic, partition);
                self.topics.ask_soon(topic);
            }
            Some(RDKafkaErrorCode::PurgeQueue | RDKafkaErrorCode::PurgeInflight) => {}
            _ => {
                // One that never leaves a message out has come to its end with the first that fails.
                if self.role == Role::Lanes {
                    self.end(&error.to_string());
                }
                self.acks.mark_suspect(topic, partition);
                match cause {
                    Cause::TooLarge | Cause::UnknownTopic => self.topics.forget(topic),
                    _ => self.topics.ask_soon(topic),
                }
            }
        }
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::PurgeQueue) => End::Withdrawn,
            Some(RDKafkaErrorCode::PurgeInflight) => End::Uncertain,
            // Above it a message is always alone.
            _ if cause == Cause::TooLarge && bytes <= self.batch_bytes => {
                self.request_refused(topic);
                End::RefusedWithOthers
            }
            _ => End::failed(self.observer.broker_failure(error, topic)),
        }
    }

    /// A request of several messages was too large: the next ones are smaller, down to one message in each.
    fn request_refused(&self, topic: &str) {
        if let Some(bytes) = self.topics.refused(topic, self.batch_bytes) {
            tracing::warn!(
                "Kafka topic {topic}: a request of several messages is above its max.message.bytes; requests are kept \
                 below {bytes} bytes, unless DescribeConfigs on {topic} is granted and tells its limit"
            );
        }
    }
}

impl ProducerContext<NoCustomPartitioner> for Callbacks {
    /// See [`super::in_flight::tag`].
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, tag: usize) {
        let Some((batch, position, remembered)) = self.in_flight.find(tag) else {
            return;
        };
        let end = match result {
            Ok(record) => {
                self.observer.succeeded();
                if self.acks.has_suspects() {
                    self.acks.clear_suspect(record.topic(), record.partition());
                }
                if let Some(lane) = remembered.then(|| batch.facts(position).1).flatten() {
                    let generation = (self.role == Role::Lanes).then_some(self.generation);
                    self.acks.warmed(generation, lane, record.topic(), record.partition());
                }
                End::Delivered
            }
            Err((error, record)) => {
                let (bytes, _) = batch.facts(position);
                self.failed(error, record.topic(), record.partition(), bytes)
            }
        };
        if batch.answered(position, end) {
            self.in_flight.leave(slot_of(tag));
        }
    }
}
