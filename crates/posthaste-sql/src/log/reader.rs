//! What a log's one reader knows, and what follows from it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Instant;

use super::closed::ClosedGaps;
use super::gaps::{Gaps, Holder, Proof};
use super::ranges::Ranges;
use super::state::ReaderState;
use super::window::{Lane, Window};
use posthaste_core::lifecycle::LeaseToken;

/// How many rows may be known and unsettled before the reader stops looking further ahead. What it looks past are rows
/// whose lane is in flight, so a lane with a long backlog does not starve the others, nor fill the memory.
const LOOK_AHEAD: usize = 10_000;

/// What the next read has to look at.
#[derive(Clone, Debug)]
pub struct Plan {
    /// These ids. If the plan goes to the tail, all beyond the highest that was read are among them, up to the bound.
    pub ids: Ranges,
    tail: bool,
    free: Ranges,
    limit: usize,
    now: Instant,
}

/// A row that a read saw.
#[derive(Clone, Debug)]
pub struct LogRow {
    /// Its place in the log.
    pub id: i64,
    /// Within which order holds; `None` if it waits for no other.
    pub lane: Option<Lane>,
    /// Its event is in the table of failures: it was dealt with before a restart.
    pub kept: bool,
    /// An earlier one of its lane is in the table of failures, so that it has to wait there too.
    pub held: bool,
}

/// What a read saw, all in one snapshot, and what was found after that was taken.
#[derive(Clone, Debug)]
pub struct ReadResult {
    /// The rows by id.
    pub rows: Vec<LogRow>,
    /// Up to here every row of the plan was seen.
    pub complete_to: i64,
    /// Who holds the lock of an insert.
    pub holders: BTreeSet<Holder>,
}

/// What is to be done with the rows of a read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sorted {
    /// Handed out now.
    pub handed_out: Vec<i64>,
    /// To be written to the table of failures behind an earlier one of their lane; settle them once that is done.
    pub park: Vec<i64>,
}

/// The one reader of a log.
#[derive(Clone, Debug, Default)]
pub struct LogReader {
    gaps: Gaps,
    /// The rows that were read and are not settled.
    pub window: Window,
    /// The ids that were proved never to come, for as long as they are looked at all the same.
    pub closed: ClosedGaps,
    /// No further than this, if there is a bound.
    bound: Option<i64>,
}

impl LogReader {
    /// Begins after the stored cursor.
    pub fn after(cursor: i64, proof: Proof) -> Self {
        Self {
            gaps: Gaps::after(cursor, proof),
            window: Window::default(),
            closed: ClosedGaps::default(),
            bound: None,
        }
    }

    /// Goes on where an earlier reader ended.
    pub fn resume(state: &ReaderState, proof: Proof) -> Self {
        Self {
            gaps: Gaps::resume(state, proof),
            ..Self::after(state.hi, proof)
        }
    }

    /// Looks at closed ids again, for as long as these are kept.
    #[must_use]
    pub fn with_closed(mut self, closed: ClosedGaps) -> Self {
        self.closed = closed;
        self
    }

    /// The cursor to store: everything at or below it is settled, and no row will come there any more.
    pub fn position(&self) -> i64 {
        let lowest_open = self.gaps.first().into_iter().chain(self.window.first()).min();
        lowest_open.map_or(self.gaps.hi(), |open| open - 1)
    }

    /// The same, and below what may have come late: see [`ClosedGaps::holds_cursor_at`]. It may be lower than what was
    /// stored before; then there is nothing to store.
    pub fn safe_position(&self, now: Instant) -> i64 {
        let held = self.closed.holds_cursor_at(now).map_or(i64::MAX, |id| id - 1);
        self.position().min(held)
    }

    /// What to leave to a successor. Ids at which rows may come late are open in it: see [`ClosedGaps::left_to_successor`].
    pub fn state(&self, now: Instant) -> ReaderState {
        let mut open = self.gaps.ids();
        open.extend(&self.window.unsettled());
        open.extend(&self.closed.left_to_successor(self.position(), now));
        ReaderState {
            hi: self.gaps.hi(),
            open,
        }
    }

    /// Reads no further than this id, or as far as there are rows. What was read beyond it stays read.
    pub fn stay_within(&mut self, bound: Option<i64>) {
        self.bound = bound;
    }

    /// Whether the bound keeps it from reading on.
    pub fn is_at_bound(&self) -> bool {
        self.bound.is_some_and(|bound| self.gaps.hi() >= bound)
    }

    /// The gaps.
    pub fn gaps(&self) -> &Gaps {
        &self.gaps
    }

    /// What has not been handed out: waiting rows, open gaps and the tail.
    pub fn unread(&self) -> Ranges {
        let mut unread = self.window.waiting();
        unread.extend(&self.gaps.ids());
        unread.insert(self.gaps.hi().saturating_add(1)..=i64::MAX);
        unread
    }

    /// What to read next, for a batch of at most `limit` rows. A read may look at more of them.
    pub fn plan(&self, now: Instant, limit: usize) -> Plan {
        let free = self.window.free(now, limit);
        let tail = self.window.len() < LOOK_AHEAD && !self.is_at_bound();
        let mut ids = self.gaps.ids();
        ids.extend(&free);
        if tail {
            ids.insert(self.gaps.hi().saturating_add(1)..=self.bound.unwrap_or(i64::MAX));
        }
        Plan {
            ids,
            tail,
            free,
            limit,
            now,
        }
    }

    /// Takes note of what a plan's read saw, and hands out what may go; what is too much for the batch waits.
    pub fn read(&mut self, plan: &Plan, read: &ReadResult, token: LeaseToken, ordered: bool) -> Sorted {
        let found: Vec<i64> = read.rows.iter().map(|row| row.id).collect();
        self.gaps.observe(&found, read.complete_to, plan.tail, &read.holders);
        self.closed.add(&self.gaps.take_closed(), plan.now);
        self.forget_vanished(plan, &found, read.complete_to);
        let mut sorted = Sorted::default();
        let mut goes_with: HashMap<&Lane, i64> = HashMap::new();
        let mut stopped: HashSet<&Lane> = HashSet::new();
        for row in &read.rows {
            if row.kept {
                self.window.settle(row.id);
                continue;
            }
            let lane = row.lane.as_ref().filter(|_| ordered);
            if let Some(lane) = lane {
                let last = goes_with.get(lane).copied();
                if stopped.contains(lane) || !self.window.may_go(row.id, lane, last) {
                    stopped.insert(lane);
                    self.window.insert(row.id, row.lane.clone());
                    continue;
                }
                goes_with.insert(lane, row.id);
            }
            self.window.insert(row.id, row.lane.clone());
            if lane.is_some() && row.held {
                sorted.park.push(row.id);
            } else if sorted.handed_out.len() == plan.limit {
                stopped.extend(lane);
            } else {
                self.window.hand_out(row.id, token);
                sorted.handed_out.push(row.id);
            }
        }
        sorted
    }

    /// Rows that were there and are not any more have been removed from the log.
    fn forget_vanished(&mut self, plan: &Plan, found: &[i64], complete_to: i64) {
        let found: HashSet<i64> = found.iter().copied().collect();
        let expected = plan.free.iter().flatten().take_while(|id| *id <= complete_to);
        let vanished: Vec<i64> = expected.filter(|id| !found.contains(id)).collect();
        for id in vanished {
            self.window.settle(id);
        }
    }
}

#[cfg(test)]
mod tests;
