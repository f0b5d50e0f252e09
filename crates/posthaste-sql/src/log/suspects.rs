//! Which rows may have killed the reader that handed them out, and how few of them are risked together.
//!
//! A row of a log is never changed, so nothing on it says how often it was tried. Instead a reader writes down how far it may
//! hand rows out before it does ([`HandedOut`]), many rows ahead, so that this costs next to nothing. One that ends without
//! a word leaves that behind, and its successor suspects every unsettled row up to there. Suspects are handed out in groups
//! that become smaller with every crash, at last one at a time with nothing beside it; which ones these are is written down
//! each time. Only a row that was alone whenever its reader crashed is given up, after as many crashes as it has attempts. A
//! row that is settled is suspected no more, so readers that are killed for reasons of their own cost no message.
//!
//! Rows of the table of failures have no order in which they go, so those in flight are written down one by one, before they
//! go: see [`SuspectedRetries`](super::SuspectedRetries).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use posthaste_core::lifecycle::EXHAUSTED;
use posthaste_core::reclaim::reclaim_limit;

use super::ranges::Ranges;
use super::state::ReaderState;
use super::window::Failure;

/// So many ids beyond the last that was read may be handed out before that is written down again.
pub const AHEAD: i64 = 10_000;

/// What was in flight in so many crashes is handed out alone.
const ALONE_AFTER: u32 = 3;

/// Rows that may have killed their readers, with the number of crashes in which each may have been in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspects {
    by_crashes: BTreeMap<u32, Ranges>,
}

impl Suspects {
    /// Whether nothing is suspected.
    pub fn is_empty(&self) -> bool {
        self.by_crashes.is_empty()
    }

    /// How many crashes a row may have caused.
    pub fn crashes(&self, id: i64) -> u32 {
        let suspected = self.by_crashes.iter().find(|(_, ids)| ids.contains(id));
        suspected.map_or(0, |(crashes, _)| *crashes)
    }

    /// Whether nothing else may be in flight beside a row.
    pub fn must_be_alone(&self, id: i64) -> bool {
        self.crashes(id) >= ALONE_AFTER
    }

    /// The crashes in which a row was alone: that many attempts it has used.
    pub fn crashes_alone(&self, id: i64) -> u32 {
        self.crashes(id).saturating_sub(ALONE_AFTER)
    }

    /// The rows that are to be alone. Few: they were in flight together in a small group.
    pub fn to_be_alone(&self) -> impl Iterator<Item = i64> {
        let alone = self.by_crashes.range(ALONE_AFTER..);
        alone.flat_map(|(_, ids)| ids.iter().flatten())
    }

    /// What becomes of a row that has used its attempts by crashing: its verdict, if it has.
    pub fn exhausted(&self, id: i64, max_attempts: u32) -> Option<Failure> {
        (self.must_be_alone(id) && self.crashes_alone(id) >= max_attempts).then(|| Failure {
            id,
            delay: std::time::Duration::ZERO,
            dead: true,
            error: Some(EXHAUSTED.to_owned()),
        })
    }

    /// How many rows that may have caused so many crashes may be in flight together.
    pub fn most_together(crashes: u32, batch: u32) -> u32 {
        match crashes {
            0 => batch,
            _ => reclaim_limit(crashes, ALONE_AFTER + 1, batch),
        }
    }

    /// How many of these rows, from the first on, make a group: all may have caused as many crashes as the first. `batch` is
    /// how many are wanted, and `in_flight` how many suspects are handed out already.
    pub fn group(&self, ids: impl IntoIterator<Item = i64>, batch: u32, in_flight: usize) -> usize {
        let mut ids = ids.into_iter().peekable();
        let Some(first) = ids.peek() else { return 0 };
        let crashes = self.crashes(*first);
        let room = match crashes {
            0 => usize::MAX,
            _ => (Self::most_together(crashes, batch) as usize).saturating_sub(in_flight),
        };
        ids.take(room).take_while(|id| self.crashes(*id) == crashes).count()
    }

    /// Forgets what is settled.
    pub(super) fn keep_within(&mut self, unsettled: &Ranges) {
        for ids in self.by_crashes.values_mut() {
            *ids = ids.within(unsettled);
        }
        self.by_crashes.retain(|_, ids| !ids.is_empty());
    }

    /// Forgets ids beyond one, which no row has yet.
    pub(super) fn forget_above(&mut self, id: i64) {
        for ids in self.by_crashes.values_mut() {
            drop(ids.split_above(id));
        }
        self.by_crashes.retain(|_, ids| !ids.is_empty());
    }

    /// All of them.
    pub fn ids(&self) -> impl Iterator<Item = i64> {
        self.by_crashes.values().flat_map(|ids| ids.iter().flatten())
    }

    /// Forgets a row.
    pub(super) fn forget(&mut self, id: i64) {
        self.forget_all(&Ranges::of(id..=id));
    }

    /// Forgets rows.
    pub(super) fn forget_all(&mut self, ids: &Ranges) {
        self.insert(0, ids);
        self.by_crashes.remove(&0);
    }

    /// The same if the reader crashed now: those in flight may have caused one more, be they suspected already or not.
    pub(super) fn counting_all(&self, in_flight: impl IntoIterator<Item = i64>) -> Self {
        let mut counted = self.clone();
        for id in in_flight {
            counted.insert(self.crashes(id).saturating_add(1), &Ranges::of(id..=id));
        }
        counted
    }

    /// The same if the reader crashed now: those in flight may have caused one more.
    pub(super) fn counting(&self, in_flight: impl IntoIterator<Item = i64>) -> Self {
        let mut counted = self.clone();
        for id in in_flight {
            let crashes = self.crashes(id);
            if crashes > 0 {
                counted.insert(crashes.saturating_add(1), &Ranges::of(id..=id));
            }
        }
        counted
    }

    /// Those of more crashes are so alone.
    fn insert(&mut self, crashes: u32, ids: &Ranges) {
        for others in self.by_crashes.values_mut() {
            ids.iter().for_each(|range| others.remove_range(range));
        }
        self.by_crashes.retain(|_, ids| !ids.is_empty());
        if !ids.is_empty() {
            self.by_crashes.entry(crashes).or_default().extend(ids);
        }
    }
}

/// What a reader writes down before it hands rows out, for the case that it crashes.
///
/// # Examples
/// ```
/// use posthaste_sql::log::{HandedOut, ReaderState};
///
/// // A reader wrote how far rows are settled, and how far it may hand them out. Then it crashed.
/// let (state, handed_out): (ReaderState, HandedOut) = ("40;7-7".parse()?, "100;".parse()?);
/// let suspects = handed_out.suspects(&state);
/// assert_eq!((suspects.crashes(7), suspects.crashes(8), suspects.crashes(90)), (1, 0, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandedOut {
    /// No row beyond this one is handed out. None by a reader that ended with a word: what it had in flight is no suspect.
    pub reach: Option<i64>,
    /// Rows that are suspected already; of those in flight with one crash more.
    pub suspects: Suspects,
    /// The same of the table of failures, by their numbers there, with all that are in flight.
    pub retried: Suspects,
}

impl HandedOut {
    /// What the successor of a reader that wrote this suspects, given how far the log is settled.
    pub fn suspects(&self, state: &ReaderState) -> Suspects {
        let mut suspects = Suspects::default();
        if let Some(reach) = self.reach {
            let mut unsettled = state.unsettled();
            drop(unsettled.split_above(reach.max(state.hi)));
            suspects.insert(1, &unsettled);
        }
        let mut before = self.suspects.clone();
        before.keep_within(&state.unsettled());
        for (crashes, ids) in &before.by_crashes {
            suspects.insert(*crashes, ids);
        }
        suspects
    }
}

/// `reach;first-last:crashes,first-last:crashes`, without a reach after a clean end; where there are failed rows, these follow
/// in the same way.
impl fmt::Display for HandedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(reach) = self.reach {
            write!(f, "{reach}")?;
        }
        write!(f, ";{}", self.suspects)?;
        if self.retried.is_empty() {
            Ok(())
        } else {
            write!(f, ";{}", self.retried)
        }
    }
}

impl fmt::Display for Suspects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (crashes, ids) in &self.by_crashes {
            for range in ids.iter() {
                write!(f, "{separator}{}-{}:{crashes}", range.start(), range.end())?;
                separator = ",";
            }
        }
        Ok(())
    }
}

/// A text that is no [`HandedOut`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` does not say what a log's reader handed out: expected `reach;first-last:crashes,…`, such as `40;7-9:2`")]
pub struct InvalidHandedOut(String);

impl FromStr for HandedOut {
    type Err = InvalidHandedOut;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| InvalidHandedOut(text.chars().take(100).collect()))
    }
}

fn parse(text: &str) -> Option<HandedOut> {
    let (reach, rows) = text.split_once(';')?;
    let reach = if reach.is_empty() {
        None
    } else {
        Some(reach.parse().ok()?)
    };
    let (suspects, retried) = match rows.split_once(';') {
        Some((_, "")) => return None,
        Some((suspects, retried)) => (parse_suspects(suspects)?, parse_suspects(retried)?),
        None => (parse_suspects(rows)?, Suspects::default()),
    };
    Some(HandedOut {
        reach,
        suspects,
        retried,
    })
}

fn parse_suspects(ranges: &str) -> Option<Suspects> {
    let mut suspects = Suspects::default();
    for range in ranges.split(',').filter(|_| !ranges.is_empty()) {
        let (range, crashes) = range.split_once(':')?;
        // A sign is no dash between two numbers.
        let dash = range.char_indices().skip(1).find(|(_, c)| *c == '-')?.0;
        let (first, last): (i64, i64) = (range[..dash].parse().ok()?, range[dash + 1..].parse().ok()?);
        let crashes: u32 = crashes.parse().ok()?;
        if first > last || crashes == 0 {
            return None;
        }
        suspects.insert(crashes, &Ranges::of(first..=last));
    }
    Some(suspects)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn suspects(text: &str) -> Suspects {
        format!(";{text}").parse::<HandedOut>().unwrap().suspects
    }

    #[test]
    fn what_is_unsettled_within_the_reach_is_suspected_and_nothing_else() {
        let state: ReaderState = "40;7-9,20-20".parse().unwrap();
        let found = "50;".parse::<HandedOut>().unwrap().suspects(&state);
        assert_eq!(found, suspects("7-9:1,20-20:1,41-50:1"));
        let clean = ";".parse::<HandedOut>().unwrap().suspects(&state);
        assert!(clean.is_empty(), "a reader that says that it ends has not crashed");
    }

    #[test]
    fn what_was_suspected_before_and_is_settled_is_so_no_more() {
        let state: ReaderState = "40;8-9".parse().unwrap();
        let found = "50;7-8:3,9-9:2,41-41:1".parse::<HandedOut>().unwrap().suspects(&state);
        assert_eq!(found, suspects("8-8:3,9-9:2,41-50:1"));
    }

    #[test]
    fn suspects_go_in_ever_smaller_groups_of_equals_and_at_last_alone() {
        let suspects = suspects("1-5:3,6-100:2,101-5000:1");
        assert_eq!(suspects.group(1..=9, 1_000, 0), 1);
        assert_eq!(suspects.group(6..=90, 1_000, 0), 10);
        assert_eq!(suspects.group(6..=90, 1_000, 8), 2, "with those that are out already");
        assert_eq!(suspects.group(99..=900, 1_000, 0), 2, "none of another kind");
        assert_eq!(suspects.group(101..=900, 1_000, 0), 100);
        assert_eq!(
            suspects.group(5_001..=5_900, 1_000, 99),
            900,
            "who is no suspect is not held back"
        );
        assert_eq!(suspects.group([], 1_000, 0), 0);
    }

    /// Proves B8.
    #[test]
    fn only_what_was_alone_in_every_crash_has_used_its_attempts() {
        let suspects = suspects("1-1:2,2-2:3,3-3:7,4-4:8");
        let exhausted: Vec<i64> = (0..6).filter(|id| suspects.exhausted(*id, 5).is_some()).collect();
        assert_eq!(exhausted, [4]);
        assert_eq!(suspects.crashes_alone(3), 4);
        assert_eq!(suspects.to_be_alone().collect::<Vec<_>>(), [2, 3, 4]);
    }

    #[test]
    fn what_is_in_flight_is_counted_ahead_of_a_crash() {
        let counted = suspects("1-4:1").counting([2, 9]);
        assert_eq!(counted, suspects("1-1:1,2-2:2,3-4:1"));
        let counted = suspects("1-4:1").counting_all([2, 9]);
        assert_eq!(counted, suspects("1-1:1,2-2:2,3-4:1,9-9:1"));
    }

    proptest! {
        #[test]
        fn it_is_read_as_it_was_written(
            reach in prop::option::of(-50_i64..1_000),
            fresh in prop::collection::vec((-50_i64..1_000, 0_i64..9, 1_u32..9), 0..20),
            failed in prop::collection::vec((-50_i64..1_000, 0_i64..9, 1_u32..9), 0..20),
        ) {
            let [suspects, retried] = [fresh, failed].map(|ranges| {
                let mut suspects = Suspects::default();
                for (first, length, crashes) in ranges {
                    suspects.insert(crashes, &Ranges::of(first..=first + length));
                }
                suspects
            });
            let handed_out = HandedOut { reach, suspects, retried };
            prop_assert_eq!(handed_out.to_string().parse(), Ok(handed_out));
        }
    }

    #[test]
    fn what_says_nothing_is_refused() {
        for text in [
            "",
            "7",
            "a;",
            "7;1-2",
            "7;1:2",
            "7;2-1:1",
            "7;1-2:0",
            "7;1-2:1,",
            "7;1-2:1;",
            "7;;",
            "7;;1-2:1;",
            "7;;3:1",
        ] {
            assert!(text.parse::<HandedOut>().is_err(), "{text}");
        }
    }
}
