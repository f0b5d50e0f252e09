//! Time that has passed since a moment, also while the machine was asleep.
//!
//! Leases are counted down on the monotonic clock, which on Linux stands still during suspend, while the database's goes
//! on: after a resume a lease would seem to hold that is long over. So what was slept is added.

use std::time::Duration;

use tokio::time::Instant;

/// A moment to count from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    at: Instant,
    slept: Duration,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self {
            at: Instant::now(),
            slept: slept(),
        }
    }

    /// How long ago it was, by a clock that never stands still.
    pub(crate) fn elapsed(self) -> Duration {
        self.at.elapsed() + slept().saturating_sub(self.slept)
    }
}

/// How long the machine has been asleep since it started.
#[cfg(all(target_os = "linux", not(test)))]
fn slept() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    let read = |clock| clock_gettime(clock).map(Duration::from).ok();
    // In this order: what passes between the two looks never counts as sleep.
    let (Some(boot), Some(monotonic)) = (read(ClockId::CLOCK_BOOTTIME), read(ClockId::CLOCK_MONOTONIC)) else {
        return Duration::ZERO;
    };
    boot.saturating_sub(monotonic)
}

#[cfg(all(not(target_os = "linux"), not(test)))]
fn slept() -> Duration {
    Duration::ZERO
}

#[cfg(test)]
thread_local! {
    /// How long a test pretends to have slept.
    pub(crate) static SLEPT: std::cell::Cell<Duration> = const { std::cell::Cell::new(Duration::ZERO) };
}

#[cfg(test)]
fn slept() -> Duration {
    SLEPT.get()
}
