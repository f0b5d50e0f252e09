//! Whether settings can work.

use posthaste_kafka::InvalidConnection;
use thiserror::Error;

use super::settings::ConsumerConfig;

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

/// Names the setting that is not good.
pub(crate) fn check(good: bool, field: &str, value: impl std::fmt::Debug, remedy: &str) -> Result<(), InvalidConfig> {
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
    /// Checks the settings that hold for every source.
    pub(crate) fn check_handling(&self) -> Result<(), InvalidConfig> {
        check(
            !self.group.trim().is_empty(),
            "group",
            &self.group,
            "name the consumer group, usually after the service",
        )?;
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
