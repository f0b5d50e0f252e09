//! What librdkafka calls back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

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
    /// The lane's name, where its delivery is worth remembering.
    pub(super) known_by: Option<u64>,
    /// When it was handed over.
    pub(super) since: Instant,
}

/// What the publisher wants to know of all its producers.
pub(super) struct Observer {
    unknown_topic: UnknownTopic,
    answer_within: Duration,
    began: Instant,
    /// When a broker last acknowledged anything, in milliseconds since `began`.
    last_success: AtomicU64,
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
    pub(super) fn new(unknown_topic: UnknownTopic, answer_within: Duration) -> Self {
        Self {
            unknown_topic,
            answer_within,
            began: Instant::now(),
            last_success: AtomicU64::new(0),
            trouble: Mutex::new(None),
            troubled: AtomicBool::new(false),
        }
    }

    /// A broker's failure as the engine wants it, of a message that was handed over at `since`.
    fn broker_failure(&self, error: &KafkaError, topic: &str, since: Instant) -> PublishError {
        let failure = self.failure_since(error, Some(topic), Some(since));
        if explain_error(error, None).cause == Cause::TooLarge {
            // It is the whole request that was too large: this message may be one of its smallest. The next attempt
            // asks the topic for its limit.
            return PublishError::transient(failure.message);
        }
        failure
    }

    /// A failure, classified, and with the reason if librdkafka gave one elsewhere.
    pub(super) fn failure(&self, error: &KafkaError, topic: Option<&str>) -> PublishError {
        self.failure_since(error, topic, None)
    }

    /// The same, of something that began at `since`.
    pub(super) fn failure_since(
        &self,
        error: &KafkaError,
        topic: Option<&str>,
        since: Option<Instant>,
    ) -> PublishError {
        let explained = explain_error(error, topic);
        let kind = match explained.cause {
            Cause::UnknownTopic if self.unknown_topic == UnknownTopic::Dead => ErrorKind::Permanent,
            cause => cause.kind(),
        };
        let mut message = explained.text;
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::MessageTimedOut) {
            message = message.replace("in time", &format!("within {:?}", self.answer_within));
        }
        if explained.cause == Cause::Away
            && let Some(trouble) = &*self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
        {
            match trouble.cause {
                // What kept the message is not that nobody answers, but what was answered.
                Cause::Authentication => message.clone_from(&trouble.text),
                _ => message = format!("{message} (librdkafka: {})", trouble.text),
            }
        }
        let of_topic = match explained.cause {
            Cause::Unavailable | Cause::UnknownTopic | Cause::Authorisation => true,
            // Nobody answered; if others were answered meanwhile, it is a matter of this topic.
            Cause::Away => since.is_some_and(|since| self.succeeded_after(since + self.answer_within / 2)),
            _ => false,
        };
        let scope = match (kind, topic) {
            (ErrorKind::Transport, Some(topic)) if of_topic => ErrorScope::Destination(topic.into()),
            (ErrorKind::Transport | ErrorKind::Throttled { .. }, _) => ErrorScope::Broker,
            _ => ErrorScope::Message,
        };
        PublishError { kind, scope, message }
    }

    /// The failure of a message that nobody answered since it was handed over.
    pub(super) fn silence(&self, topic: Option<&str>, waited: Duration) -> PublishError {
        let timed_out = KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut);
        let since = Instant::now().checked_sub(waited);
        self.failure_since(&timed_out, topic, since)
    }

    fn succeeded_after(&self, time: Instant) -> bool {
        let last = self.last_success.load(Ordering::Relaxed);
        last > 0 && self.began + Duration::from_millis(last) >= time
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

    fn all_is_well(&self) {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_success.store(now.max(1), Ordering::Relaxed);
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
            self.observer.note(code, Cause::Away, format!("{reason}{hint}"));
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
        tracing::debug!(target: "librdkafka", ?code, "{reason}");
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

    fn failed(&self, error: &KafkaError, topic: &str, partition: i32, since: Instant) -> End {
        let stuck = self.role == Role::Lanes && !self.ended.load(Ordering::Acquire);
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::PurgeQueue | RDKafkaErrorCode::PurgeInflight) if stuck => {
                // What it still held when it was replaced is what nobody answered.
                self.warmth.doubt(topic, partition);
            }
            Some(RDKafkaErrorCode::PurgeQueue | RDKafkaErrorCode::PurgeInflight) => {}
            _ => {
                // One that never leaves a message out has come to its end with the first that fails.
                if self.role == Role::Lanes {
                    self.end(&error.to_string());
                }
                self.warmth.doubt(topic, partition);
                match explain_error(error, None).cause {
                    Cause::TooLarge | Cause::UnknownTopic => self.topics.forget(topic),
                    _ => self.topics.ask_soon(topic),
                }
            }
        }
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::PurgeQueue) => End::Withdrawn,
            Some(RDKafkaErrorCode::PurgeInflight) => End::Uncertain,
            _ => End::Failed(self.observer.broker_failure(error, topic, since)),
        }
    }
}

impl ProducerContext<NoCustomPartitioner> for Callbacks {
    type DeliveryOpaque = Box<Ticket>;

    fn delivery(&self, result: &DeliveryResult<'_>, ticket: Box<Ticket>) {
        let end = match result {
            Ok(record) => {
                let (topic, partition) = (record.topic(), record.partition());
                self.observer.all_is_well();
                self.warmth.trust(topic, partition);
                if let Some(lane) = ticket.known_by {
                    let generation = (self.role == Role::Lanes).then_some(self.generation);
                    self.warmth.warmed(generation, lane, topic, partition);
                }
                End::Delivered
            }
            Err((error, record)) => self.failed(error, record.topic(), record.partition(), ticket.since),
        };
        ticket.batch.end(ticket.lane, ticket.place, end);
    }
}
