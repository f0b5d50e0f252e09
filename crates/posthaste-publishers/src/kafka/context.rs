//! What librdkafka calls back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use posthaste_core::publisher::{ErrorKind, ErrorScope, PublishError};
use posthaste_kafka::error::{Cause, explain, explain_error};
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::producer::{DeliveryResult, NoCustomPartitioner, ProducerContext};

use super::batch::{End, Ongoing};
use super::options::UnknownTopic;
use super::producer::Role;
use super::topics::Topics;
use super::warmth::Warmth;

/// What a message carries through librdkafka.
pub(super) struct Ticket {
    pub(super) batch: Arc<Ongoing>,
    pub(super) lane: usize,
    pub(super) place: usize,
    /// The lane, where its first delivery is worth remembering.
    pub(super) warms: Option<u64>,
}

/// What the publisher wants to know of all its producers.
pub(super) struct Observer {
    pub(super) unknown_topic: UnknownTopic,
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
    pub(super) fn new(unknown_topic: UnknownTopic) -> Self {
        Self {
            unknown_topic,
            trouble: Mutex::new(None),
            troubled: AtomicBool::new(false),
        }
    }

    /// A broker's failure as the engine wants it.
    pub(super) fn broker_failure(&self, error: &KafkaError, topic: &str) -> PublishError {
        let failure = self.failure(error, Some(topic));
        if explain_error(error, None).cause == Cause::TooLarge {
            // It is the whole request that was too large: this message may be one of its smallest. The next attempt
            // asks the topic for its limit.
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
        if explained.cause == Cause::Away
            && let Some(trouble) = &*self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
        {
            match trouble.cause {
                // What kept the message is not that nobody answers, but what was answered.
                Cause::Authentication => message.clone_from(&trouble.text),
                _ => message = format!("{message} (librdkafka: {})", trouble.text),
            }
        }
        let scope = match kind {
            ErrorKind::Transport => ErrorScope::Broker,
            _ => ErrorScope::Message,
        };
        PublishError { kind, scope, message }
    }

    /// The failure of messages that nobody answered.
    pub(super) fn silence(&self, waited: Duration) -> PublishError {
        let timed_out = KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut);
        let failure = self.failure(&timed_out, None);
        PublishError {
            message: failure.message.replace("in time", &format!("within {waited:?}")),
            ..failure
        }
    }

    fn note(&self, code: RDKafkaErrorCode, cause: Cause, text: String) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        // "All brokers are down" follows every reason, and must not hide it; nor must a connection that then breaks
        // off.
        let hides = match &*trouble {
            None => false,
            Some(_) if code == RDKafkaErrorCode::AllBrokersDown => true,
            Some(known) => known.cause == Cause::Authentication && cause == Cause::Away,
        };
        if !hides {
            *trouble = Some(Trouble { cause, text });
            self.troubled.store(true, Ordering::Relaxed);
        }
    }

    pub(super) fn all_is_well(&self) {
        if self.troubled.swap(false, Ordering::Relaxed) {
            *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

/// For clients that only ask.
pub(super) struct Asking;

impl ClientContext for Asking {
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
    pub(super) warmth: Arc<Warmth>,
    pub(super) topics: Arc<Topics>,
    pub(super) generation: u64,
    pub(super) role: Role,
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
            self.observer.note(code, Cause::Away, format!("{reason}{hint}"));
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
        tracing::debug!(target: "librdkafka", ?code, "{reason}");
        if code == RDKafkaErrorCode::Fatal {
            (self.on_end)(reason);
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

impl ProducerContext<NoCustomPartitioner> for Callbacks {
    type DeliveryOpaque = Box<Ticket>;

    fn delivery(&self, result: &DeliveryResult<'_>, ticket: Box<Ticket>) {
        let end = match result {
            Ok(record) => {
                self.observer.all_is_well();
                self.warmth.trust(record.topic());
                if let Some(lane) = ticket.warms {
                    self.warmth
                        .warmed(self.generation, lane, record.topic(), record.partition());
                }
                End::Delivered
            }
            Err((error, record)) => match error.rdkafka_error_code() {
                Some(RDKafkaErrorCode::PurgeQueue) => End::Withdrawn,
                Some(RDKafkaErrorCode::PurgeInflight) => End::Uncertain,
                _ => {
                    // One that never leaves a message out has come to its end with the first that fails.
                    if self.role == Role::Lanes {
                        (self.on_end)(&error.to_string());
                    }
                    self.warmth.doubt(record.topic());
                    self.topics.forget(record.topic());
                    End::Failed(self.observer.broker_failure(error, record.topic()))
                }
            },
        };
        ticket.batch.end(ticket.lane, ticket.place, end);
    }
}
