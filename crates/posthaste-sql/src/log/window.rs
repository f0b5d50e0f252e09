//! The rows that were read and are not settled, and the order in which they may go.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ranges::Ranges;
use posthaste_core::lifecycle::LeaseToken;

/// The topic and key within which order holds.
pub type Lane = (Arc<str>, Arc<str>);

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

#[derive(Clone, Debug)]
enum Place {
    /// May be read again, but not before its time.
    Waiting { due: Option<Instant> },
    /// Handed out.
    InFlight { token: LeaseToken },
    /// Goes to the table of failures: once no earlier row of its lane is unsettled, so that the table has the lane in
    /// order, and once the database takes it.
    Failed(Failure),
}

#[derive(Clone, Debug)]
struct Entry {
    lane: Option<Lane>,
    place: Place,
    /// The database refused to write what became of it.
    refused: Option<Rewrite>,
}

#[derive(Clone, Debug, Default)]
struct LaneRows {
    ids: BTreeSet<i64>,
    in_flight: usize,
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

/// The rows that were read and are not settled.
#[derive(Clone, Debug, Default)]
pub struct Window {
    rows: BTreeMap<i64, Entry>,
    lanes: HashMap<Lane, LaneRows>,
}

impl Window {
    /// The lowest row that is not settled.
    pub fn first(&self) -> Option<i64> {
        self.rows.keys().next().copied()
    }

    /// How many rows are not settled.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether everything is settled.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many rows are handed out.
    pub fn in_flight(&self) -> usize {
        let handed_out = |entry: &&Entry| matches!(entry.place, Place::InFlight { .. });
        self.rows.values().filter(handed_out).count()
    }

    /// The rows that are not handed out, due or not.
    pub fn waiting(&self) -> Ranges {
        let mut waiting = Ranges::default();
        for (id, entry) in &self.rows {
            if matches!(entry.place, Place::Waiting { .. }) {
                waiting.insert(*id..=*id);
            }
        }
        waiting
    }

    /// The ids of all rows that are not settled.
    pub fn unsettled(&self) -> Ranges {
        let mut unsettled = Ranges::default();
        for id in self.rows.keys() {
            unsettled.insert(*id..=*id);
        }
        unsettled
    }

    /// All rows that are not settled.
    pub fn standings(&self) -> impl Iterator<Item = (i64, Standing)> {
        self.rows.iter().map(|(id, entry)| {
            let standing = match &entry.place {
                Place::Waiting { due } => Standing::Waiting { due: *due },
                Place::InFlight { .. } => Standing::InFlight,
                Place::Failed(failure) => Standing::Failed(failure.clone()),
            };
            (*id, standing)
        })
    }

    /// Whether a row waits to be handed out.
    pub fn is_waiting(&self, id: i64) -> bool {
        let entry = self.rows.get(&id);
        entry.is_some_and(|entry| matches!(entry.place, Place::Waiting { .. }))
    }

    /// Lanes of which rows are handed out.
    pub fn lanes_in_flight(&self) -> impl Iterator<Item = &Lane> {
        self.lanes
            .iter()
            .filter_map(|(lane, rows)| (rows.in_flight > 0).then_some(lane))
    }

    /// The first `limit` rows that may be handed out now: due, and not behind one of their lane that may not.
    pub fn free(&self, now: Instant, limit: usize) -> Ranges {
        let mut free = Ranges::default();
        let mut held: HashSet<&Lane> = self.lanes_in_flight().collect();
        let mut found = 0;
        for (id, entry) in &self.rows {
            if found == limit {
                break;
            }
            let due = matches!(entry.place, Place::Waiting { due } if due.is_none_or(|due| due <= now));
            let lane = entry.lane.as_ref();
            if due && lane.is_none_or(|lane| !held.contains(lane)) {
                free.insert(*id..=*id);
                found += 1;
            } else {
                held.extend(lane);
            }
        }
        free
    }

    /// Whether a row may go now, given the last row of its lane that goes with it in the same batch.
    pub fn may_go(&self, id: i64, lane: &Lane, goes_with: Option<i64>) -> bool {
        let Some(rows) = self.lanes.get(lane) else { return true };
        let after = goes_with.map_or(i64::MIN, |before| before + 1);
        let others_in_flight = goes_with.is_none() && rows.in_flight > 0;
        !others_in_flight && (after >= id || rows.ids.range(after..id).next().is_none())
    }

    /// Takes in a row that was read; one that is known stays as it is.
    pub fn insert(&mut self, id: i64, lane: Option<Lane>) {
        self.rows.entry(id).or_insert_with(|| {
            if let Some(lane) = &lane {
                self.lanes.entry(lane.clone()).or_default().ids.insert(id);
            }
            let place = Place::Waiting { due: None };
            Entry {
                lane,
                place,
                refused: None,
            }
        });
    }

    /// Hands a row out.
    pub fn hand_out(&mut self, id: i64, token: LeaseToken) {
        self.place(id, Place::InFlight { token });
    }

    /// Whether a row is handed out under this token.
    pub fn is_held(&self, id: i64, token: LeaseToken) -> bool {
        let held = |entry: &Entry| matches!(entry.place, Place::InFlight { token: held } if held == token);
        self.rows.get(&id).is_some_and(held)
    }

    /// A row was not attempted, or not for good: it may be handed out again, at once or when it is due.
    pub fn put_back(&mut self, id: i64, due: Option<Instant>) {
        let refused = self.rows.get(&id).and_then(|entry| entry.refused);
        let due = due.max(refused.map(|refused| refused.at + REWRITE_SLACK));
        self.place(id, Place::Waiting { due });
    }

    /// All rows of a token are handed back.
    pub fn put_back_all(&mut self, token: LeaseToken) {
        let held: Vec<i64> = self
            .rows
            .keys()
            .copied()
            .filter(|id| self.is_held(*id, token))
            .collect();
        for id in held {
            self.put_back(id, None);
        }
    }

    /// A row failed. See [`Window::failures`].
    pub fn fail(&mut self, failure: Failure) {
        self.place(failure.id, Place::Failed(failure));
    }

    /// The failures that may be written down now: those that have no unsettled row of their lane before them, and were
    /// not refused a moment ago.
    pub fn failures(&self, now: Instant) -> Vec<Failure> {
        let mut held: HashSet<&Lane> = HashSet::new();
        let mut failures = Vec::new();
        for entry in self.rows.values() {
            match &entry.place {
                Place::Failed(failure)
                    if entry.refused.is_none_or(|refused| refused.is_due(now))
                        && entry.lane.as_ref().is_none_or(|lane| !held.contains(lane)) =>
                {
                    failures.push(failure.clone());
                }
                _ => held.extend(entry.lane.as_ref()),
            }
        }
        failures
    }

    /// The database refused to write a failure down. It is kept here, and with it its lane, until the database takes it.
    /// Returns whether this is news.
    pub fn refuse_failure(&mut self, id: i64, now: Instant) -> bool {
        let Some(entry) = self.rows.get_mut(&id) else {
            return false;
        };
        entry.refused.replace(Rewrite::after(entry.refused, now)).is_none()
    }

    /// The same where the one whose verdict it is keeps that in mind: the row is handed out again after a while, and the
    /// verdict comes again. Its lane waits for it.
    pub fn refuse_verdict(&mut self, id: i64, now: Instant) {
        self.refuse_failure(id, now);
        self.put_back(id, None);
    }

    /// The lane of a row that is not settled.
    pub fn lane(&self, id: i64) -> Option<&Lane> {
        self.rows.get(&id)?.lane.as_ref()
    }

    /// Whether a row of this lane before `id` is not settled.
    pub fn is_behind(&self, id: i64, lane: &Lane) -> bool {
        let before = |rows: &LaneRows| rows.ids.range(..id).next().is_some();
        self.lanes.get(lane).is_some_and(before)
    }

    /// A row is settled: delivered, written to the table of failures, or gone.
    pub fn settle(&mut self, id: i64) {
        let Some(Entry {
            lane: Some(lane),
            place,
            ..
        }) = self.rows.remove(&id)
        else {
            return;
        };
        if let Some(rows) = self.lanes.get_mut(&lane) {
            rows.ids.remove(&id);
            rows.in_flight -= usize::from(matches!(place, Place::InFlight { .. }));
            if rows.ids.is_empty() {
                self.lanes.remove(&lane);
            }
        }
    }

    fn place(&mut self, id: i64, place: Place) {
        let Some(entry) = self.rows.get_mut(&id) else { return };
        if let Some(rows) = entry.lane.as_ref().and_then(|lane| self.lanes.get_mut(lane)) {
            rows.in_flight += usize::from(matches!(place, Place::InFlight { .. }));
            rows.in_flight -= usize::from(matches!(entry.place, Place::InFlight { .. }));
        }
        entry.place = place;
    }
}
