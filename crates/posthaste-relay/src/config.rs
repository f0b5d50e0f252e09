//! The relay's settings.

mod check;
mod policy;
mod retention;

use std::collections::BTreeMap;
use std::time::Duration;

use posthaste_core::store::{DeadHead, KeyOrdering, Scope};
use posthaste_core::{BreakerConfig, RetryPolicy};
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use retention::Retention;

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
    /// When the broker counts as unavailable, and how it is tried again.
    pub breaker: BreakerConfig,
    /// Whether only one relay of the namespace is active at a time, however many are running; the others stand by.
    /// Without it they share the work. Defaults to false.
    pub exclusive: bool,
    /// How long the active relay may be silent before another one takes over, where only one is active. One that stops
    /// cleanly is followed at once. Defaults to 30 s.
    #[serde(with = "humantime_serde")]
    pub exclusive_lease: Duration,
    /// Most rows of one claim. Larger is faster; what is claimed is at risk of being sent twice if the process dies.
    /// Defaults to 500; to 2,000 for a log whose publisher has many messages of a key under way, if `max_in_flight` is the
    /// default too.
    pub batch_size: u32,
    /// Most messages claimed and not yet settled. The next batch is claimed while this one is in flight as long as a
    /// whole batch has room. Defaults to 2,000; to 16,000 for such a log.
    pub max_in_flight: u32,
    /// Most payload bytes claimed and not yet settled. Bounds the relay's memory. Defaults to 32 MiB.
    pub max_in_flight_bytes: u64,
    /// How long a claim holds without renewal. A crashed relay's messages wait this long; a live relay renews in time.
    /// Defaults to 30 s.
    #[serde(with = "humantime_serde")]
    pub lease: Duration,
    /// Wait between claims that found work but less than a batch. At most a third of `lease`. A log, where a look costs
    /// next to nothing, is looked at again after a fiftieth of it, and the wait doubles from there while nothing comes.
    /// Defaults to 100 ms.
    #[serde(with = "humantime_serde")]
    pub poll_interval: Duration,
    /// Whether every claim, whatever it found, is followed by a wait of `poll_interval`, as a scheduler with a fixed
    /// delay does it. Then `max_poll_interval` and wake-ups change nothing. Without it a full batch is followed by the
    /// next claim at once, and the wait of an idle outbox grows. Defaults to false.
    pub fixed_delay: bool,
    /// Longest wait between claims of an idle outbox; `poll_interval` doubles up to it. At most a third of `lease`.
    /// Wake-ups cut every wait short. Defaults to 1 s.
    #[serde(with = "humantime_serde")]
    pub max_poll_interval: Duration,
    /// A publisher that reports no outcome for this long is given up; what it did not report is retried.
    /// Defaults to 30 s.
    #[serde(with = "humantime_serde")]
    pub publish_timeout: Duration,
    /// How long a call of the database may take before it is given up and counts as failed. One that takes long for
    /// good reason is given more time with each try, up to six times as much; so are cleaning up and counting from the
    /// start. Defaults to 10 s.
    #[serde(with = "humantime_serde")]
    pub store_timeout: Duration,
    /// How long a stopping relay waits for answers. What was sent but not answered is left to its lease and sent again.
    /// Defaults to 10 s.
    #[serde(with = "humantime_serde")]
    pub shutdown_grace: Duration,
    /// How often the janitor sweeps, counts and purges. Of the relays of a namespace one counts and purges; another one takes
    /// over when it has been silent for three times as long. Defaults to 15 s.
    #[serde(with = "humantime_serde")]
    pub janitor_interval: Duration,
    /// How long delivered rows are kept: a duration, `on` for 30 days, or `off`. Of the relays of a namespace one removes them,
    /// by its own setting. Defaults to `off`: they are kept for audit.
    pub retention: Retention,
    /// How long dead messages are kept, likewise. Removing one is giving up its event for good; each one is logged and counted.
    /// Not together with `dead_head = "block"`, which waits for an operator. Defaults to `off`.
    pub dead_retention: Retention,
    /// How long old rows of a log's cursor are kept; the newest row always is. Defaults to 7 days.
    #[serde(with = "humantime_serde")]
    pub cursor_retention: Duration,
    /// How often messages of crashed workers are taken back, where the table does not say until when a claim holds;
    /// elsewhere claims do that by themselves. Defaults to 5 min.
    #[serde(with = "humantime_serde")]
    pub recover_interval: Duration,
    /// How old a claim must be for that, since its last renewal. Never less than `lease`. Defaults to 5 min.
    #[serde(with = "humantime_serde")]
    pub stalled_after: Duration,
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
    pub(crate) fn for_claims(&self) -> KeyOrdering {
        if !self.per_key {
            return KeyOrdering::None;
        }
        let differs = |(topic, policy): (&String, &DeadHead)| (*policy != self.dead_head).then(|| topic.clone());
        KeyOrdering::PerKey {
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
            fixed_delay: false,
            max_poll_interval: Duration::from_secs(1),
            publish_timeout: Duration::from_secs(30),
            store_timeout: Duration::from_secs(10),
            shutdown_grace: Duration::from_secs(10),
            janitor_interval: Duration::from_secs(15),
            retention: Retention::Off,
            dead_retention: Retention::Off,
            cursor_retention: Duration::from_hours(168),
            recover_interval: Duration::from_mins(5),
            stalled_after: Duration::from_mins(5),
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
    pub remedy: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_differ_from_the_default_policy_by_exception() {
        let topics = [("a".to_owned(), DeadHead::Block), ("b".to_owned(), DeadHead::Skip)].into();
        let config = OrderingConfig {
            topics,
            ..OrderingConfig::default()
        };
        assert_eq!(
            config.for_claims(),
            KeyOrdering::PerKey {
                dead_head: DeadHead::Skip,
                except: vec!["a".into()]
            }
        );
    }
}
