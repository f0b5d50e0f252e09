//! When to look again how many records have arrived.

use std::time::{Duration, Instant};

use crate::series::real;

/// How exactly the end is seen.
const SHORTEST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(500);
/// Until a speed is known, and the shortest time over which one is taken: records come in bursts.
const FIRST: Duration = Duration::from_millis(100);

/// Looks seldom while much is left, since each look takes processor time from what is measured, and often only shortly before
/// the end, so that its moment is known to a few milliseconds.
pub(crate) struct Pace {
    wanted: u64,
    last: Option<(u64, Instant)>,
    /// Records per second.
    fastest: f64,
}

impl Pace {
    pub(crate) fn to(wanted: u64) -> Self {
        Self {
            wanted,
            last: None,
            fastest: 0.0,
        }
    }

    /// How long to wait when so many are there: half of what the rest would take at the highest speed so far, so that the
    /// end is not passed by if they come faster.
    pub(crate) fn pause(&mut self, there: u64, now: Instant) -> Duration {
        let (before, at) = *self.last.get_or_insert((there, now));
        let passed = now.duration_since(at);
        if passed >= FIRST {
            let speed = real(there.saturating_sub(before)) / passed.as_secs_f64();
            self.fastest = self.fastest.max(speed);
            self.last = Some((there, now));
        }
        if self.fastest == 0.0 {
            return FIRST;
        }
        let left = real(self.wanted.saturating_sub(there)) / self.fastest;
        Duration::try_from_secs_f64(left / 2.0)
            .unwrap_or(LONGEST)
            .clamp(SHORTEST, LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_wait_takes_few_looks_and_ends_within_milliseconds() {
        let (begun, mut now) = (Instant::now(), Instant::now());
        let mut pace = Pace::to(300_000);
        let mut looks = 0;
        // 10,000 a second, after two seconds without any.
        let end = begun + Duration::from_secs(32);
        while now < end {
            let there = now
                .duration_since(begun)
                .saturating_sub(Duration::from_secs(2))
                .as_millis()
                * 10;
            now += pace.pause(u64::try_from(there).unwrap(), now);
            looks += 1;
        }
        assert!(looks < 110, "{looks} looks");
        assert!(
            now.duration_since(end) <= SHORTEST,
            "{:?} late",
            now.duration_since(end)
        );
    }
}
