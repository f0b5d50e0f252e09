//! How far a dead-letter topic has been replayed.

use std::fmt::Write;

/// Longest form in which progress can be kept. Brokers take 4,096 bytes with a committed offset unless told otherwise.
pub(super) const MAX_METADATA_BYTES: usize = 3_500;

/// What was replayed of one partition: everything below a position, and some letters above it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) position: i64,
    /// Half open, ascending, apart from each other and from the position.
    above: Vec<(i64, i64)>,
}

impl Progress {
    pub(super) fn at(position: i64) -> Self {
        let above = Vec::new();
        Self { position, above }
    }

    pub(super) fn includes(&self, offset: i64) -> bool {
        offset < self.position || self.above.iter().any(|(from, to)| (*from..*to).contains(&offset))
    }

    /// Takes the offsets from `from` to below `to` as done.
    pub(super) fn add(&mut self, from: i64, to: i64) {
        if from >= to {
            return;
        }
        self.above.push((from, to));
        self.above.sort_unstable();
        let mut joined: Vec<(i64, i64)> = Vec::with_capacity(self.above.len());
        for (from, to) in std::mem::take(&mut self.above) {
            match joined.last_mut() {
                _ if from <= self.position => self.position = self.position.max(to),
                Some((_, end)) if from <= *end => *end = (*end).max(to),
                _ => joined.push((from, to)),
            }
        }
        self.above = joined;
    }

    /// Removes what the log does not have: retention deleted it, or it never came to be.
    pub(super) fn within(mut self, low: i64, high: i64) -> Self {
        self.add(self.position, low);
        // The tail of a log can be lost, and then be written again.
        self.position = self.position.min(high).max(low);
        self.above.retain(|(from, _)| *from < high);
        if let Some((_, to)) = self.above.last_mut() {
            *to = (*to).min(high);
        }
        self
    }

    /// How many offsets from the position to below `high` are not done.
    pub(super) fn open(&self, high: i64) -> u64 {
        let above: i64 = self.above.iter().map(|(from, to)| to - from).sum();
        u64::try_from(high - self.position - above).unwrap_or_default()
    }

    /// What is above the position, such as `5,7-9`.
    pub(super) fn above(&self) -> String {
        let mut text = String::new();
        for (from, to) in &self.above {
            let comma = if text.is_empty() { "" } else { "," };
            let written = match to - from {
                1 => write!(text, "{comma}{from}"),
                _ => write!(text, "{comma}{from}-{}", to - 1),
            };
            written.expect("a String takes all that is written");
        }
        text
    }

    /// Reads back what was written; `None` if it was not written here.
    pub(super) fn read(position: i64, above: &str) -> Option<Self> {
        let mut progress = Self::at(position);
        for range in above.split(',').filter(|range| !range.is_empty()) {
            let (from, last) = range.split_once('-').unwrap_or((range, range));
            let (from, last) = (from.parse().ok()?, last.parse::<i64>().ok()?);
            progress.add(from, last.checked_add(1)?);
        }
        Some(progress)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_done_out_of_order_is_remembered_until_the_position_reaches_it() {
        let mut progress = Progress::at(2);
        progress.add(7, 8);
        progress.add(4, 6);
        assert_eq!((progress.position, progress.above().as_str()), (2, "4-5,7"));
        assert_eq!(progress.open(9), 4);
        progress.add(2, 4);
        assert_eq!((progress.position, progress.above().as_str()), (6, "7"));
        progress.add(6, 7);
        assert_eq!(progress, Progress::at(8));
    }

    #[test]
    fn what_the_log_lost_is_not_open() {
        let mut progress = Progress::at(2);
        progress.add(7, 9);
        assert_eq!(progress.clone().within(5, 20), {
            let mut moved = Progress::at(5);
            moved.add(7, 9);
            moved
        });
        assert_eq!(progress.clone().within(7, 20), Progress::at(9));
        assert_eq!(progress.clone().within(0, 8).open(8), 5);
        assert_eq!(progress.within(0, 1), Progress::at(1));
    }

    #[test]
    fn what_others_wrote_is_not_taken_for_progress() {
        assert_eq!(Progress::read(3, ""), Some(Progress::at(3)));
        assert_eq!(Progress::read(3, "some text"), None);
        assert_eq!(Progress::read(3, "5-9223372036854775807"), None);
    }

    proptest! {
        #[test]
        fn any_order_of_work_is_remembered_exactly(
            position in 0..20_i64,
            work in prop::collection::vec((0..60_i64, 0..6_i64), 0..30),
        ) {
            let mut progress = Progress::at(position);
            let mut done: BTreeSet<i64> = (0..position).collect();
            for (from, length) in work {
                progress.add(from, from + length);
                done.extend(from..from + length);
            }
            let read = Progress::read(progress.position, &progress.above());
            prop_assert_eq!(read.as_ref(), Some(&progress));
            for offset in 0..80 {
                prop_assert_eq!(progress.includes(offset), done.contains(&offset), "{}", offset);
            }
            prop_assert!(!done.contains(&progress.position));
            let open = (0..80).filter(|offset| !done.contains(offset)).count() as u64;
            prop_assert_eq!(progress.open(80), open);
        }
    }
}
