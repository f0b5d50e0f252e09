//! The relay's settings.

use std::collections::BTreeMap;
use std::time::Duration;

use posthaste_core::breaker::InvalidBreaker;
use posthaste_core::store::{DeadHead, Ordering, Scope};
use posthaste_core::{BreakerConfig, RetryPolicy};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// How a relay works. Every field has a default that suits most outboxes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RelayConfig {
    /// Which messages this relay serves. Defaults to all of the namespace `default`.
    pub scope: Scope,
    /// Order and its policies.
    pub ordering: OrderingConfig,
    /// Attempts and the waits between them.
    pub retry: RetryPolicy,
    /// When the broker counts as away, and how it is tried again.
    pub breaker: BreakerConfig,
    /// Whether only one relay of the namespace is active at a time, however many are running; the others stand by.
    /// Without it they share the work. Defaults to false.
    pub exclusive: bool,
    /// How long the active relay may be silent before another one takes over, where only one is active. One that stops
    /// cleanly is followed at once. Defaults to 30 s.
    #[serde(with = "humantime_serde")]
    pub exclusive_lease: Duration,
    /// Most rows of one claim. Larger is faster; what is claimed is at risk of being sent twice if the process dies.
    /// Defaults to 500.
    pub batch_size: u32,
    /// Most messages claimed and not yet settled. The next batch is claimed while this one is in flight as long as a
    /// whole batch has room. Defaults to 2,000.
    pub max_in_flight: u32,
    /// Most payload bytes claimed and not yet settled. Bounds the relay's memory. Defaults to 32 MiB.
    pub max_in_flight_bytes: u64,
    /// How long a claim holds without renewal. A crashed relay's messages wait this long; a live relay renews in time.
    /// Defaults to 30 s.
    #[serde(with = "humantime_serde")]
    pub lease: Duration,
    /// Wait between claims that found work but less than a batch. At most a third of `lease`. Defaults to 100 ms.
    #[serde(with = "humantime_serde")]
    pub poll_interval: Duration,
    /// Longest wait between claims of an idle outbox; `poll_interval` doubles up to it. At most a third of `lease`.
    /// Wake-ups cut every wait short. Defaults to 1 s.
    #[serde(with = "humantime_serde")]
    pub max_poll_interval: Duration,
    /// A publisher that reports no outcome for this long is given up; what it did not report is retried.
    /// Defaults to 30 s.
    #[serde(with = "humantime_serde")]
    pub publish_timeout: Duration,
    /// How long a stopping relay waits for answers. What was sent but not answered is left to its lease and sent again.
    /// Defaults to 10 s.
    #[serde(with = "humantime_serde")]
    pub shutdown_grace: Duration,
    /// How often the janitor sweeps, purges and counts. Defaults to 15 s.
    #[serde(with = "humantime_serde")]
    pub janitor_interval: Duration,
    /// How long delivered rows are kept. Defaults to 7 days.
    #[serde(with = "humantime_serde")]
    pub retention: Duration,
}

/// Order and its policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OrderingConfig {
    /// Whether messages with equal keys are delivered in order. Without it claims of several relays run side by side.
    /// Defaults to true.
    pub per_key: bool,
    /// What happens to a key whose head is dead. Defaults to `skip`.
    pub dead_head: DeadHead,
    /// The same, for single topics.
    pub topics: BTreeMap<String, DeadHead>,
}

impl Default for OrderingConfig {
    fn default() -> Self {
        Self {
            per_key: true,
            dead_head: DeadHead::Skip,
            topics: BTreeMap::new(),
        }
    }
}

impl OrderingConfig {
    pub(crate) fn for_claims(&self) -> Ordering {
        if !self.per_key {
            return Ordering::None;
        }
        let differs = |(topic, policy): (&String, &DeadHead)| (*policy != self.dead_head).then(|| topic.clone());
        Ordering::PerKey {
            dead_head: self.dead_head,
            except: self.topics.iter().filter_map(differs).collect(),
        }
    }
}

impl Default for RelayConfig {
    fn default() -> Self {
        Self {
            scope: Scope::default(),
            ordering: OrderingConfig::default(),
            retry: RetryPolicy::default(),
            breaker: BreakerConfig::default(),
            exclusive: false,
            exclusive_lease: Duration::from_secs(30),
            batch_size: 500,
            max_in_flight: 2_000,
            max_in_flight_bytes: 32 << 20,
            lease: Duration::from_secs(30),
            poll_interval: Duration::from_millis(100),
            max_poll_interval: Duration::from_secs(1),
            publish_timeout: Duration::from_secs(30),
            shutdown_grace: Duration::from_secs(10),
            janitor_interval: Duration::from_secs(15),
            retention: Duration::from_hours(168),
        }
    }
}

/// A setting that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field} = {value}: {remedy}")]
pub struct InvalidConfig {
    /// The field, with dots.
    pub field: String,
    /// The value that was given.
    pub value: String,
    /// What to give instead.
    pub remedy: &'static str,
}

impl RelayConfig {
    /// Checks that the settings can work together.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        let third = self.lease / 3;
        let checks: [(bool, &'static str, String, &'static str); 12] = [
            (
                self.batch_size > 0,
                "batch_size",
                self.batch_size.to_string(),
                "must be at least 1",
            ),
            (
                self.max_in_flight >= self.batch_size,
                "max_in_flight",
                self.max_in_flight.to_string(),
                "must be at least batch_size, or nothing could be claimed",
            ),
            (
                self.max_in_flight_bytes > 0,
                "max_in_flight_bytes",
                self.max_in_flight_bytes.to_string(),
                "must be at least 1",
            ),
            (
                self.lease >= Duration::from_millis(100),
                "lease",
                format!("{:?}", self.lease),
                "must be at least 100ms, to leave time for renewal",
            ),
            (
                self.poll_interval <= third && !self.poll_interval.is_zero(),
                "poll_interval",
                format!("{:?}", self.poll_interval),
                "must be above 0 and at most a third of lease, or leases run out between polls",
            ),
            (
                self.max_poll_interval <= third && self.max_poll_interval >= self.poll_interval,
                "max_poll_interval",
                format!("{:?}", self.max_poll_interval),
                "must be at least poll_interval and at most a third of lease",
            ),
            (
                !self.publish_timeout.is_zero(),
                "publish_timeout",
                format!("{:?}", self.publish_timeout),
                "must be above 0",
            ),
            (
                !self.janitor_interval.is_zero(),
                "janitor_interval",
                format!("{:?}", self.janitor_interval),
                "must be above 0",
            ),
            (
                self.exclusive_lease >= Duration::from_millis(100),
                "exclusive_lease",
                format!("{:?}", self.exclusive_lease),
                "must be at least 100ms, to leave time for renewal",
            ),
            (
                !self.exclusive || (self.scope.topics.is_empty() && self.scope.tenant.is_none()),
                "exclusive",
                self.exclusive.to_string(),
                "the active relay must serve the whole namespace: leave out scope.topics and scope.tenant",
            ),
            (
                self.retry.max_attempts > 0,
                "retry.max_attempts",
                self.retry.max_attempts.to_string(),
                "must be at least 1",
            ),
            (
                !self.scope.namespace.trim().is_empty(),
                "scope.namespace",
                format!("{:?}", self.scope.namespace),
                "name the namespace that your producers use, or leave it out for `default`",
            ),
        ];
        if let Some((_, field, value, remedy)) = checks.into_iter().find(|(good, ..)| !good) {
            let field = field.to_owned();
            return Err(InvalidConfig { field, value, remedy });
        }
        self.breaker
            .validate()
            .map_err(|InvalidBreaker { field, value, remedy }| InvalidConfig {
                field: format!("breaker.{field}"),
                value,
                remedy,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves B12.
    #[test]
    fn a_poll_interval_above_a_third_of_the_lease_is_refused() {
        let config = RelayConfig {
            lease: Duration::from_secs(3),
            ..RelayConfig::default()
        };
        assert_eq!(config.validate(), Ok(()));
        let slow = RelayConfig {
            poll_interval: Duration::from_millis(1001),
            ..config
        };
        let error = slow.validate().unwrap_err();
        assert_eq!(error.field, "poll_interval");
        assert!(error.to_string().contains("third of lease"), "{error}");
    }

    #[test]
    fn a_breaker_that_could_never_open_is_refused() {
        let breaker = BreakerConfig {
            minimum_calls: 20,
            ..BreakerConfig::default()
        };
        let config = RelayConfig {
            breaker,
            ..RelayConfig::default()
        };
        assert_eq!(config.validate().unwrap_err().field, "breaker.minimum_calls");
    }

    /// The others of the namespace would stand by for ever while nobody serves their topics.
    #[test]
    fn an_exclusive_relay_of_some_topics_is_refused() {
        let scope = Scope {
            topics: vec!["a".into()],
            ..Scope::default()
        };
        let config = RelayConfig {
            scope,
            exclusive: true,
            ..RelayConfig::default()
        };
        assert_eq!(config.validate().unwrap_err().field, "exclusive");
    }

    #[test]
    fn topics_differ_from_the_default_policy_by_exception() {
        let topics = [("a".to_owned(), DeadHead::Block), ("b".to_owned(), DeadHead::Skip)].into();
        let config = OrderingConfig {
            topics,
            ..OrderingConfig::default()
        };
        assert_eq!(
            config.for_claims(),
            Ordering::PerKey {
                dead_head: DeadHead::Skip,
                except: vec!["a".into()]
            }
        );
    }
}
