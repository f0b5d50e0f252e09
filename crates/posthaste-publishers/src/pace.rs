//! Pauses that a receiver asks for.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Shared by all calls to one receiver: when it asks one of them to wait, all of them wait.
#[derive(Debug, Default)]
pub struct Pace(Mutex<Option<Instant>>);

/// The longest pause that is kept to: a slip of a header must not silence a relay for days.
pub(crate) const MAX_PAUSE: Duration = Duration::from_hours(1);

impl Pace {
    /// Nothing is to be sent for this long. A shorter pause does not end a longer one. Returns how long it is kept to,
    /// an hour at most.
    pub fn pause(&self, pause: Duration) -> Duration {
        let pause = pause.min(MAX_PAUSE);
        let until = Instant::now() + pause;
        let mut paused = self.paused();
        *paused = Some(paused.map_or(until, |earlier| earlier.max(until)));
        pause
    }

    /// When sending may go on, if it may not now.
    pub fn paused_until(&self) -> Option<Instant> {
        let now = Instant::now();
        self.paused().filter(|until| *until > now)
    }

    fn paused(&self) -> MutexGuard<'_, Option<Instant>> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_longest_pause_holds_and_none_lasts_longer_than_the_limit() {
        let (pace, begin) = (Pace::default(), Instant::now());
        assert_eq!(pace.paused_until(), None);
        pace.pause(Duration::from_secs(3));
        pace.pause(Duration::from_secs(1));
        assert_eq!(pace.paused_until(), Some(begin + Duration::from_secs(3)));
        advance(Duration::from_secs(3)).await;
        assert_eq!(pace.paused_until(), None);
        assert_eq!(pace.pause(Duration::MAX), MAX_PAUSE);
    }
}
