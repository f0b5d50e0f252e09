//! When a failed delivery is tried again.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How often a message is attempted, and how long it waits in between.
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
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Backoff {
    /// `min(base · 2^(attempts − 1), max)`.
    Exponential {
        /// The wait after the first failure.
        #[serde(with = "humantime_serde")]
        base: Duration,
        /// No wait is longer.
        #[serde(with = "humantime_serde")]
        max: Duration,
        /// Spreads the wait uniformly over its upper half, so that failures of one moment do not return in one moment.
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
            base: Duration::from_secs(1),
            max: Duration::from_mins(5),
            jitter: true,
        }
    }
}

impl Backoff {
    /// The wait after `attempts` attempts have failed. `random` is uniform in `[0, 1]`; it is an argument so that the
    /// rule stays pure.
    pub fn delay(&self, attempts: u32, random: f64) -> Duration {
        let failures = attempts.max(1) - 1;
        match self {
            Self::Exponential { base, max, jitter } => {
                let factor = 1_u32.checked_shl(failures.min(32)).unwrap_or(u32::MAX);
                let delay = base.checked_mul(factor).unwrap_or(Duration::MAX).min(*max);
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
        }
    }
}

/// A list of durations as people write them: `["100ms", "2s"]`.
mod duration_list {
    use std::time::Duration;

    use humantime_serde::Serde;
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(values: &[Duration], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(values.iter().copied().map(Serde::from))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<Duration>, D::Error> {
        Ok(Vec::<Serde<Duration>>::deserialize(input)?
            .into_iter()
            .map(Serde::into_inner)
            .collect())
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
