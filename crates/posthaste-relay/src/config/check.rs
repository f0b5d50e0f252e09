//! Which settings cannot work, and what to give instead.

use std::fmt::Debug;
use std::time::Duration;

use posthaste_core::Capabilities;
use posthaste_core::breaker::InvalidBreaker;
use posthaste_core::publisher::LaneOrder;
use posthaste_core::retry::MAX_DURATION;
use posthaste_core::store::{DeadHead, RelayStore, StoreRequirements};

use super::{InvalidConfig, RelayConfig, Retention};

/// The shortest lease that can be renewed in time.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);

/// The batch and the window of a log that is read fast: a batch takes a moment to read, and some milliseconds to be
/// acknowledged.
const LOG_WINDOWS: (u32, u32) = (2_000, 16_000);

fn check(good: bool, field: &str, value: impl Debug, remedy: &str) -> Result<(), InvalidConfig> {
    if good {
        return Ok(());
    }
    Err(InvalidConfig {
        field: field.to_owned(),
        value: format!("{value:?}"),
        remedy: remedy.to_owned(),
    })
}

impl RelayConfig {
    /// Takes windows that suit a log which is read fast and a publisher that has many messages under way, unless others were
    /// chosen.
    pub(crate) fn fit(&mut self, requirements: StoreRequirements, capabilities: &Capabilities) {
        let defaults = Self::default();
        let are_defaults = (self.batch_size, self.max_in_flight) == (defaults.batch_size, defaults.max_in_flight);
        if are_defaults && requirements.append_only && capabilities.order == LaneOrder::Pipelined {
            (self.batch_size, self.max_in_flight) = LOG_WINDOWS;
        }
    }

    /// Claims no more at a time, and has no more in flight, than the publisher asks for.
    pub(crate) fn keep_to(&mut self, capabilities: &Capabilities) {
        if let Some(max_in_flight) = capabilities.max_in_flight {
            self.max_in_flight = self.max_in_flight.min(max_in_flight);
        }
        if let Some(max_batch) = capabilities.max_batch {
            self.batch_size = self.batch_size.min(u32::try_from(max_batch).unwrap_or(u32::MAX));
        }
        if let Some(max_bytes) = capabilities.max_bytes {
            self.max_in_flight_bytes = self.max_in_flight_bytes.min(max_bytes);
        }
        // Else nothing could be claimed.
        self.batch_size = self.batch_size.min(self.max_in_flight);
    }

    /// Checks that a table can give what the settings ask for.
    pub fn validate_for(&self, store: &dyn RelayStore) -> Result<(), InvalidConfig> {
        check(
            !self.exclusive || store.registry().is_some(),
            "exclusive",
            self.exclusive,
            "the table of a map has no place to say which relay is active: leave it out, or use Posthaste's own tables",
        )?;
        check(
            self.dead_retention == Retention::Off || !store.requirements().undated_deaths,
            "dead_retention",
            self.dead_retention,
            "the table does not say when a message died: leave it out, or map a column as updated_at",
        )
    }

    /// Checks that the settings can work together.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        self.check_sizes()?;
        self.check_times()?;
        let Self {
            exclusive,
            scope,
            retry,
            ..
        } = self;
        check(
            !exclusive || (scope.topics.is_empty() && scope.tenant.is_none()),
            "exclusive",
            exclusive,
            "the active relay must serve the whole namespace: leave out scope.topics and scope.tenant",
        )?;
        check(
            retry.max_attempts > 0,
            "retry.max_attempts",
            retry.max_attempts,
            "must be at least 1",
        )?;
        check(
            !scope.namespace.trim().is_empty(),
            "scope.namespace",
            &scope.namespace,
            "name the namespace that your producers use, or leave it out for `default`",
        )?;
        let blocks = self.ordering.dead_head == DeadHead::Block
            || self.ordering.topics.values().any(|policy| *policy == DeadHead::Block);
        check(
            self.dead_retention == Retention::Off || !(self.ordering.per_key && blocks),
            "dead_retention",
            self.dead_retention,
            "a dead message that blocks its key waits for an operator; removing it would let the key go on: leave it out, or \
             use dead_head = \"skip\"",
        )?;
        check(
            self.dead_retention == Retention::Off || (scope.topics.is_empty() && scope.tenant.is_none()),
            "dead_retention",
            self.dead_retention,
            "dead messages are removed from the whole namespace, also those that another relay serves: set it for a relay without \
             scope.topics and scope.tenant",
        )?;
        check(
            self.dead_retention.age() != Some(Duration::ZERO),
            "dead_retention",
            self.dead_retention,
            "must be above 0, or `off`",
        )?;
        self.breaker
            .validate()
            .map_err(|InvalidBreaker { field, value, remedy }| InvalidConfig {
                field: format!("breaker.{field}"),
                value,
                remedy: remedy.to_owned(),
            })
    }

    fn check_sizes(&self) -> Result<(), InvalidConfig> {
        check(self.batch_size > 0, "batch_size", self.batch_size, "must be at least 1")?;
        // Nobody who chose a batch alone has seen this number.
        let which = if self.max_in_flight == Self::default().max_in_flight {
            ", and this is what it is if it is not set: set it as well"
        } else {
            ""
        };
        check(
            self.max_in_flight >= self.batch_size,
            "max_in_flight",
            self.max_in_flight,
            &format!(
                "must be at least batch_size = {}, or nothing could be claimed{which}",
                self.batch_size
            ),
        )?;
        check(
            self.max_in_flight_bytes > 0,
            "max_in_flight_bytes",
            self.max_in_flight_bytes,
            "must be at least 1",
        )
    }

    fn check_times(&self) -> Result<(), InvalidConfig> {
        for (field, lease) in [("lease", self.lease), ("exclusive_lease", self.exclusive_lease)] {
            let remedy = "must be at least 100ms, to leave time for renewal";
            check(lease >= SHORTEST_LEASE, field, lease, remedy)?;
        }
        // Neither a database nor a clock of this process can add any duration to the present.
        for (field, time) in [
            ("lease", self.lease),
            ("exclusive_lease", self.exclusive_lease),
            ("poll_interval", self.poll_interval),
            ("max_poll_interval", self.max_poll_interval),
            ("publish_timeout", self.publish_timeout),
            ("store_timeout", self.store_timeout),
            ("shutdown_grace", self.shutdown_grace),
            ("janitor_interval", self.janitor_interval),
            ("retention", self.retention.age().unwrap_or_default()),
            ("dead_retention", self.dead_retention.age().unwrap_or_default()),
            ("cursor_retention", self.cursor_retention),
            ("recover_interval", self.recover_interval),
            ("stalled_after", self.stalled_after),
        ] {
            check(time <= MAX_DURATION, field, time, "must be at most 36500days")?;
        }
        let third = self.lease / 3;
        check(
            self.poll_interval <= third && !self.poll_interval.is_zero(),
            "poll_interval",
            self.poll_interval,
            "must be above 0 and at most a third of lease, or leases run out between polls",
        )?;
        check(
            self.fixed_delay || (self.max_poll_interval <= third && self.max_poll_interval >= self.poll_interval),
            "max_poll_interval",
            self.max_poll_interval,
            "must be at least poll_interval and at most a third of lease",
        )?;
        for (field, time) in [
            ("publish_timeout", self.publish_timeout),
            ("store_timeout", self.store_timeout),
            ("janitor_interval", self.janitor_interval),
            ("recover_interval", self.recover_interval),
            ("stalled_after", self.stalled_after),
        ] {
            check(!time.is_zero(), field, time, "must be above 0")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use posthaste_core::BreakerConfig;
    use posthaste_core::store::Scope;

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
    fn a_fast_log_has_larger_windows_unless_others_were_chosen() {
        let log = StoreRequirements {
            append_only: true,
            ..StoreRequirements::default()
        };
        let [pipelined, one_at_a_time] = [LaneOrder::Pipelined, LaneOrder::OneAtATime].map(Capabilities::new);
        let windows = |batch_size, requirements: &StoreRequirements, capabilities: &Capabilities| {
            let mut config = RelayConfig {
                batch_size,
                ..RelayConfig::default()
            };
            config.fit(*requirements, capabilities);
            (config.batch_size, config.max_in_flight)
        };
        assert_eq!(windows(500, &log, &pipelined), LOG_WINDOWS);
        assert_eq!(windows(100, &log, &pipelined), (100, 2_000), "chosen");
        assert_eq!(windows(500, &log, &one_at_a_time), (500, 2_000));
        assert_eq!(windows(500, &StoreRequirements::default(), &pipelined), (500, 2_000));
    }

    #[test]
    fn times_that_nobody_can_count_are_refused() {
        let forever = |change: fn(&mut RelayConfig)| {
            let mut config = RelayConfig::default();
            change(&mut config);
            config.validate().unwrap_err().field
        };
        assert_eq!(
            forever(|config| config.retention = Retention::For(Duration::MAX)),
            "retention"
        );
        assert_eq!(forever(|config| config.lease = Duration::MAX), "lease");
        assert_eq!(
            forever(|config| config.publish_timeout = Duration::MAX),
            "publish_timeout"
        );
        assert_eq!(
            forever(|config| config.breaker.open_for = Duration::MAX),
            "breaker.open_for"
        );
    }

    /// It would let a key go on that waits for an operator.
    #[test]
    fn dead_messages_that_block_their_key_are_not_removed_by_age() {
        let mut config = RelayConfig {
            dead_retention: Retention::ON,
            ..RelayConfig::default()
        };
        assert_eq!(config.validate(), Ok(()));
        config.ordering.topics = [("payments".to_owned(), DeadHead::Block)].into();
        assert_eq!(config.validate().unwrap_err().field, "dead_retention");
        config.ordering.per_key = false;
        assert_eq!(config.validate(), Ok(()));
        config.scope.topics = vec!["orders".to_owned()];
        assert_eq!(config.validate().unwrap_err().field, "dead_retention");
        config.scope.topics.clear();
        config.dead_retention = Retention::For(Duration::ZERO);
        assert_eq!(config.validate().unwrap_err().field, "dead_retention");
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

    /// The others of the namespace would stand by forever while no relay serves their topics.
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
}
