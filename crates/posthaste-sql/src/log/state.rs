//! What a reader of a log leaves to its successor, beyond the cursor.

use std::fmt;
use std::str::FromStr;

use super::ranges::Ranges;

/// Most ranges that are written down. Beyond this near ones are written as one, which a successor may read again in part.
const MAX_RANGES: usize = 20_000;

/// How far a log was read, and which of the ids up to there are not settled: rows that are in flight or wait, and gaps.
/// Everything else at or below `hi` is settled. It stays true when it grows old: a successor that begins from an old one
/// repeats more, and skips nothing.
///
/// # Examples
/// ```
/// use posthaste_sql::log::{Ranges, ReaderState};
///
/// let state: ReaderState = "40;7-7,30-32".parse()?;
/// assert_eq!((state.hi, state.position()), (40, 6));
/// assert!(state.open.contains(31));
/// assert_eq!(state.to_string(), "40;7-7,30-32");
/// # Ok::<(), posthaste_sql::log::InvalidReaderState>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReaderState {
    /// The highest id that was read.
    pub hi: i64,
    /// The ids at or below it that are not settled.
    pub open: Ranges,
}

impl ReaderState {
    /// That of a reader that knows a cursor and nothing else.
    pub fn at(cursor: i64) -> Self {
        Self {
            hi: cursor,
            open: Ranges::default(),
        }
    }

    /// The cursor that it allows: everything at or below it is settled.
    pub fn position(&self) -> i64 {
        self.open
            .first()
            .map_or(self.hi, |open| open.saturating_sub(1).min(self.hi))
    }

    /// Every id that is not settled: the open ones, and all beyond the highest that was read.
    pub fn unsettled(&self) -> Ranges {
        let mut unsettled = self.open.clone();
        if let Some(next) = self.hi.checked_add(1) {
            unsettled.insert(next..=i64::MAX);
        }
        unsettled
    }

    /// The same in at most `max` ranges: the nearest ones become one.
    fn open_in(&self, max: usize) -> Ranges {
        let mut open = self.open.clone();
        let mut distance = 1_i64;
        while open.iter().count() > max {
            let mut nearer = Ranges::default();
            let mut last: Option<i64> = None;
            for range in open.iter() {
                let near = last.filter(|last| range.start().saturating_sub(*last) <= distance.saturating_add(1));
                nearer.insert(near.unwrap_or(*range.start())..=*range.end());
                last = Some(*range.end());
            }
            open = nearer;
            distance = distance.saturating_mul(2);
        }
        open
    }
}

/// `hi;first-last,first-last`, with as many ranges as there are.
impl fmt::Display for ReaderState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{};", self.hi)?;
        for (place, range) in self.open_in(MAX_RANGES).iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{}-{}", range.start(), range.end())?;
        }
        Ok(())
    }
}

/// A text that is no [`ReaderState`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the state of a log's reader: expected `hi;first-last,…`, such as `40;7-7,30-32`")]
pub struct InvalidReaderState(String);

impl FromStr for ReaderState {
    type Err = InvalidReaderState;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| InvalidReaderState(text.chars().take(100).collect()))
    }
}

fn parse(text: &str) -> Option<ReaderState> {
    let (hi, ranges) = text.split_once(';')?;
    let hi = hi.parse().ok()?;
    let mut open = Ranges::default();
    for range in ranges.split(',').filter(|_| !ranges.is_empty()) {
        // A sign is no dash between two numbers.
        let dash = range.char_indices().skip(1).find(|(_, c)| *c == '-')?.0;
        let (first, last): (i64, i64) = (range[..dash].parse().ok()?, range[dash + 1..].parse().ok()?);
        if first > last || last > hi {
            return None;
        }
        open.insert(first..=last);
    }
    Some(ReaderState { hi, open })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_state_is_read_as_it_was_written(
            ranges in prop::collection::vec((-50_i64..1_000, 0_i64..9), 0..30), above in 0_i64..9,
        ) {
            let mut open = Ranges::default();
            for (first, length) in &ranges {
                open.insert(*first..=first + length);
            }
            let last = open.iter().last().map_or(0, |range| *range.end());
            let state = ReaderState { hi: last + above, open };
            prop_assert_eq!(state.to_string().parse(), Ok(state));
        }

        /// Ranges that become one may hold settled ids, and must not lose open ones.
        #[test]
        fn fewer_ranges_hold_all_that_is_open(
            ids in prop::collection::btree_set(1_i64..300, 0..80), max in 1_usize..20,
        ) {
            let mut open = Ranges::default();
            for id in &ids {
                open.insert(*id..=*id);
            }
            let state = ReaderState { hi: 400, open };
            let fewer = state.open_in(max);
            prop_assert!(fewer.iter().count() <= max);
            prop_assert!(ids.iter().all(|id| fewer.contains(*id)));
            prop_assert_eq!(fewer.first(), state.open.first(), "the cursor stays");
        }
    }

    #[test]
    fn what_is_no_state_is_refused() {
        for text in [
            "",
            "7",
            ";",
            "a;",
            "7;1",
            "7;1-",
            "7;3-1",
            "7;8-9",
            "7;1-2,",
            "7;1-2;3-4",
            "7;1-2-3",
        ] {
            assert!(text.parse::<ReaderState>().is_err(), "{text}");
        }
        assert_eq!("7;".parse(), Ok(ReaderState::at(7)));
    }

    #[test]
    fn the_position_is_below_what_is_open() {
        let state: ReaderState = "9;4-5".parse().unwrap();
        assert_eq!(state.position(), 3);
        assert_eq!(ReaderState::at(9).position(), 9);
        assert!(!state.unsettled().contains(9) && state.unsettled().contains(5) && state.unsettled().contains(10));
    }
}
