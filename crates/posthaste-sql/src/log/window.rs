//! The rows that were read and are not settled, and the order in which they may go.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use super::lanes::{Lane, Lanes};
use super::ranges::Ranges;
use super::rows::{At, Row, Rows};
use posthaste_core::lifecycle::LeaseToken;

/// A write that the database refused is tried again after this, then after twice as long, and so on.
const FIRST_REWRITE: Duration = Duration::from_secs(1);

/// The caller that remembers the verdict counts the wait from a little later.
const REWRITE_SLACK: Duration = Duration::from_millis(100);

/// The longest wait between two tries.
const MAX_REWRITE: Duration = Duration::from_mins(1);

/// A row that has to be written to the table of failures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The row.
    pub id: i64,
    /// How long it waits.
    pub delay: Duration,
    /// Whether it is given up.
    pub dead: bool,
    /// Why it failed; `None` if it was not tried and only waits behind an earlier row of its lane.
    pub error: Option<String>,
}

impl Failure {
    /// Whether it was not tried.
    pub fn only_waits(&self) -> bool {
        !self.dead && self.error.is_none()
    }

    /// A row that was not tried and only waits behind others.
    pub fn parked(id: i64) -> Self {
        Self {
            id,
            delay: Duration::ZERO,
            dead: false,
            error: None,
        }
    }
}

/// When a write that was refused is tried again.
#[derive(Clone, Copy, Debug)]
pub struct Rewrite {
    at: Instant,
    wait: Duration,
}

impl Rewrite {
    /// After a refusal, given the wait before it.
    #[must_use]
    pub fn after(before: Option<Self>, now: Instant) -> Self {
        let wait = before.map_or(FIRST_REWRITE, |before| (before.wait * 2).min(MAX_REWRITE));
        Self { at: now + wait, wait }
    }

    /// Whether it is time.
    pub fn is_due(self, now: Instant) -> bool {
        self.at <= now
    }
}

/// Where a row stands that was read and is not settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It may be handed out, at once or later.
    Waiting {
        /// Not before this.
        due: Option<Instant>,
    },
    /// It is handed out.
    InFlight,
    /// It failed, which is not written down yet.
    Failed(Failure),
}

/// What is kept of the few rows that were not simply delivered.
#[derive(Clone, Debug, Default)]
struct Note {
    /// It is not handed out before this.
    due: Option<Instant>,
    /// It goes to the table of failures: once no earlier row of its lane is unsettled, so that the table has the lane in
    /// order, and once the database takes it.
    failure: Option<Failure>,
    /// The database refused to write what became of it.
    refused: Option<Rewrite>,
    /// It is to be written there so that others have room, and not because it stands behind a row that is there.
    makes_room: bool,
}

/// The rows that were read and are not settled.
#[derive(Clone, Debug, Default)]
pub struct Window {
    rows: Rows,
    lanes: Lanes,
    notes: BTreeMap<i64, Note>,
    in_flight: usize,
    failed: usize,
    passes: u64,
    /// The table of failures has rows at their places in the log, in whatever order they are written.
    pub(super) keeps_places: bool,
    /// When rows may be written there again to make room for others, after it did not take some.
    parking: Option<Rewrite>,
}

/// One pass over rows that were read, in the order of their ids.
#[derive(Debug)]
pub struct Pass<'w> {
    window: &'w mut Window,
    token: LeaseToken,
    lanes: LaneRule,
    number: u64,
}

/// In which order rows go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneRule {
    /// In any.
    Unordered,
    /// In that of their lane: nothing goes while others of the lane are in flight.
    OneBatch,
    /// In that of their lane, also behind others that are in flight: whoever sends them keeps the order by itself.
    Pipelined,
}

impl Window {
    /// The lowest row that is not settled.
    pub fn first(&self) -> Option<i64> {
        self.rows.first()
    }

    /// How many rows are not settled.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether everything is settled.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many rows are handed out.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The rows that are handed out.
    pub fn ids_in_flight(&self) -> impl Iterator<Item = i64> {
        let handed_out = self.rows.iter().filter(|row| matches!(row.at, At::InFlight(_)));
        handed_out.map(|row| row.id)
    }

    /// How many rows are not settled and not handed out.
    pub fn behind(&self) -> usize {
        self.len() - self.in_flight
    }

    /// Whether rows wait to be handed out, due or not.
    pub fn has_waiting(&self) -> bool {
        self.behind() > self.failed
    }

    /// Whether rows failed, which is not written down yet.
    pub fn has_failed(&self) -> bool {
        self.failed > 0
    }

    fn that_wait(&self) -> impl Iterator<Item = &Row> {
        // Nothing is walked through if there is none.
        let waiting = self.has_waiting().then(|| self.rows.iter());
        waiting.into_iter().flatten().filter(|row| row.at == At::Waiting)
    }

    /// The rows that are not handed out, due or not.
    pub fn waiting(&self) -> Ranges {
        ranges(self.that_wait().map(|row| row.id))
    }

    /// The ids of all rows that are not settled.
    pub fn unsettled(&self) -> Ranges {
        ranges(self.rows.iter().map(|row| row.id))
    }

    /// All rows that are not settled.
    pub fn standings(&self) -> impl Iterator<Item = (i64, Standing)> {
        self.rows.iter().map(|row| {
            let standing = match row.at {
                At::InFlight(_) => Standing::InFlight,
                At::Failed => Standing::Failed(self.failure(row.id)),
                At::Waiting | At::Settled => Standing::Waiting { due: self.due(row.id) },
            };
            (row.id, standing)
        })
    }

    fn due(&self, id: i64) -> Option<Instant> {
        self.notes.get(&id)?.due
    }

    fn refused(&self, id: i64) -> Option<Rewrite> {
        self.notes.get(&id)?.refused
    }

    fn failure(&self, id: i64) -> Failure {
        let noted = self.notes.get(&id).and_then(|note| note.failure.clone());
        noted.unwrap_or_else(|| Failure::parked(id))
    }

    /// Whether a row waits to be handed out.
    pub fn is_waiting(&self, id: i64) -> bool {
        self.rows.get(id).is_some_and(|row| row.at == At::Waiting)
    }

    /// Lanes of which rows are handed out.
    pub fn lanes_in_flight(&self) -> impl Iterator<Item = &Lane> {
        self.lanes.in_flight()
    }

    /// Lanes that have rows which are not settled, each with the first of them: nothing behind that may go.
    pub fn unsettled_lanes(&self) -> impl Iterator<Item = (&Lane, i64)> {
        self.lanes.unsettled()
    }

    /// The first `limit` rows that may be handed out now: due, and not behind one of their lane that may not.
    pub fn free(&self, now: Instant, limit: usize) -> Ranges {
        let mut free = Ranges::default();
        if !self.has_waiting() {
            return free;
        }
        let mut held = self.no_lanes();
        let mut found = 0;
        for row in self.rows.iter() {
            if found == limit {
                break;
            }
            let due = row.at == At::Waiting && self.due(row.id).is_none_or(|due| due <= now);
            let is_held = |lane: u32| held[lane as usize] || self.lanes.get(lane).in_flight > 0;
            if due && !row.lane.is_some_and(is_held) {
                free.insert(row.id..=row.id);
                found += 1;
            } else if let Some(lane) = row.lane {
                held[lane as usize] = true;
            }
        }
        free
    }

    /// A mark for each lane.
    fn no_lanes(&self) -> Vec<bool> {
        vec![false; self.lanes.count()]
    }

    /// Begins to go through rows that were read.
    pub fn pass(&mut self, token: LeaseToken, lanes: LaneRule) -> Pass<'_> {
        self.passes += 1;
        let number = self.passes;
        Pass {
            window: self,
            token,
            lanes,
            number,
        }
    }

    /// Takes in a row that was read; one that is known stays as it is.
    pub fn insert(&mut self, id: i64, lane: Option<&Lane>) {
        self.take_in(id, lane, At::Waiting);
    }

    /// Returns the number of the row's lane, and whether it is new.
    fn take_in(&mut self, id: i64, lane: Option<&Lane>, at: At) -> (Option<u32>, bool) {
        if let Some(row) = self.rows.get(id) {
            return (row.lane, false);
        }
        let lane = lane.map(|lane| self.lanes.add(lane, id));
        self.rows.insert(Row { id, lane, at });
        (lane, true)
    }

    /// Hands a row out.
    pub fn hand_out(&mut self, id: i64, token: LeaseToken) {
        self.place(id, At::InFlight(token));
    }

    /// Whether a row is handed out.
    pub fn is_in_flight(&self, id: i64) -> bool {
        self.rows.get(id).is_some_and(|row| matches!(row.at, At::InFlight(_)))
    }

    /// Whether a row is handed out under this token.
    pub fn is_held(&self, id: i64, token: LeaseToken) -> bool {
        self.rows.get(id).is_some_and(|row| row.at == At::InFlight(token))
    }

    /// A row was not attempted, or not for good: it may be handed out again, at once or when it is due.
    pub fn put_back(&mut self, id: i64, due: Option<Instant>) {
        let refused = self.refused(id).map(|refused| refused.at + REWRITE_SLACK);
        let due = due.max(refused);
        if self.place(id, At::Waiting) && (due.is_some() || self.notes.contains_key(&id)) {
            self.notes.entry(id).or_default().due = due;
        }
    }

    /// All rows of a token are handed back.
    pub fn put_back_all(&mut self, token: LeaseToken) {
        if self.in_flight == 0 {
            return;
        }
        let held = self.rows.iter().filter(|row| row.at == At::InFlight(token));
        let held: Vec<i64> = held.map(|row| row.id).collect();
        for id in held {
            self.put_back(id, None);
        }
    }

    /// A row failed. See [`Window::failures`].
    pub fn fail(&mut self, failure: Failure) {
        if self.place(failure.id, At::Failed) {
            let note = self.notes.entry(failure.id).or_default();
            note.failure = Some(failure);
        }
    }

    /// The failures that may be written down now: those that have no unsettled row of their lane before them, and were
    /// not refused a moment ago. Where the table keeps places, rows that only wait behind others may be written at any time.
    pub fn failures(&self, now: Instant) -> Vec<Failure> {
        let mut failures = Vec::new();
        if self.failed == 0 {
            return failures;
        }
        let mut held = self.no_lanes();
        for row in self.rows.iter() {
            let due = || self.refused(row.id).is_none_or(|refused| refused.is_due(now));
            let is_held = row.lane.is_some_and(|lane| held[lane as usize]);
            if row.at == At::Failed && due() {
                let failure = self.failure(row.id);
                if !is_held || (self.keeps_places && failure.only_waits()) {
                    failures.push(failure);
                    continue;
                }
            }
            if let Some(lane) = row.lane {
                held[lane as usize] = true;
            }
        }
        failures
    }

    /// Has rows that wait for others, or for a time of their own, written to the table of failures. Those that may go now stay, and
    /// those whose verdicts were refused: what is remembered of them is known by their places in the log. Returns how many.
    pub(super) fn park_blocked(&mut self, now: Instant) -> usize {
        if self.parking.is_some_and(|rest| !rest.is_due(now)) {
            return 0;
        }
        let free = self.free(now, usize::MAX);
        let is_blocked = |id: &i64| !free.contains(*id) && self.refused(*id).is_none();
        let blocked: Vec<i64> = self.that_wait().map(|row| row.id).filter(is_blocked).collect();
        for id in &blocked {
            let delay = self
                .due(*id)
                .map_or(Duration::ZERO, |due| due.saturating_duration_since(now));
            let parked = Failure::parked(*id);
            self.fail(Failure { delay, ..parked });
            self.notes.entry(*id).or_default().makes_room = true;
        }
        blocked.len()
    }

    /// The database refused to write a failure down. It is kept here, and with it its lane, until the database takes it.
    /// Returns whether this is news.
    pub fn refuse_failure(&mut self, id: i64, now: Instant) -> bool {
        if self.rows.get(id).is_none() {
            return false;
        }
        let note = self.notes.entry(id).or_default();
        note.refused.replace(Rewrite::after(note.refused, now)).is_none()
    }

    /// The same where the one whose verdict it is keeps that in mind: the row is handed out again after a while, and the
    /// verdict comes again. Its lane waits for it.
    pub fn refuse_verdict(&mut self, id: i64, now: Instant) {
        self.refuse_failure(id, now);
        self.put_back(id, None);
    }

    /// The database did not take a row that was not tried: it goes on waiting here, and what stands behind it in its lane too. Returns
    /// whether this is news, which it is once until such rows are tried again to make room.
    pub fn keep_waiting(&mut self, row: &Failure, now: Instant) -> bool {
        let (rest, is_news) = match self.parking {
            Some(rest) if !rest.is_due(now) => (rest, false),
            before => (Rewrite::after(before, now), true),
        };
        self.parking = Some(rest);
        let makes_room = self.notes.get(&row.id).is_some_and(|note| note.makes_room);
        let due = (!row.delay.is_zero()).then(|| now + row.delay);
        // One that stands behind a row of that table would be found to do so at once.
        let due = if makes_room { due } else { due.max(Some(rest.at)) };
        self.put_back(row.id, due);
        is_news
    }

    /// The table of failures takes rows that only wait.
    pub fn may_park(&mut self) {
        self.parking = None;
    }

    /// The lane of a row that is not settled.
    pub fn lane(&self, id: i64) -> Option<&Lane> {
        let lane = self.rows.get(id)?.lane?;
        Some(&self.lanes.get(lane).lane)
    }

    /// Whether a row of this lane before `id` is not settled.
    pub fn is_behind(&self, id: i64, lane: &Lane) -> bool {
        self.lanes.named(lane).is_some_and(|rows| rows.has_before(id))
    }

    /// A row is settled: delivered, written to the table of failures, or gone.
    pub fn settle(&mut self, id: i64) {
        let settled = self.rows.settle(id, |_| true);
        self.leave(settled);
    }

    /// A row that is handed out under this token is delivered. Returns whether there is one.
    pub fn deliver(&mut self, id: i64, token: LeaseToken) -> bool {
        let delivered = self.rows.settle(id, |at| at == At::InFlight(token));
        self.leave(delivered);
        delivered.is_some()
    }

    fn leave(&mut self, row: Option<Row>) {
        let Some(row) = row else { return };
        self.count(row.lane, row.at, At::Settled);
        if let Some(lane) = row.lane {
            self.lanes.remove(lane, row.id);
        }
        if !self.notes.is_empty() {
            self.notes.remove(&row.id);
        }
    }

    /// Returns whether there is such a row.
    fn place(&mut self, id: i64, at: At) -> bool {
        let Some(row) = self.rows.get_mut(id) else { return false };
        let before = std::mem::replace(&mut row.at, at);
        let lane = row.lane;
        self.count(lane, before, at);
        if !self.notes.is_empty()
            && let Some(note) = self.notes.get_mut(&id)
        {
            (note.due, note.failure, note.makes_room) = (None, None, false);
        }
        true
    }

    fn count(&mut self, lane: Option<u32>, before: At, after: At) {
        let in_flight = |at| usize::from(matches!(at, At::InFlight(_)));
        let failed = |at| usize::from(at == At::Failed);
        self.in_flight = self.in_flight + in_flight(after) - in_flight(before);
        self.failed = self.failed + failed(after) - failed(before);
        if let Some(lane) = lane {
            let rows = self.lanes.get_mut(lane);
            rows.in_flight = rows.in_flight + in_flight(after) - in_flight(before);
        }
    }
}

/// What becomes of a row in a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It waits.
    Waits,
    /// It may be handed out, or written down behind those of its lane.
    MayGo,
}

impl Pass<'_> {
    /// Takes in a row that was read, and says whether it is its turn.
    pub fn take_in(&mut self, id: i64, lane: Option<&Lane>) -> Turn {
        let (lane, is_new) = self.window.take_in(id, lane, At::Waiting);
        let Some(lane) = lane.filter(|_| self.lanes != LaneRule::Unordered) else {
            return Turn::MayGo;
        };
        let rows = self.window.lanes.get_mut(lane);
        rows.enter(self.number);
        // One that came back waits until nothing of its lane is in flight: something is wrong with the lane.
        if rows.may_go(id) || (is_new && self.lanes == LaneRule::Pipelined && rows.may_follow(id)) {
            rows.go(id);
            Turn::MayGo
        } else {
            rows.stop();
            Turn::Waits
        }
    }

    /// Hands out a row whose turn it is.
    pub fn hand_out(&mut self, id: i64) {
        self.window.hand_out(id, self.token);
    }

    /// A row whose turn it is does not go after all, nor does anything behind it.
    pub fn keep(&mut self, id: i64) {
        let lane = self.window.rows.get(id).and_then(|row| row.lane);
        if let Some(lane) = lane.filter(|_| self.lanes != LaneRule::Unordered) {
            self.window.lanes.get_mut(lane).stop();
        }
    }

    /// A row is settled: it was dealt with before.
    pub fn settle(&mut self, id: i64) {
        self.window.settle(id);
    }
}

fn ranges(ids: impl Iterator<Item = i64>) -> Ranges {
    let mut all = Ranges::default();
    let mut run: Option<RangeInclusive<i64>> = None;
    for id in ids {
        match &mut run {
            // Neighbours are put in together: a look into a tree for each of them would be many.
            Some(run) if run.end() + 1 == id => *run = *run.start()..=id,
            run => {
                let before = run.replace(id..=id);
                if let Some(run) = before {
                    all.insert(run);
                }
            }
        }
    }
    if let Some(run) = run {
        all.insert(run);
    }
    all
}

#[cfg(test)]
mod tests;
