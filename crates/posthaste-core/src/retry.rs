//! When a failed delivery is tried again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The longest time that is waited for, or looked back on: about a hundred years. Every database can add it to the present
/// and subtract it, which does not hold for [`Duration::MAX`].
pub const MAX_DURATION: Duration = Duration::from_hours(24 * 36_500);

/// The longest wait that a broker can ask for, unless the policy itself waits for longer.
pub const MAX_RETRY_AFTER: Duration = Duration::from_hours(1);

/// How often a message is attempted, and how long it waits in between.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use posthaste_core::{Backoff, RetryPolicy};
///
/// let policy = RetryPolicy {
///     max_attempts: 4,
///     backoff: Backoff::Schedule {
///         delays: [1, 10, 60].map(Duration::from_secs).to_vec(),
///     },
/// };
/// assert_eq!(policy.for_row(Some(2)).max_attempts, 2);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryPolicy {
    /// Attempts in all, the first included; then the message is dead. Defaults to 10.
    pub max_attempts: u32,
    /// The wait after each failed attempt. Defaults to exponential, 1 s to 300 s, with jitter.
    pub backoff: Backoff,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts: 10,
            backoff: Backoff::default(),
        }
    }
}

impl RetryPolicy {
    /// How long to wait for a broker that throttles: as long as it asks for, within reason. A receiver that sends
    /// a point in time instead of a span would park a message, and all that follow it, for decades.
    pub fn throttle_wait(&self, retry_after: Duration) -> Duration {
        retry_after.min(self.backoff.longest().max(MAX_RETRY_AFTER))
    }

    /// The policy for a row that may have a limit of its own.
    #[must_use]
    pub fn for_row(&self, max_attempts: Option<u32>) -> Self {
        Self {
            max_attempts: max_attempts.unwrap_or(self.max_attempts),
            ..self.clone()
        }
    }
}

/// The wait after a failed attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    rename_all = "kebab-case",
    tag = "kind",
    deny_unknown_fields,
    expecting = r#"{ kind = "exponential", base = "1s", max = "5m", jitter = true } or { kind = "schedule", delays = ["100ms", "1s"] }"#
)]
pub enum Backoff {
    /// `min(base · 2^(attempts − 1), max)`.
    Exponential {
        /// The wait after the first failure.
        #[serde(with = "humantime_serde", default = "default_base")]
        base: Duration,
        /// No wait is longer.
        #[serde(with = "humantime_serde", default = "default_max")]
        max: Duration,
        /// Spreads the wait uniformly over its upper half, so that failures of one moment do not return in one moment.
        #[serde(default = "default_jitter")]
        jitter: bool,
    },
    /// The n-th wait of a list; the last one repeats.
    Schedule {
        /// The waits in order.
        #[serde(with = "duration_list")]
        delays: Vec<Duration>,
    },
}

impl Default for Backoff {
    fn default() -> Self {
        Self::Exponential {
            base: default_base(),
            max: default_max(),
            jitter: default_jitter(),
        }
    }
}

fn default_base() -> Duration {
    Duration::from_secs(1)
}

fn default_max() -> Duration {
    Duration::from_mins(5)
}

fn default_jitter() -> bool {
    true
}

impl Backoff {
    /// The longest wait.
    pub fn longest(&self) -> Duration {
        let longest = match self {
            Self::Exponential { max, .. } => Some(*max),
            Self::Schedule { delays } => delays.iter().max().copied(),
        };
        longest.unwrap_or_default().min(MAX_DURATION)
    }

    /// The wait after `attempts` attempts have failed. `random` is uniform in `[0, 1]`; it is an argument so that the
    /// rule stays pure.
    pub fn delay(&self, attempts: u32, random: f64) -> Duration {
        let failures = attempts.max(1) - 1;
        let delay = match self {
            Self::Exponential { base, max, jitter } => {
                let factor = 1_u32.checked_shl(failures.min(32)).unwrap_or(u32::MAX);
                // Bounded first: half of the longest duration there is, and some more, would be too much.
                let delay = base
                    .checked_mul(factor)
                    .unwrap_or(MAX_DURATION)
                    .min(*max)
                    .min(MAX_DURATION);
                if *jitter {
                    delay / 2 + delay.saturating_sub(delay / 2).mul_f64(random.clamp(0.0, 1.0))
                } else {
                    delay
                }
            }
            Self::Schedule { delays } => {
                let place = usize::try_from(failures).unwrap_or(usize::MAX);
                delays.get(place).or(delays.last()).copied().unwrap_or_default()
            }
        };
        delay.min(MAX_DURATION)
    }
}

/// A list of durations as people write them: `["100ms", "2s"]`.
mod duration_list {
    use std::time::Duration;

    use humantime_serde::Serde;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(values: &[Duration], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(values.iter().copied().map(Serde::from))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<Duration>, D::Error> {
        let delays = Vec::<Serde<Duration>>::deserialize(input)?;
        // Without any, all attempts would be used up in no time.
        if delays.is_empty() {
            return Err(D::Error::custom(r#"at least one wait is needed, such as ["1s"]"#));
        }
        Ok(delays.into_iter().map(Serde::into_inner).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ms(value: u64) -> Duration {
        Duration::from_millis(value)
    }

    #[test]
    fn a_schedule_is_followed_and_its_last_wait_repeats() {
        let backoff = Backoff::Schedule {
            delays: [100, 200, 400, 800, 1600].map(ms).to_vec(),
        };
        let waits: Vec<_> = (1..=6).map(|attempts| backoff.delay(attempts, 0.5)).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 1600].map(ms));
    }

    #[test]
    fn powers_of_two_seconds_without_jitter() {
        let backoff = Backoff::Exponential {
            base: ms(1000),
            max: ms(3_600_000),
            jitter: false,
        };
        let waits: Vec<_> = (1..=5).map(|attempts| backoff.delay(attempts, 0.9)).collect();
        assert_eq!(waits, [1000, 2000, 4000, 8000, 16_000].map(ms));
    }

    #[test]
    fn no_wait_is_longer_than_a_database_can_count() {
        let schedule = Backoff::Schedule {
            delays: vec![Duration::MAX],
        };
        let exponential = |jitter| Backoff::Exponential {
            base: Duration::MAX,
            max: Duration::MAX,
            jitter,
        };
        for backoff in [schedule, exponential(false), exponential(true)] {
            assert_eq!(backoff.delay(u32::MAX, 1.0), MAX_DURATION, "{backoff:?}");
            assert_eq!(backoff.longest(), MAX_DURATION);
        }
    }

    #[test]
    fn a_broker_is_given_an_hour_or_as_long_as_the_policy_waits() {
        let mut policy = RetryPolicy::default();
        assert_eq!(policy.throttle_wait(ms(1_500)), ms(1_500));
        assert_eq!(policy.throttle_wait(Duration::MAX), MAX_RETRY_AFTER);
        policy.backoff = Backoff::Schedule {
            delays: vec![ms(1), Duration::from_hours(5)],
        };
        assert_eq!(policy.throttle_wait(Duration::MAX), Duration::from_hours(5));
    }

    proptest! {
        /// Proves B10 and pitfall 25.
        #[test]
        fn jitter_stays_in_the_upper_half_of_the_capped_delay(
            base in 1_u64..100_000, max in 1_u64..10_000_000, attempts in 0_u32..=u32::MAX, random in 0.0..=1.0_f64,
        ) {
            let plain = Backoff::Exponential { base: ms(base), max: ms(max), jitter: false }.delay(attempts, 0.0);
            let jittered = Backoff::Exponential { base: ms(base), max: ms(max), jitter: true }.delay(attempts, random);
            let exact = u128::from(base).checked_shl(attempts.max(1) - 1).filter(|_| attempts < 64).unwrap_or(u128::MAX);
            prop_assert_eq!(plain.as_millis(), exact.min(u128::from(max)));
            prop_assert!(plain / 2 <= jittered && jittered <= plain);
        }
    }
}
