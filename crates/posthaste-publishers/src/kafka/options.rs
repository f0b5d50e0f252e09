//! The Kafka publisher's settings.

use std::time::Duration;

use posthaste_kafka::connection::MESSAGE_MAX_BYTES;
use posthaste_kafka::event::Format;
use posthaste_kafka::{Connection, InvalidConnection};
use rdkafka::ClientConfig;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::options::{InvalidOption, PublisherContext};
use crate::routing::Route;

/// Which cluster, and how messages become records.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct KafkaOptions {
    /// The cluster. Its properties override [`DEFAULTS`](Self::DEFAULTS). Defaults to that of the settings around it.
    pub connection: Connection,
    /// How a message becomes a record. Defaults to binary mode.
    pub format: Format,
    /// Rules that send messages to other topics than their own, tried in order. Defaults to none.
    pub routes: Vec<Route>,
    /// A header that carries the message's id a second time, for consumers that do not look at `ce_id`. Defaults to
    /// none.
    pub id_header: Option<String>,
    /// What becomes of a message whose topic is not there. Defaults to `retry`.
    pub unknown_topic: UnknownTopic,
    /// What stands in a record's timestamp. Defaults to the time of its publication.
    pub timestamp: RecordTimestamp,
    /// How long a message, or the next of several with one key, may go without an answer before it is taken back and
    /// reported as failed. Keep it below the relay's `publish_timeout`, which only knows that the publisher is silent and
    /// not why. A shorter `delivery.timeout.ms` counts for messages that are alone with their key. Defaults to 20 s,
    /// and in a configuration file to two thirds of the relay's `publish_timeout`.
    #[serde(with = "humantime_serde")]
    pub answer_within: Option<Duration>,
}

/// What stands in a record's timestamp, by which Kafka deletes records that are older than the topic's retention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordTimestamp {
    /// When it was published: an event that comes late is kept as long as any other one. When it was enqueued stands in
    /// `ce_time`.
    #[default]
    Published,
    /// When it was enqueued. An event that is older than the topic's retention by the time that it is published is deleted
    /// unread.
    Enqueued,
}

/// What becomes of a message whose topic is not there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnknownTopic {
    /// It is tried again, until the topic is created.
    #[default]
    Retry,
    /// It is given up at once.
    Dead,
}

/// A setting of the publisher that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidKafkaOptions {
    /// In the connection.
    #[error("{0}")]
    Connection(#[from] InvalidConnection),
    /// Elsewhere.
    #[error("{field} = {value}: {remedy}")]
    Field {
        /// The field, with dots and, for routes, the place in the list from 0.
        field: String,
        /// The value that was given.
        value: String,
        /// What to give instead.
        remedy: String,
    },
}

/// Properties that the publisher is built on.
const OWNED: [(&str, &str); 3] = [
    (
        "transactional.id",
        "the publisher does not use transactions; leave it out",
    ),
    (
        "delivery.report.only.error",
        "without delivery reports no message would ever count as delivered; leave it out",
    ),
    (
        "enable.gapless.guarantee",
        "the publisher sets it itself where order needs it; leave it out",
    ),
];

const DEFAULT_ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// How long a message may wait for its acknowledgement unless `delivery.timeout.ms` says otherwise.
const DELIVERY_TIMEOUT: Duration = Duration::from_mins(2);

impl KafkaOptions {
    /// The producer's settings unless the connection's properties say otherwise.
    pub const DEFAULTS: [(&'static str, &'static str); 11] = [
        ("acks", "all"),
        ("enable.idempotence", "true"),
        ("retries", "3"),
        ("retry.backoff.ms", "1000"),
        ("delivery.timeout.ms", "120000"),
        ("request.timeout.ms", "30000"),
        ("max.in.flight.requests.per.connection", "5"),
        // Batches arrive whole, so there is little to wait for; with less, small requests fill the five that a slow link
        // may have under way.
        ("linger.ms", "2"),
        // As the Java client does, so that equal keys of both meet in one partition.
        ("partitioner", "murmur2_random"),
        ("message.max.bytes", MESSAGE_MAX_BYTES),
        // A broker that comes back is noticed soon.
        ("reconnect.backoff.max.ms", "2000"),
    ];

    /// The cluster of `connection`, with the defaults.
    pub fn new(connection: Connection) -> Self {
        Self {
            connection,
            ..Self::default()
        }
    }

    /// How a message becomes a record.
    #[must_use]
    pub fn format(mut self, format: Format) -> Self {
        self.format = format;
        self
    }

    /// One more rule that sends messages to other topics than their own.
    #[must_use]
    pub fn route(mut self, route: Route) -> Self {
        self.routes.push(route);
        self
    }

    /// How long a message may go without an answer.
    #[must_use]
    pub fn answer_within(mut self, answer_within: Duration) -> Self {
        self.answer_within = Some(answer_within);
        self
    }

    pub(super) fn effective_answer_within(&self) -> Duration {
        self.answer_within.unwrap_or(DEFAULT_ANSWER_WITHIN)
    }

    /// The same, with what the settings around it say.
    pub(super) fn within(mut self, context: &PublisherContext) -> Result<Self, InvalidOption> {
        if self.connection.brokers.is_empty() {
            self.connection = context.kafka.clone();
        }
        self.answer_within = Some(context.answer_within(self.answer_within)?);
        Ok(self)
    }

    /// Checks the settings, as far as that is possible without a connection, and returns those of the client library.
    pub fn client_config(&self) -> Result<ClientConfig, InvalidKafkaOptions> {
        self.connection.refuse(&OWNED)?;
        let config = self.connection.client_config(&Self::DEFAULTS)?;
        for (place, route) in self.routes.iter().enumerate() {
            route.check(place)?;
        }
        let refuse = |field: &str, value: String, remedy: &str| {
            Err(InvalidKafkaOptions::Field {
                field: field.to_owned(),
                value,
                remedy: remedy.to_owned(),
            })
        };
        if self.effective_answer_within().is_zero() {
            return refuse("answer_within", "0s".to_owned(), "must be above 0");
        }
        match &self.id_header {
            Some(name) if name.is_empty() || name.starts_with("ce_") || name.eq_ignore_ascii_case("content-type") => {
                refuse(
                    "id_header",
                    format!("{name:?}"),
                    "is empty or taken by the envelope; choose a name such as \"messageId\", or leave it out",
                )
            }
            _ => Ok(config),
        }
    }

    /// How long a message may wait for its acknowledgement.
    pub(super) fn delivery_timeout(config: &ClientConfig) -> Duration {
        match config.get("delivery.timeout.ms").and_then(|text| text.parse().ok()) {
            // Zero is "forever" to librdkafka.
            Some(0) => Duration::from_hours(24 * 365),
            Some(millis) => Duration::from_millis(millis),
            None => DELIVERY_TIMEOUT,
        }
    }
}

impl From<InvalidKafkaOptions> for InvalidOption {
    fn from(invalid: InvalidKafkaOptions) -> Self {
        match invalid {
            InvalidKafkaOptions::Connection(invalid) => {
                Self::new(format!("connection.{}", invalid.field), invalid.value, invalid.remedy)
            }
            InvalidKafkaOptions::Field { field, value, remedy } => Self::new(field, value, remedy),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(properties: &[(&str, &str)]) -> KafkaOptions {
        let connection = Connection::to("127.0.0.1:9092");
        KafkaOptions::new(
            properties
                .iter()
                .fold(connection, |to, (name, value)| to.property(*name, *value)),
        )
    }

    /// Proves C11.
    #[test]
    fn the_producer_is_safe_by_default_and_each_setting_can_be_overridden() {
        let defaults = [
            ("acks", "-1"),
            ("enable.idempotence", "true"),
            ("retries", "3"),
            ("retry.backoff.ms", "1000"),
            ("delivery.timeout.ms", "120000"),
            ("request.timeout.ms", "30000"),
            ("max.in.flight.requests.per.connection", "5"),
            ("linger.ms", "2"),
        ];
        let effective = |options: &KafkaOptions, name: &str| {
            let native = options.client_config().unwrap().create_native_config().unwrap();
            native.get(name).unwrap()
        };
        for (name, value) in defaults {
            assert_eq!(effective(&options(&[]), name), value, "{name}");
        }
        let overridden = [
            ("acks", "1"),
            ("enable.idempotence", "false"),
            ("retries", "7"),
            ("retry.backoff.ms", "70"),
            ("delivery.timeout.ms", "70000"),
            ("request.timeout.ms", "7000"),
            ("max.in.flight.requests.per.connection", "2"),
            ("linger.ms", "7"),
        ];
        for (name, value) in overridden {
            assert_eq!(effective(&options(&[(name, value)]), name), value, "{name}");
        }
        let all = options(&overridden);
        assert!(super::super::KafkaPublisher::new(all).is_ok());
    }

    #[test]
    fn what_cannot_work_is_refused_by_field() {
        let refused = |options: KafkaOptions| super::super::KafkaPublisher::new(options).unwrap_err().to_string();
        for (name, value) in [
            ("transactional.id", "x"),
            ("delivery.report.only.error", "true"),
            ("enable.gapless.guarantee", "true"),
        ] {
            assert!(refused(options(&[(name, value)])).starts_with(&format!("properties.{name} = ")));
        }
        let together = refused(options(&[("acks", "1")]));
        assert!(together.contains("`acks` must be set to `all`"), "{together}");
        let mut taken = options(&[]);
        taken.id_header = Some("ce_id".to_owned());
        assert!(refused(taken).starts_with("id_header = \"ce_id\""));
        let mut routed = options(&[]);
        routed.routes = vec![Route {
            to: "a b".to_owned(),
            ..Route::default()
        }];
        assert!(refused(routed).starts_with("routes.0.to = \"a b\""));
    }
}
