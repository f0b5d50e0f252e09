//! Where messages go.

use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "kafka")]
use posthaste_kafka::event::Format;
#[cfg(feature = "kafka")]
use posthaste_publishers::kafka::{KafkaOptions, RecordTimestamp, Route, UnknownTopic};
use posthaste_publishers::webhook::{Field, Style};
use posthaste_publishers::{LogLevel, LogOptions, WebhookOptions, WebhookUrl};
use serde::Deserialize;

/// Where messages go.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PublisherConfig {
    /// Which publisher. Defaults to `stdout` for the database that nobody named; see [`super::Config::publisher_kind`].
    pub(super) kind: Option<PublisherKind>,
    /// The file to append to. Needed for, and only for, `file`.
    pub path: Option<PathBuf>,
    /// Whether each batch is forced to disk before it counts as delivered. For `file`. Defaults to true.
    pub fsync: Option<bool>,
    /// The level of log events. For `log`. Defaults to `info`.
    pub(super) level: Option<LogLevel>,
    /// How many characters of a payload are logged. For `log`. Defaults to 4096.
    pub(super) payload_limit: Option<usize>,
    /// Where to post. Whoever knows it may post there, so it is best kept in the environment. Needed for, and only for,
    /// `webhook`.
    pub(super) url: Option<WebhookUrl>,
    /// How a notification looks, `embed` or `text`. For `webhook`. Defaults to `embed`.
    pub(super) style: Option<Style>,
    /// The name under which notifications appear. For `webhook`. Defaults to the webhook's own.
    pub(super) username: Option<String>,
    /// The headline of a notification, a template. For `webhook`. Defaults to the event's type.
    pub(super) title: Option<String>,
    /// The text of a notification, a template. For `webhook`. Defaults to the payload.
    pub(super) text: Option<String>,
    /// Values shown below the text. For `webhook`. Defaults to none.
    pub(super) fields: Option<Vec<Field>>,
    /// How many notifications are on their way at a time. For `webhook`. Defaults to 4.
    pub(super) concurrency: Option<usize>,
    /// How long the broker or the receiver may go without any answer. For `kafka` and `webhook`. Defaults to two thirds
    /// of `relay.publish_timeout`.
    #[serde(with = "humantime_serde")]
    pub(super) answer_within: Option<Duration>,
    /// How a message becomes a record, `binary` or `structured`. For `kafka`, as all that follow. Defaults to `binary`.
    pub(super) format: Option<Format>,
    /// Rules that send messages to other topics than their own, tried in order. Defaults to none.
    pub(super) routes: Option<Vec<Route>>,
    /// A header that carries the message's id a second time. Defaults to none.
    pub(super) id_header: Option<String>,
    /// What becomes of a message whose topic is not there, `retry` or `dead`. Defaults to `retry`.
    pub(super) unknown_topic: Option<UnknownTopic>,
    /// What stands in a record's timestamp, `published` or `enqueued`. Defaults to `published`.
    pub(super) timestamp: Option<RecordTimestamp>,
}

/// Which publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PublisherKind {
    /// One line of JSON per message on standard output.
    Stdout,
    /// One line of JSON per message in a file.
    File,
    /// One log event per message.
    Log,
    /// One record per message in Kafka.
    Kafka,
    /// One notification per message to a webhook.
    Webhook,
}

impl PublisherKind {
    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::File => "file",
            Self::Log => "log",
            Self::Kafka => "kafka",
            Self::Webhook => "webhook",
        }
    }
}

/// Read and not looked at, so that the message can be about the program and not about a key.
#[cfg(not(feature = "kafka"))]
mod left_out {
    pub type Format = figment::value::Value;
    pub type Route = figment::value::Value;
    pub type UnknownTopic = figment::value::Value;
    pub type RecordTimestamp = figment::value::Value;
}
#[cfg(not(feature = "kafka"))]
use left_out::{Format, RecordTimestamp, Route, UnknownTopic};

impl PublisherConfig {
    /// What to say of a field that was given although it is for another publisher, and the field.
    pub(super) fn misplaced(&self) -> Option<(&'static str, String)> {
        use PublisherKind::{File, Kafka, Log, Webhook};
        let given: [(_, &[PublisherKind], _); 17] = [
            ("path", &[File], self.path.is_some()),
            ("fsync", &[File], self.fsync.is_some()),
            ("level", &[Log], self.level.is_some()),
            ("payload_limit", &[Log], self.payload_limit.is_some()),
            ("url", &[Webhook], self.url.is_some()),
            ("style", &[Webhook], self.style.is_some()),
            ("username", &[Webhook], self.username.is_some()),
            ("title", &[Webhook], self.title.is_some()),
            ("text", &[Webhook], self.text.is_some()),
            ("fields", &[Webhook], self.fields.is_some()),
            ("concurrency", &[Webhook], self.concurrency.is_some()),
            ("answer_within", &[Kafka, Webhook], self.answer_within.is_some()),
            ("format", &[Kafka], self.format.is_some()),
            ("routes", &[Kafka], self.routes.is_some()),
            ("id_header", &[Kafka], self.id_header.is_some()),
            ("unknown_topic", &[Kafka], self.unknown_topic.is_some()),
            ("timestamp", &[Kafka], self.timestamp.is_some()),
        ];
        let (field, kinds, _) = given
            .into_iter()
            .find(|(_, kinds, given)| *given && self.kind.is_none_or(|kind| !kinds.contains(&kind)))?;
        let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
        let (names, first) = (names.join(" and "), names[0]);
        let s = if kinds.len() == 1 { "" } else { "s" };
        let reason = format!("is for the {names} publisher{s}; set publisher.kind = {first:?}, or leave it out");
        Some((field, reason))
    }

    /// How long to wait for an answer, if the relay waits for `publish_timeout`.
    fn patience(&self, publish_timeout: Duration) -> Duration {
        self.answer_within.unwrap_or(publish_timeout * 2 / 3)
    }

    /// The log publisher's options.
    pub fn log(&self) -> LogOptions {
        let defaults = LogOptions::default();
        LogOptions {
            level: self.level.unwrap_or(defaults.level),
            payload_limit: self.payload_limit.unwrap_or(defaults.payload_limit),
        }
    }

    /// The webhook publisher's options, if it has an address. `publish_timeout` is how long the relay waits for any
    /// answer.
    pub fn webhook(&self, publish_timeout: Duration) -> Option<WebhookOptions> {
        let defaults = WebhookOptions::new(self.url.clone()?);
        Some(WebhookOptions {
            style: self.style.unwrap_or(defaults.style),
            username: self.username.clone(),
            title: self.title.clone().unwrap_or(defaults.title),
            text: self.text.clone().unwrap_or(defaults.text),
            fields: self.fields.clone().unwrap_or_default(),
            concurrency: self.concurrency.unwrap_or(defaults.concurrency),
            answer_within: self.patience(publish_timeout),
            ..defaults
        })
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
            timestamp: self.timestamp.unwrap_or_default(),
            answer_within: self.patience(publish_timeout),
            ..defaults
        }
    }
}
