//! What a log's one reader knows, and what follows from it.

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use super::closed::ClosedGaps;
use super::gaps::{Gaps, Holder, Proof};
use super::lanes::Lane;
use super::ranges::Ranges;
use super::state::ReaderState;
use super::suspects::{AHEAD, HandedOut, Suspects};
use super::window::{LaneRule, Turn, Window};
use posthaste_core::lifecycle::LeaseToken;

/// How many rows may be known and neither settled nor in flight before the reader stops looking further ahead. What it looks
/// past are rows whose lane is in flight, so a lane with a long backlog does not starve the others, nor fill the memory.
const LOOK_AHEAD: usize = 10_000;

/// For how long these may keep the reader from what is behind them. Then they are written to the table of failures, from where
/// they go in their order.
const MAX_STANDSTILL: Duration = Duration::from_secs(5);

/// It is no standstill if so many rows were read in that time: they wait, but not for long.
const PROGRESS: i64 = 2_000;

/// What the next read has to look at.
#[derive(Clone, Debug)]
pub struct Plan {
    /// These ids. If the plan goes to the tail, all beyond the highest that was read are among them, up to the bound.
    pub ids: Ranges,
    tail: bool,
    free: Ranges,
    limit: usize,
    now: Instant,
    pipelined: bool,
}

impl Plan {
    /// Whether rows may go behind others of their lane that are in flight: see [`LaneRule::Pipelined`].
    #[must_use]
    pub fn pipelined(mut self, pipelined: bool) -> Self {
        self.pipelined = pipelined;
        self
    }
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

impl ReadResult {
    /// As if the read had ended after so many rows.
    pub fn cut(&mut self, rows: usize) {
        if rows < self.rows.len() {
            self.rows.truncate(rows);
            self.complete_to = self.rows.last().map_or(i64::MIN, |row| row.id);
        }
    }
}

/// What is to be done with the rows of a read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sorted {
    /// Handed out now.
    pub handed_out: Vec<i64>,
    /// To be written to the table of failures behind an earlier one of their lane; settle them once that is done.
    pub park: Vec<i64>,
}

/// What may be risked of rows that were read, of which some may have killed an earlier reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Risk {
    /// So many of them, from the first on.
    Together(usize),
    /// The first, and nothing beside it.
    Alone,
    /// The first alone, once nothing is in flight.
    WaitsToBeAlone,
}

/// The one reader of a log.
#[derive(Clone, Debug, Default)]
pub struct LogReader {
    gaps: Gaps,
    /// The rows that were read and are not settled.
    pub window: Window,
    /// The ids that were proved never to come, for as long as they are looked at all the same.
    pub closed: ClosedGaps,
    /// Rows that may have killed an earlier reader.
    pub suspects: Suspects,
    /// No further than this, if there is a bound.
    bound: Option<i64>,
    /// Since when there has been no room, and the highest id that was read then.
    full_since: Option<(Instant, i64)>,
}

impl LogReader {
    /// Begins after the stored cursor.
    pub fn after(cursor: i64, proof: Proof) -> Self {
        Self {
            gaps: Gaps::after(cursor, proof),
            window: Window::default(),
            closed: ClosedGaps::default(),
            suspects: Suspects::default(),
            bound: None,
            full_since: None,
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

    /// The table of failures has rows at their places in the log, in whatever order they are written.
    #[must_use]
    pub fn keeping_places(mut self) -> Self {
        self.window.keeps_places = true;
        self
    }

    /// Suspects what an earlier reader may have been killed by.
    #[must_use]
    pub fn suspecting(mut self, suspects: Suspects) -> Self {
        self.suspects = suspects;
        self
    }

    /// What to write down before rows up to `last` are handed out: how far that may go, and which suspects are in flight.
    /// Suspects that are settled are forgotten.
    pub fn handed_out(&mut self, last: i64) -> HandedOut {
        self.forget_settled_suspects();
        HandedOut {
            reach: Some(self.gaps.hi().max(last).saturating_add(AHEAD)),
            suspects: self.suspects.counting(self.window.ids_in_flight()),
            retried: Suspects::default(),
        }
    }

    /// The same at a clean end: what is in flight has killed nobody.
    pub fn ended(&mut self) -> HandedOut {
        self.forget_settled_suspects();
        HandedOut {
            reach: None,
            suspects: self.suspects.clone(),
            retried: Suspects::default(),
        }
    }

    fn forget_settled_suspects(&mut self) {
        if self.suspects.is_empty() {
            return;
        }
        let mut unsettled = self.gaps.ids();
        unsettled.extend(&self.window.unsettled());
        if let Some(next) = self.gaps.hi().checked_add(1) {
            unsettled.insert(next..=i64::MAX);
        }
        self.suspects.keep_within(&unsettled);
    }

    /// What may be risked of rows that a read saw, given how many others than rows of this reader are in flight.
    pub fn risk(&self, rows: &[LogRow], batch: u32, others: usize) -> Risk {
        let Some(first) = rows.first().filter(|_| !self.suspects.is_empty()) else {
            return Risk::Together(rows.len());
        };
        if self.suspects.must_be_alone(first.id) {
            let is_alone = others + self.window.in_flight() == 0;
            return if is_alone { Risk::Alone } else { Risk::WaitsToBeAlone };
        }
        let suspected = |id: &i64| self.suspects.crashes(*id) > 0;
        let in_flight = self.window.ids_in_flight().filter(suspected).count();
        Risk::Together(self.suspects.group(rows.iter().map(|row| row.id), batch, in_flight))
    }

    /// Whether a row is in flight beside which nothing else may be.
    pub fn is_alone(&self) -> bool {
        self.suspects.to_be_alone().any(|id| self.window.is_in_flight(id))
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

    /// Whether more rows may be known than are.
    pub fn has_room(&self) -> bool {
        self.window.behind() < LOOK_AHEAD
    }

    /// Has rows that wait written to the table of failures, if they have kept the reader from reading on for a while: a receiver
    /// that is unavailable, or a lane that stands still, is no reason for all others to wait. Returns how many.
    pub fn make_room(&mut self, now: Instant) -> usize {
        if self.window.behind() < LOOK_AHEAD / 2 {
            self.full_since = None;
        }
        if self.has_room() {
            return 0;
        }
        let hi = self.gaps.hi();
        let (since, before) = *self.full_since.get_or_insert((now, hi));
        if hi.saturating_sub(before) >= PROGRESS {
            self.full_since = Some((now, hi));
        } else if now.duration_since(since) >= MAX_STANDSTILL {
            self.full_since = None;
            return self.window.park_blocked(now);
        }
        0
    }

    /// Whether rows beyond the highest id that was read may be handed out by [`LogReader::append`]: nothing below it waits, and
    /// there is no bound.
    pub fn may_append(&self) -> bool {
        self.bound.is_none() && !self.window.has_waiting()
    }

    /// What to read next, for a batch of at most `limit` rows. A read may look at more of them.
    pub fn plan(&self, now: Instant, limit: usize) -> Plan {
        let mut plan = self.plan_known(now, limit);
        plan.tail = self.has_room() && !self.is_at_bound();
        if plan.tail {
            let last = self.bound.unwrap_or(i64::MAX);
            plan.ids.insert(self.gaps.hi().saturating_add(1)..=last);
        }
        plan
    }

    /// The same without the tail: rows that wait, and all ids that are open.
    pub fn plan_known(&self, now: Instant, limit: usize) -> Plan {
        let free = self.window.free(now, limit);
        let mut ids = self.gaps.ids();
        ids.extend(&free);
        Plan {
            ids,
            tail: false,
            free,
            limit,
            now,
            pipelined: false,
        }
    }

    /// Takes note of what a plan's read saw, and hands out what may go; what is too much for the batch waits.
    pub fn read(&mut self, plan: &Plan, read: &ReadResult, token: LeaseToken, ordered: bool) -> Sorted {
        let found: Vec<i64> = read.rows.iter().map(|row| row.id).collect();
        self.gaps.observe(&found, read.complete_to, plan.tail, &read.holders);
        self.closed.add(&self.gaps.take_closed(), plan.now);
        self.forget_vanished(plan, &found, read.complete_to);
        if !self.suspects.is_empty() {
            // Whatever an earlier reader had in its hands, this one's snapshot has.
            self.suspects.forget_all(&self.gaps.looked_at());
        }
        if plan.tail && self.bound.is_none() && read.complete_to == i64::MAX {
            // What is not there yet was handed out by nobody.
            self.suspects.forget_above(self.gaps.hi());
        }
        let lanes = match (ordered, plan.pipelined) {
            (false, _) => LaneRule::Unordered,
            (true, false) => LaneRule::OneBatch,
            (true, true) => LaneRule::Pipelined,
        };
        self.sort(&read.rows, plan.limit, token, lanes)
    }

    /// Whether rows beyond the highest id that was read, `count` of them up to `last`, would pass others over.
    pub fn passes_over(&self, last: i64, count: usize) -> bool {
        self.gaps.proof() == Proof::Required && !self.gaps.is_next(last, count)
    }

    /// Takes in rows beyond the highest id that was read, as some snapshot had them, and hands out what may go. They must
    /// be all that it had up to the last of them, and the holders must have been looked up after it was taken; they are
    /// needed only if ids are passed over.
    ///
    /// Such a read says nothing about ids that are open, so it closes none. If there are any, [`LogReader::plan_known`] must
    /// have been read in a later snapshot, whole, and taken in before: whatever is visible beside these rows is found there.
    pub fn append(
        &mut self,
        rows: &[LogRow],
        holders: &BTreeSet<Holder>,
        token: LeaseToken,
        lanes: LaneRule,
    ) -> Sorted {
        let ids = rows.iter().map(|row| row.id);
        match rows.last() {
            Some(last) if self.gaps.is_next(last.id, rows.len()) => self.gaps.advance(last.id),
            _ => self.gaps.pass_over(&ids.collect::<Vec<_>>(), holders),
        }
        self.sort(rows, usize::MAX, token, lanes)
    }

    fn sort(&mut self, rows: &[LogRow], limit: usize, token: LeaseToken, lanes: LaneRule) -> Sorted {
        let mut sorted = Sorted::default();
        sorted.handed_out.reserve(rows.len().min(limit));
        let mut pass = self.window.pass(token, lanes);
        // Rows may have been read in several snapshots: what is read later must not pass what has to wait, though nothing was
        // before it any more.
        let mut parked: HashSet<&Lane> = HashSet::new();
        for row in rows {
            if row.kept {
                pass.settle(row.id);
                continue;
            }
            if pass.take_in(row.id, row.lane.as_ref()) == Turn::Waits {
                continue;
            }
            let lane = row.lane.as_ref().filter(|_| lanes != LaneRule::Unordered);
            if let Some(lane) = lane.filter(|lane| row.held || parked.contains(lane)) {
                parked.insert(lane);
                sorted.park.push(row.id);
            } else if sorted.handed_out.len() == limit {
                pass.keep(row.id);
            } else {
                pass.hand_out(row.id);
                sorted.handed_out.push(row.id);
            }
        }
        sorted
    }

    /// Rows that were there and are not any more have been removed from the log.
    fn forget_vanished(&mut self, plan: &Plan, found: &[i64], complete_to: i64) {
        let expected = plan.free.iter().flatten().take_while(|id| *id <= complete_to);
        for id in expected.filter(|id| found.binary_search(id).is_err()) {
            self.window.settle(id);
        }
    }
}

#[cfg(test)]
mod tests;
