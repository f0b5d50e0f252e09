//! Whether settings can work.

use std::time::Duration;

use posthaste_kafka::{InvalidConnection, dead_letter};
use thiserror::Error;

use super::ConsumerConfig;

/// A setting that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field} = {value}: {remedy}")]
pub struct InvalidConfig {
    /// The field, with dots.
    pub field: String,
    /// The value that was given, unless it is a secret.
    pub value: String,
    /// What to give instead.
    pub remedy: String,
}

impl From<InvalidConnection> for InvalidConfig {
    fn from(invalid: InvalidConnection) -> Self {
        Self {
            field: format!("connection.{}", invalid.field),
            value: invalid.value,
            remedy: invalid.remedy,
        }
    }
}

fn check(good: bool, field: &str, value: impl std::fmt::Debug, remedy: &str) -> Result<(), InvalidConfig> {
    if good {
        return Ok(());
    }
    Err(InvalidConfig {
        field: field.to_owned(),
        value: format!("{value:?}"),
        remedy: remedy.to_owned(),
    })
}

impl ConsumerConfig {
    /// Checks that the settings can work together.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        self.check_subscription()?;
        self.check_sizes()?;
        // The properties have the last word, so they are what is checked.
        let effective = self.consumer_properties()?;
        let millis = |name: &str| {
            let value = effective.get(name).and_then(|value| value.parse().ok());
            value.map(Duration::from_millis).unwrap_or_default()
        };
        let (session, heartbeat) = (millis("session.timeout.ms"), millis("heartbeat.interval.ms"));
        check(
            heartbeat <= session / 3 && !heartbeat.is_zero(),
            "heartbeat_interval",
            heartbeat,
            "must be above 0 and at most a third of session_timeout, so that two lost heartbeats are not the end",
        )?;
        let poll = millis("max.poll.interval.ms");
        check(
            poll >= session,
            "max_poll_interval",
            poll,
            "must be at least session_timeout; librdkafka refuses less",
        )?;
        check(
            self.revoke_grace <= poll / 2,
            "revoke_grace",
            self.revoke_grace,
            "must be at most half of max_poll_interval, or the group goes on without this consumer",
        )
    }

    fn check_subscription(&self) -> Result<(), InvalidConfig> {
        check(
            !self.group.trim().is_empty(),
            "group",
            &self.group,
            "name the consumer group, usually after the service",
        )?;
        check(
            !self.topics.is_empty(),
            "topics",
            &self.topics,
            "name at least one topic, such as [\"order-events\"]",
        )?;
        let good = |topic: &&String| !topic.trim().is_empty() && !topic.starts_with('^');
        check(
            self.topics.iter().all(|topic| good(&topic)),
            "topics",
            &self.topics,
            "name each topic in full; patterns are not understood, because each topic needs its dead-letter topic",
        )?;
        check(
            !self.topics.iter().any(|topic| dead_letter::origin_of(topic).is_some()),
            "topics",
            &self.topics,
            "leave dead-letter topics out; bring their events back with `posthaste dlq replay`",
        )
    }

    fn check_sizes(&self) -> Result<(), InvalidConfig> {
        let positive = [
            ("max_poll_records", u64::from(self.max_poll_records)),
            ("queue_size", u64::from(self.queue_size)),
            ("retry.max_attempts", u64::from(self.retry.max_attempts)),
        ];
        for (field, value) in positive {
            check(value > 0, field, value, "must be at least 1")?;
        }
        check(
            self.prefetch_bytes >= 1024,
            "prefetch_bytes",
            self.prefetch_bytes,
            "must be at least 1024",
        )?;
        for (field, value) in [
            ("inbox_retention", self.inbox_retention),
            ("janitor_interval", self.janitor_interval),
            ("handler_timeout", self.handler_timeout),
            ("inbox_timeout", self.inbox_timeout),
        ] {
            check(!value.is_zero(), field, value, "must be above 0")?;
        }
        Ok(())
    }
}
