//! The net below the proof: ids that were closed are looked at again for some time.
//!
//! The proof holds for ids that are used in the transaction that took them. Some writers do otherwise: an object-relational
//! mapper that fetches fifty ids at a time, or ids that come from another system. It is not known when such a row comes, so
//! it may come after its id was closed. It is then found here, late and out of order, but not lost.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::ranges::Ranges;

/// What is closed within this time is looked at together.
const BATCH_SPAN: Duration = Duration::from_secs(1);

/// Most ranges of one batch, so that a look is a short statement.
const MAX_BATCH_RANGES: usize = 5_000;

/// Most ranges that are kept. A range takes some tens of bytes; beyond this the oldest go early.
const MAX_RANGES: usize = 200_000;

/// The first look at a batch comes after this; each later one after twice the time of the one before.
const FIRST_PROBE: Duration = Duration::from_secs(1);

/// The longest time between two looks.
const MAX_PROBE: Duration = Duration::from_mins(10);

/// The longest time between two looks for a row that is there and could not be written down.
/// Less than [`CURSOR_HOLD`], so that the cursor stays before it.
const MAX_REFUSED_PROBE: Duration = Duration::from_secs(30);

/// Once rows came late, the cursor stays below ids that were closed within this time: a successor then reads again what may
/// have come to them while no relay looked.
const CURSOR_HOLD: Duration = Duration::from_mins(1);

/// Rows count as coming late for so long after the last one did.
const LATE_MEMORY: Duration = Duration::from_hours(1);

/// Closed ids, for as long as they are looked at again.
#[derive(Clone, Debug)]
pub struct ClosedGaps {
    keep: Duration,
    /// Oldest first.
    batches: VecDeque<ClosedBatch>,
    /// Ranges of all batches.
    ranges: usize,
    dropped_early: u64,
    /// When rows were last found among them.
    came_late: Option<Instant>,
}

#[derive(Clone, Debug)]
struct ClosedBatch {
    ids: Ranges,
    /// How many ranges it had when it was last counted.
    ranges: usize,
    /// When the last of them was closed.
    closed_at: Instant,
    next_probe: Instant,
    wait: Duration,
    /// What is found here came before this reader did, and says nothing about the writers of now.
    left_behind: bool,
}

impl ClosedBatch {
    fn new(ids: Ranges, wait: Duration, now: Instant) -> Self {
        Self {
            ranges: ids.iter().count(),
            ids,
            closed_at: now,
            next_probe: now + wait,
            wait,
            left_behind: false,
        }
    }
}

/// What a look at closed ids found.
#[derive(Clone, Debug, Default)]
pub struct Probe {
    /// Rows that were written down.
    pub taken: Vec<i64>,
    /// Rows that the database refused to write down.
    pub refused: Vec<i64>,
    /// There were others, which are looked for again soon.
    pub again: bool,
}

impl Probe {
    fn found_any(&self) -> bool {
        self.again || !self.taken.is_empty() || !self.refused.is_empty()
    }
}

impl ClosedGaps {
    /// Looks at closed ids again for so long; not at all if it is zero.
    pub fn kept_for(keep: Duration) -> Self {
        Self {
            keep,
            batches: VecDeque::new(),
            ranges: 0,
            dropped_early: 0,
            came_late: None,
        }
    }

    /// Takes in ids that were closed.
    pub fn add(&mut self, closed: &Ranges, now: Instant) {
        if self.keep.is_zero() {
            return;
        }
        for range in closed.iter() {
            let fits = |batch: &ClosedBatch| {
                batch.ranges < MAX_BATCH_RANGES
                    && now.duration_since(batch.closed_at) < BATCH_SPAN
                    && batch.wait == FIRST_PROBE
                    && !batch.left_behind
            };
            if !self.batches.back().is_some_and(fits) {
                self.batches
                    .push_back(ClosedBatch::new(Ranges::default(), FIRST_PROBE, now));
            }
            if let Some(batch) = self.batches.back_mut() {
                batch.ids.insert(range);
                // Neighbours become one, so this counts too many rather than too few.
                batch.ranges += 1;
                self.ranges += 1;
            }
        }
        while self.ranges > MAX_RANGES {
            let Some(oldest) = self.batches.pop_front() else { break };
            self.ranges -= oldest.ranges;
            self.dropped_early = self.dropped_early.saturating_add(oldest.ids.count());
        }
    }

    /// Takes in ids that have rows by now, which an earlier reader may not have found.
    pub fn add_left_behind(&mut self, ids: Ranges, now: Instant) {
        if self.keep.is_zero() || ids.is_empty() {
            return;
        }
        let mut batch = ClosedBatch::new(ids, FIRST_PROBE, now);
        batch.left_behind = true;
        self.ranges += batch.ranges;
        self.batches.push_back(batch);
    }

    /// The ids of one batch that is due for a look; nothing if none is.
    pub fn due(&self, now: Instant) -> Option<&Ranges> {
        self.batches
            .iter()
            .find(|batch| batch.next_probe <= now)
            .map(|batch| &batch.ids)
    }

    /// Takes note of a look at the batch that [`ClosedGaps::due`] named.
    pub fn probed(&mut self, now: Instant, look: &Probe) {
        let Some(place) = self.batches.iter().position(|batch| batch.next_probe <= now) else {
            return;
        };
        let Some(mut batch) = self.batches.remove(place) else {
            return;
        };
        if look.found_any() && !batch.left_behind {
            self.came_late = Some(now);
        }
        self.ranges -= batch.ranges;
        for id in look.taken.iter().chain(&look.refused) {
            batch.ids.remove(*id);
        }
        self.keep_refused(&look.refused, batch.wait, now);
        let end = batch.closed_at + self.keep;
        if batch.ids.is_empty() || (now >= end && !look.again) {
            return;
        }
        if look.again {
            batch.next_probe = now + FIRST_PROBE;
        } else {
            batch.wait = (batch.wait * 2).min(MAX_PROBE);
            batch.next_probe = (now + batch.wait).min(end);
        }
        self.put(place, batch, now);
    }

    /// Puts a batch in its place, or into the one before it where both are looked at equally often. So there are few
    /// batches, however long ids are kept.
    fn put(&mut self, place: usize, mut batch: ClosedBatch, now: Instant) {
        batch.ranges = batch.ids.iter().count();
        self.ranges += batch.ranges;
        let may_join = |before: &&mut ClosedBatch| {
            now.duration_since(batch.closed_at) >= CURSOR_HOLD
                && before.wait == batch.wait
                && before.left_behind == batch.left_behind
                && before.ranges + batch.ranges <= MAX_BATCH_RANGES
        };
        let before = place.checked_sub(1).and_then(|before| self.batches.get_mut(before));
        if let Some(before) = before.filter(may_join) {
            before.ids.extend(&batch.ids);
            before.ranges += batch.ranges;
            before.closed_at = before.closed_at.max(batch.closed_at);
            before.next_probe = before.next_probe.min(batch.next_probe);
        } else {
            self.batches.insert(place, batch);
        }
    }

    /// Rows that are there and could not be written down are looked at by themselves, and never forgotten.
    fn keep_refused(&mut self, refused: &[i64], wait: Duration, now: Instant) {
        if refused.is_empty() {
            return;
        }
        let mut ids = Ranges::default();
        for id in refused {
            ids.insert(*id..=*id);
        }
        let batch = ClosedBatch::new(ids, (wait * 2).min(MAX_REFUSED_PROBE), now);
        self.ranges += batch.ranges;
        self.batches.push_back(batch);
    }

    /// The lowest id at which the cursor has to wait; none unless rows came late.
    pub fn holds_cursor_at(&self, now: Instant) -> Option<i64> {
        self.holding(now).filter_map(|batch| batch.ids.first()).min()
    }

    /// The ids that a successor should look at again: all that hold the cursor, and what was closed lately above `position`.
    /// Below it the successor can tell by the moves of the cursor what came late.
    pub fn left_to_successor(&self, position: i64, now: Instant) -> Ranges {
        let mut ids = Ranges::default();
        self.holding(now).for_each(|batch| ids.extend(&batch.ids));
        for batch in self.batches.iter().filter(|batch| is_recent(batch, now)) {
            ids.extend(&batch.ids.clone().split_above(position));
        }
        ids
    }

    fn holding(&self, now: Instant) -> impl Iterator<Item = &ClosedBatch> {
        let lately = |at: Instant| now.duration_since(at) < LATE_MEMORY;
        let late = self.came_late.is_some_and(lately);
        self.batches.iter().filter(move |batch| late && is_recent(batch, now))
    }

    /// How many ids are looked at again.
    pub fn count(&self) -> u64 {
        self.batches
            .iter()
            .map(|batch| batch.ids.count())
            .fold(0, u64::saturating_add)
    }

    /// How many ids were given up before their time because there were too many.
    pub fn dropped_early(&self) -> u64 {
        self.dropped_early
    }
}

fn is_recent(batch: &ClosedBatch, now: Instant) -> bool {
    now.duration_since(batch.closed_at) < CURSOR_HOLD
}

impl Default for ClosedGaps {
    /// Keeps nothing.
    fn default() -> Self {
        Self::kept_for(Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: Duration = Duration::from_hours(1);

    fn at(begun: Instant, seconds: u64) -> Instant {
        begun + Duration::from_secs(seconds)
    }

    fn took(taken: &[i64], again: bool) -> Probe {
        let taken = taken.to_vec();
        Probe {
            taken,
            again,
            ..Probe::default()
        }
    }

    /// When a batch that was closed at 0 is looked at, in seconds.
    fn looks(closed: &mut ClosedGaps, begun: Instant) -> Vec<u64> {
        let mut looks = Vec::new();
        for second in 0..=5_000 {
            while closed.due(at(begun, second)).is_some() {
                looks.push(second);
                closed.probed(at(begun, second), &Probe::default());
            }
        }
        looks
    }

    #[test]
    fn a_closed_id_is_looked_at_again_ever_more_rarely_and_a_last_time_at_the_end() {
        let (mut closed, begun) = (ClosedGaps::kept_for(KEEP), Instant::now());
        closed.add(&Ranges::of(5..=9), begun);
        assert_eq!(closed.count(), 5);
        assert_eq!(
            looks(&mut closed, begun),
            [1, 3, 7, 15, 31, 63, 127, 255, 511, 1023, 1623, 2223, 2823, 3423, 3600]
        );
        assert_eq!((closed.count(), closed.ranges), (0, 0), "then it is forgotten");
    }

    #[test]
    fn what_was_found_is_looked_for_no_more_and_the_rest_soon_where_it_had_to_wait() {
        let (mut closed, begun) = (ClosedGaps::kept_for(KEEP), Instant::now());
        closed.add(&Ranges::of(5..=7), begun);
        closed.probed(at(begun, 1), &took(&[6], true));
        assert_eq!(
            closed.due(at(begun, 2)).map(|ids| ids.iter().flatten().collect()),
            Some(vec![5, 7])
        );
        closed.probed(at(begun, 2), &took(&[5, 7], false));
        assert_eq!((closed.due(at(begun, 9_999)), closed.ranges), (None, 0));
    }

    #[test]
    fn the_cursor_waits_at_closed_ids_for_a_minute_but_only_where_rows_come_late() {
        let (mut closed, begun) = (ClosedGaps::kept_for(KEEP), Instant::now());
        closed.add(&Ranges::of(5..=7), begun);
        closed.probed(at(begun, 1), &took(&[], false));
        assert_eq!(
            closed.holds_cursor_at(at(begun, 2)),
            None,
            "ids that are rolled back hold nobody"
        );
        closed.probed(at(begun, 3), &took(&[5], false));
        assert_eq!(closed.holds_cursor_at(at(begun, 59)), Some(6));
        assert_eq!(closed.holds_cursor_at(at(begun, 60)), None);
    }

    #[test]
    fn one_that_waits_is_not_forgotten_when_its_time_is_over() {
        let (mut closed, begun) = (ClosedGaps::kept_for(Duration::from_secs(2)), Instant::now());
        closed.add(&Ranges::of(1..=1), begun);
        closed.probed(at(begun, 50), &took(&[], true));
        assert!(closed.due(at(begun, 51)).is_some());
    }

    #[test]
    fn however_much_is_rolled_back_the_memory_is_bounded_and_the_oldest_go_first() {
        let (mut closed, begun) = (ClosedGaps::kept_for(KEEP), Instant::now());
        for second in 0..300_u64 {
            let mut ids = Ranges::default();
            for n in 0..1_000_i64 {
                let id = (i64::try_from(second).unwrap() * 1_000 + n) * 2;
                ids.insert(id..=id);
            }
            closed.add(&ids, at(begun, second));
        }
        assert!(closed.ranges <= MAX_RANGES);
        assert_eq!(closed.count() + closed.dropped_early(), 300_000);
        assert!(closed.batches.iter().all(|batch| batch.ranges <= MAX_BATCH_RANGES));
        assert!(closed.batches.front().unwrap().ids.first().unwrap() >= 150_000);
    }

    #[test]
    fn nothing_is_kept_where_that_is_not_asked_for() {
        let mut closed = ClosedGaps::default();
        closed.add(&Ranges::of(1..=9), Instant::now());
        assert_eq!(closed.count(), 0);
    }

    #[test]
    fn rows_that_came_late_are_forgotten_an_hour_after_the_last_of_them() {
        let (mut closed, begun) = (ClosedGaps::kept_for(KEEP), Instant::now());
        closed.add(&Ranges::of(5..=5), begun);
        closed.probed(at(begun, 1), &took(&[5], false));
        for (second, held) in [(3_600, Some(10)), (3_601, None)] {
            closed.add(&Ranges::of(10..=10), at(begun, second));
            assert_eq!(closed.holds_cursor_at(at(begun, second)), held, "after {second} s");
        }
    }

    #[test]
    fn what_cannot_be_written_down_is_tried_by_itself_ever_more_rarely_and_is_not_forgotten() {
        let (mut closed, begun) = (ClosedGaps::kept_for(KEEP), Instant::now());
        closed.add(&Ranges::of(1..=3), begun);
        let refused = Probe {
            taken: vec![1],
            refused: vec![2],
            again: false,
        };
        closed.probed(at(begun, 1), &refused);
        let mut tries = Vec::new();
        for second in 2..=20_000 {
            while let Some(ids) = closed.due(at(begun, second)) {
                let culprit = ids.contains(2);
                let look = if culprit {
                    assert_eq!(ids.count(), 1, "by itself");
                    tries.push(second);
                    Probe {
                        refused: vec![2],
                        ..Probe::default()
                    }
                } else {
                    Probe::default()
                };
                closed.probed(at(begun, second), &look);
            }
        }
        assert_eq!(tries[..7], [3, 7, 15, 31, 61, 91, 121]);
        assert!(
            tries.last().is_some_and(|last| *last > 19_960),
            "beyond the time of others"
        );
        assert_eq!((closed.count(), closed.ranges), (1, 1));
    }

    #[test]
    fn a_successor_looks_again_at_what_was_closed_lately_above_the_cursor() {
        let (mut closed, now) = (ClosedGaps::kept_for(Duration::from_hours(1)), Instant::now());
        closed.add(&Ranges::of(3..=8), now);
        assert_eq!(closed.left_to_successor(5, now), Ranges::of(6..=8));
        assert!(closed.left_to_successor(8, now).is_empty());
        assert!(
            closed.left_to_successor(5, now + CURSOR_HOLD).is_empty(),
            "not for long"
        );
    }

    #[test]
    fn what_was_left_behind_says_nothing_about_the_writers_of_now() {
        let (mut closed, begun) = (ClosedGaps::kept_for(KEEP), Instant::now());
        closed.add_left_behind(Ranges::of(5..=5), begun);
        closed.add(&Ranges::of(3..=3), begun);
        closed.probed(at(begun, 1), &took(&[5], false));
        assert_eq!((closed.holds_cursor_at(at(begun, 1)), closed.count()), (None, 1));
        closed.probed(at(begun, 1), &took(&[], true));
        assert_eq!(closed.holds_cursor_at(at(begun, 1)), Some(3));
    }

    #[test]
    fn ids_that_are_kept_for_long_are_looked_at_together() {
        let (mut closed, begun) = (ClosedGaps::kept_for(Duration::from_hours(24)), Instant::now());
        let mut most = 0;
        for second in 0..20_000_u64 {
            let id = i64::try_from(second).unwrap() * 2;
            closed.add(&Ranges::of(id..=id), at(begun, second));
            while closed.due(at(begun, second)).is_some() {
                closed.probed(at(begun, second), &Probe::default());
            }
            most = most.max(closed.batches.len());
        }
        assert_eq!((closed.count(), closed.ranges), (20_000, 20_000), "none is forgotten");
        assert!(most < 100, "one would be made every second: {most}");
    }
}
