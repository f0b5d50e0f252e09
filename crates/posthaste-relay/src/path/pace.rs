//! When to claim: at once while there is work, else at a growing interval that a wake-up cuts short.

use std::time::Duration;

/// The wait between claims.
#[derive(Debug)]
pub(crate) struct Pace {
    shortest: Duration,
    longest: Duration,
    next: Duration,
}

impl Pace {
    pub(crate) fn new(shortest: Duration, longest: Duration) -> Self {
        Self {
            shortest,
            longest,
            next: shortest,
        }
    }

    /// There was work: be attentive.
    pub(crate) fn busy(&mut self) -> Duration {
        self.next = self.shortest;
        self.shortest
    }

    /// There was none: wait longer each time.
    pub(crate) fn idle(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(self.longest);
        wait
    }
}

/// How long to leave the database alone after a look that took so long and found nothing. Looks that are dear, past a deep
/// backlog of rows that cannot go, take a fifth of the time, as long as no message waits longer than a lease.
pub(crate) fn rest(took: Duration, lease: Duration) -> Duration {
    took.saturating_mul(4).min(lease / 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_slows_down_when_idle_and_recovers_with_work() {
        let [short, long] = [100, 350].map(Duration::from_millis);
        let mut pace = Pace::new(short, long);
        assert_eq!(
            [pace.idle(), pace.idle(), pace.idle(), pace.idle()],
            [short, short * 2, long, long]
        );
        assert_eq!(pace.busy(), short);
        assert_eq!(pace.idle(), short);
    }
}
