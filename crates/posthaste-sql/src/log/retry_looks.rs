//! When a reader looks for failed rows that are due.
//!
//! With tens of thousands that wait a look takes a second, and fresh rows would have no turn between two of them. So each is followed
//! by a rest, whatever came of it.

use std::time::{Duration, Instant};

/// How many times as long as a look that found little nothing looks again.
const REST: u32 = 9;

/// The longest rest: a look may have waited for a lock, or for a disk, that is free by now.
const MAX_REST: Duration = Duration::from_secs(10);

/// When failed rows are looked at next.
#[derive(Clone, Copy, Debug)]
pub struct RetryLooks {
    due: Instant,
    rests_until: Instant,
    /// When the look began that is not over, and the interval of looks.
    begun: Option<(Instant, Duration)>,
}

impl RetryLooks {
    /// At once.
    pub fn new(now: Instant) -> Self {
        Self {
            due: now,
            rests_until: now,
            begun: None,
        }
    }

    /// A look begins. One that is cut short is as long as any, and would be the first thing in every claim if nothing was known of it.
    pub fn begin(&mut self, now: Instant, interval: Duration) {
        self.begun = Some((now, interval));
    }

    /// The look is over, and others need not rest from it.
    pub fn end(&mut self) {
        self.begun = None;
    }

    /// A look that is not over by now was cut short: it took all the time since.
    pub fn end_unfinished(&mut self, now: Instant) {
        if let Some((begun, interval)) = self.begun {
            self.looked(begun, now.saturating_duration_since(begun), interval, false);
        }
    }

    /// Whether it is time.
    pub fn are_due(&self, now: Instant) -> bool {
        self.due.max(self.rests_until) <= now
    }

    /// Rows may be due that were not: they are looked for when the rest is over.
    pub fn soon(&mut self, now: Instant) {
        self.due = self.due.min(now);
    }

    /// Everything is looked for by the next claim.
    pub fn at_once(&mut self, now: Instant) {
        *self = Self::new(now);
    }

    /// A look is over that began at `now` and took so long. There may be more where as much was found as a claim takes. Without an
    /// interval nothing rests.
    pub fn looked(&mut self, now: Instant, took: Duration, interval: Duration, has_more: bool) {
        let ended = now + took;
        let (wait, rest) = if has_more {
            (Duration::ZERO, took)
        } else {
            (interval, took.saturating_mul(REST))
        };
        let rest = if interval.is_zero() {
            interval
        } else {
            rest.min(MAX_REST)
        };
        (self.due, self.rests_until, self.begun) = (ended + wait, ended + rest, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(1);

    fn after(took: Duration, interval: Duration, has_more: bool) -> (RetryLooks, Instant) {
        let now = Instant::now();
        let mut looks = RetryLooks::new(now);
        looks.looked(now, took, interval, has_more);
        (looks, now + took)
    }

    #[test]
    fn a_short_look_is_followed_by_the_next_after_the_interval_or_when_something_may_go() {
        let (mut looks, ended) = after(Duration::from_millis(5), INTERVAL, false);
        assert!(!looks.are_due(ended + INTERVAL / 2) && looks.are_due(ended + INTERVAL));
        looks.soon(ended);
        assert!(looks.are_due(ended + INTERVAL / 2));
    }

    #[test]
    fn a_long_look_leaves_nine_tenths_of_the_time_to_others_whatever_may_go_meanwhile() {
        let took = Duration::from_secs(1);
        let (mut looks, ended) = after(took, INTERVAL, false);
        looks.soon(ended);
        assert!(!looks.are_due(ended + took * 8) && looks.are_due(ended + took * 9));
        looks.at_once(ended);
        assert!(looks.are_due(ended));
    }

    #[test]
    fn a_look_that_was_held_up_is_no_reason_to_rest_for_minutes() {
        let (looks, ended) = after(Duration::from_mins(1), INTERVAL, false);
        assert!(looks.are_due(ended + MAX_REST));
    }

    #[test]
    fn while_there_is_more_looks_and_others_take_turns_of_equal_length() {
        let took = Duration::from_secs(1);
        let (looks, ended) = after(took, INTERVAL, true);
        assert!(!looks.are_due(ended + took / 2) && looks.are_due(ended + took));
    }

    #[test]
    fn a_look_that_was_cut_short_is_followed_by_a_rest_and_one_that_ended_is_not_taken_for_one() {
        let (now, took) = (Instant::now(), Duration::from_millis(300));
        let begun = || {
            let mut looks = RetryLooks::new(now);
            looks.begin(now, INTERVAL);
            looks
        };
        let mut cut_short = begun();
        cut_short.end_unfinished(now + took);
        cut_short.soon(now + took);
        assert!(!cut_short.are_due(now + took * 9) && cut_short.are_due(now + took * 10));
        let mut ended = begun();
        ended.end();
        ended.end_unfinished(now + took);
        assert!(ended.are_due(now));
        let mut looked = begun();
        looked.looked(now, Duration::ZERO, INTERVAL, true);
        looked.end_unfinished(now + took);
        assert!(looked.are_due(now));
    }

    #[test]
    fn without_an_interval_nothing_rests() {
        let (looks, ended) = after(Duration::from_secs(1), Duration::ZERO, false);
        assert!(looks.are_due(ended));
    }
}
