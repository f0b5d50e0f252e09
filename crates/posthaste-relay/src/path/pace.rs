//! When to claim: at once while there is work, else at a growing interval that a wake-up cuts short.
//!
//! Where a look costs next to nothing, as at the end of a log, the interval grows from a small part of the shortest: what comes
//! in a stream then waits for a moment only, also where no notification tells of it.

use std::time::Duration;

/// The shortest wait, by which it is divided where a look costs next to nothing.
const ATTENTION: u32 = 50;

/// The wait between claims.
#[derive(Debug)]
pub(crate) struct Pace {
    /// After a claim that brought less than a batch.
    attentive: Duration,
    shortest: Duration,
    longest: Duration,
    next: Duration,
}

impl Pace {
    pub(crate) fn new(shortest: Duration, longest: Duration, is_cheap: bool) -> Self {
        Self {
            attentive: if is_cheap { shortest / ATTENTION } else { shortest },
            shortest,
            longest,
            next: shortest,
        }
    }

    /// A claim that took so long brought less than a batch: more may come soon. Such claims take half of the time at most.
    pub(crate) fn found_some(&mut self, took: Duration) -> Duration {
        let wait = self.attentive.max(took).min(self.shortest);
        self.next = (wait * 2).min(self.longest);
        wait
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
        let mut pace = Pace::new(short, long, false);
        assert_eq!(
            [pace.idle(), pace.idle(), pace.idle(), pace.idle()],
            [short, short * 2, long, long]
        );
        assert_eq!(pace.busy(), short);
        assert_eq!(pace.idle(), short);
        assert_eq!(pace.found_some(Duration::from_millis(1)), short);
    }

    #[test]
    fn what_is_cheap_to_look_at_is_looked_at_often_while_something_comes() {
        let [moment, short, long] = [2, 100, 350].map(Duration::from_millis);
        let mut pace = Pace::new(short, long, true);
        assert_eq!(pace.idle(), short, "nothing has come yet");
        assert_eq!(pace.found_some(Duration::ZERO), moment);
        assert_eq!([pace.idle(), pace.idle()], [moment * 2, moment * 4]);
        assert_eq!((0..8).map(|_| pace.idle()).last(), Some(long));
        // One that is dear is given as much time as it took, up to the shortest wait.
        assert_eq!(pace.found_some(moment * 3), moment * 3);
        assert_eq!(pace.found_some(long), short);
    }
}
