//! Where messages go.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

#[cfg(feature = "kafka")]
use posthaste_kafka::event::Format;
#[cfg(feature = "kafka")]
use posthaste_publishers::kafka::{KafkaOptions, Route, UnknownTopic};

/// Where messages go.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PublisherConfig {
    /// Which publisher. Defaults to `stdout`.
    pub kind: PublisherKind,
    /// The file to append to. Needed for, and only for, `file`.
    pub path: Option<PathBuf>,
    /// Whether each batch is forced to disk before it counts as delivered. For `file`. Defaults to true.
    pub fsync: Option<bool>,
    /// How a message becomes a record, `binary` or `structured`. For `kafka`, as all that follow. Defaults to `binary`.
    pub(super) format: Option<Format>,
    /// Rules that send messages to other topics than their own, tried in order. Defaults to none.
    pub(super) routes: Option<Vec<Route>>,
    /// A header that carries the message's id a second time. Defaults to none.
    pub(super) id_header: Option<String>,
    /// What becomes of a message whose topic is not there, `retry` or `dead`. Defaults to `retry`.
    pub(super) unknown_topic: Option<UnknownTopic>,
    /// How long a batch may go without any answer. Defaults to two thirds of `relay.publish_timeout`.
    #[serde(with = "humantime_serde")]
    pub(super) answer_within: Option<Duration>,
}

/// Which publisher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PublisherKind {
    /// One line of JSON per message on standard output.
    #[default]
    Stdout,
    /// One line of JSON per message in a file.
    File,
    /// One record per message in Kafka.
    Kafka,
}

/// Read and not looked at, so that the message can be about the program and not about a key.
#[cfg(not(feature = "kafka"))]
mod left_out {
    pub type Format = figment::value::Value;
    pub type Route = figment::value::Value;
    pub type UnknownTopic = figment::value::Value;
}
#[cfg(not(feature = "kafka"))]
use left_out::{Format, Route, UnknownTopic};

impl PublisherConfig {
    /// The fields that were given although they are for another publisher, with the publisher that they are for.
    pub(super) fn misplaced(&self) -> Option<(&'static str, &'static str)> {
        let file = self.kind == PublisherKind::File;
        let kafka = self.kind == PublisherKind::Kafka;
        let given = [
            ("path", "file", file, self.path.is_some()),
            ("fsync", "file", file, self.fsync.is_some()),
            ("format", "kafka", kafka, self.format.is_some()),
            ("routes", "kafka", kafka, self.routes.is_some()),
            ("id_header", "kafka", kafka, self.id_header.is_some()),
            ("unknown_topic", "kafka", kafka, self.unknown_topic.is_some()),
            ("answer_within", "kafka", kafka, self.answer_within.is_some()),
        ];
        let misplaced = given.into_iter().find(|(_, _, fits, given)| *given && !fits);
        misplaced.map(|(field, kind, ..)| (field, kind))
    }

    /// The Kafka publisher's options. `publish_timeout` is how long the relay waits for any answer.
    #[cfg(feature = "kafka")]
    pub(super) fn kafka(&self, connection: posthaste_kafka::Connection, publish_timeout: Duration) -> KafkaOptions {
        let defaults = KafkaOptions::new(connection);
        KafkaOptions {
            format: self.format.unwrap_or(defaults.format),
            routes: self.routes.clone().unwrap_or_default(),
            id_header: self.id_header.clone(),
            unknown_topic: self.unknown_topic.unwrap_or_default(),
            answer_within: self.answer_within.unwrap_or(publish_timeout * 2 / 3),
            ..defaults
        }
    }
}
