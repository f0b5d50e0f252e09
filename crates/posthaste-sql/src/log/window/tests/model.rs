//! The window as it was before it had to be quick: one tree of rows, and one of ids for each lane.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Instant;

use posthaste_core::lifecycle::LeaseToken;

use crate::log::{Failure, Lane, Ranges, Rewrite, Standing};

const REWRITE_SLACK: std::time::Duration = std::time::Duration::from_millis(100);

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

/// The rows that were read and are not settled.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    rows: BTreeMap<i64, Entry>,
    lanes: HashMap<Lane, LaneRows>,
}

impl Model {
    /// The lowest row that is not settled.
    pub(super) fn first(&self) -> Option<i64> {
        self.rows.keys().next().copied()
    }

    /// How many rows are not settled.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// How many rows are handed out.
    pub(super) fn in_flight(&self) -> usize {
        let handed_out = |entry: &&Entry| matches!(entry.place, Place::InFlight { .. });
        self.rows.values().filter(handed_out).count()
    }

    /// The rows that are not handed out, due or not.
    pub(super) fn waiting(&self) -> Ranges {
        let mut waiting = Ranges::default();
        for (id, entry) in &self.rows {
            if matches!(entry.place, Place::Waiting { .. }) {
                waiting.insert(*id..=*id);
            }
        }
        waiting
    }

    /// All rows that are not settled.
    pub(super) fn standings(&self) -> impl Iterator<Item = (i64, Standing)> {
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
    pub(super) fn is_waiting(&self, id: i64) -> bool {
        let entry = self.rows.get(&id);
        entry.is_some_and(|entry| matches!(entry.place, Place::Waiting { .. }))
    }

    /// Lanes of which rows are handed out.
    pub(super) fn lanes_in_flight(&self) -> impl Iterator<Item = &Lane> {
        self.lanes
            .iter()
            .filter_map(|(lane, rows)| (rows.in_flight > 0).then_some(lane))
    }

    /// The first `limit` rows that may be handed out now: due, and not behind one of their lane that may not.
    pub(super) fn free(&self, now: Instant, limit: usize) -> Ranges {
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
    pub(super) fn may_go(&self, id: i64, lane: &Lane, goes_with: Option<i64>) -> bool {
        let Some(rows) = self.lanes.get(lane) else { return true };
        let after = goes_with.map_or(i64::MIN, |before| before + 1);
        let others_in_flight = goes_with.is_none() && rows.in_flight > 0;
        !others_in_flight && (after >= id || rows.ids.range(after..id).next().is_none())
    }

    /// Takes in a row that was read; one that is known stays as it is.
    pub(super) fn insert(&mut self, id: i64, lane: Option<Lane>) {
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
    pub(super) fn hand_out(&mut self, id: i64, token: LeaseToken) {
        self.place(id, Place::InFlight { token });
    }

    /// Whether a row is handed out under this token.
    pub(super) fn is_held(&self, id: i64, token: LeaseToken) -> bool {
        let held = |entry: &Entry| matches!(entry.place, Place::InFlight { token: held } if held == token);
        self.rows.get(&id).is_some_and(held)
    }

    /// A row was not attempted, or not for good: it may be handed out again, at once or when it is due.
    pub(super) fn put_back(&mut self, id: i64, due: Option<Instant>) {
        let refused = self.rows.get(&id).and_then(|entry| entry.refused);
        let due = due.max(refused.map(|refused| refused.at + REWRITE_SLACK));
        self.place(id, Place::Waiting { due });
    }

    /// All rows of a token are handed back.
    pub(super) fn put_back_all(&mut self, token: LeaseToken) {
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

    /// A row failed. See [`Model::failures`].
    pub(super) fn fail(&mut self, failure: Failure) {
        self.place(failure.id, Place::Failed(failure));
    }

    /// The failures that may be written down now: those that have no unsettled row of their lane before them, and were
    /// not refused a moment ago.
    pub(super) fn failures(&self, now: Instant) -> Vec<Failure> {
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
    pub(super) fn refuse_failure(&mut self, id: i64, now: Instant) -> bool {
        let Some(entry) = self.rows.get_mut(&id) else {
            return false;
        };
        entry.refused.replace(Rewrite::after(entry.refused, now)).is_none()
    }

    /// The same where the one whose verdict it is keeps that in mind: the row is handed out again after a while, and the
    /// verdict comes again. Its lane waits for it.
    pub(super) fn refuse_verdict(&mut self, id: i64, now: Instant) {
        self.refuse_failure(id, now);
        self.put_back(id, None);
    }

    /// The lane of a row that is not settled.
    pub(super) fn lane(&self, id: i64) -> Option<&Lane> {
        self.rows.get(&id)?.lane.as_ref()
    }

    /// Whether a row of this lane before `id` is not settled.
    pub(super) fn is_behind(&self, id: i64, lane: &Lane) -> bool {
        let before = |rows: &LaneRows| rows.ids.range(..id).next().is_some();
        self.lanes.get(lane).is_some_and(before)
    }

    /// A row is settled: delivered, written to the table of failures, or gone.
    pub(super) fn settle(&mut self, id: i64) {
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

impl Model {
    /// What a read hands out, as the reader decided it row by row.
    pub(super) fn sort(
        &mut self,
        rows: &[(i64, Option<Lane>)],
        limit: usize,
        token: LeaseToken,
        (ordered, pipelined): (bool, bool),
    ) -> Vec<i64> {
        let mut handed_out = Vec::new();
        let mut goes_with: HashMap<&Lane, i64> = HashMap::new();
        let mut stopped: HashSet<&Lane> = HashSet::new();
        for (id, row_lane) in rows {
            let lane = row_lane.as_ref().filter(|_| ordered);
            if let Some(lane) = lane {
                let last = goes_with.get(lane).copied();
                let follows = pipelined && self.follows_those_in_flight(*id, lane);
                if stopped.contains(lane) || !(follows || self.may_go(*id, lane, last)) {
                    stopped.insert(lane);
                    self.insert(*id, row_lane.clone());
                    continue;
                }
                goes_with.insert(lane, *id);
            }
            self.insert(*id, row_lane.clone());
            if handed_out.len() == limit {
                stopped.extend(lane);
            } else {
                self.hand_out(*id, token);
                handed_out.push(*id);
            }
        }
        handed_out
    }

    /// Whether a row is new, the last of its lane, and all before it are in flight.
    fn follows_those_in_flight(&self, id: i64, lane: &Lane) -> bool {
        let in_lane = || self.rows.iter().filter(|(_, entry)| entry.lane.as_ref() == Some(lane));
        let in_flight = |entry: &Entry| matches!(entry.place, Place::InFlight { .. });
        !self.rows.contains_key(&id) && in_lane().all(|(other, entry)| *other < id && in_flight(entry))
    }
}
