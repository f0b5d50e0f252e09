//! The lanes of rows that are not settled, by numbers: a row finds its lane by its name once, when it is read.

use std::collections::{HashMap, VecDeque};

use foldhash::fast::RandomState;
use smol_str::SmolStr;

/// The topic and key within which order holds.
pub type Lane = (SmolStr, SmolStr);

/// Lanes without rows keep their names for a while, since most come again soon. Beyond so many they are forgotten.
const MIN_IDLE: usize = 1_024;

/// All lanes, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Lanes {
    numbers: HashMap<Lane, u32, RandomState>,
    all: Vec<LaneRows>,
    free: Vec<u32>,
    /// How many have rows.
    active: usize,
}

/// The rows of a lane that are not settled.
#[derive(Clone, Debug, Default)]
pub(super) struct LaneRows {
    pub(super) lane: Lane,
    /// In order.
    ids: VecDeque<i64>,
    pub(super) in_flight: usize,
    /// The last pass over the rows that looked at this lane, and what it has found.
    pass: u64,
    last_gone: Option<i64>,
    stopped: bool,
}

impl Lanes {
    /// Takes in a row, and returns the number of its lane.
    pub(super) fn add(&mut self, lane: &Lane, id: i64) -> u32 {
        let number = match self.numbers.get(lane) {
            Some(number) => *number,
            None => self.name(lane),
        };
        let rows = &mut self.all[number as usize];
        self.active += usize::from(rows.ids.is_empty());
        rows.add(id);
        number
    }

    fn name(&mut self, lane: &Lane) -> u32 {
        if self.numbers.len() - self.active > self.active.max(MIN_IDLE) {
            self.forget_idle();
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.all.push(LaneRows::default());
            u32::try_from(self.all.len() - 1).expect("fewer lanes than rows, and fewer rows than memory has room for")
        });
        let rows = &mut self.all[number as usize];
        (rows.lane, rows.pass) = (lane.clone(), 0);
        self.numbers.insert(lane.clone(), number);
        number
    }

    fn forget_idle(&mut self) {
        let (lanes, free) = (&self.all, &mut self.free);
        self.numbers.retain(|_, number| {
            let idle = lanes[*number as usize].ids.is_empty();
            if idle {
                free.push(*number);
            }
            !idle
        });
    }

    /// A row is settled.
    pub(super) fn remove(&mut self, number: u32, id: i64) {
        let rows = &mut self.all[number as usize];
        rows.remove(id);
        self.active -= usize::from(rows.ids.is_empty());
    }

    pub(super) fn get(&self, number: u32) -> &LaneRows {
        &self.all[number as usize]
    }

    pub(super) fn get_mut(&mut self, number: u32) -> &mut LaneRows {
        &mut self.all[number as usize]
    }

    pub(super) fn named(&self, lane: &Lane) -> Option<&LaneRows> {
        self.numbers.get(lane).map(|number| self.get(*number))
    }

    pub(super) fn in_flight(&self) -> impl Iterator<Item = &Lane> {
        let in_flight = self.all.iter().filter(|rows| rows.in_flight > 0);
        in_flight.map(|rows| &rows.lane)
    }

    /// Those that have rows, each with the first.
    pub(super) fn unsettled(&self) -> impl Iterator<Item = (&Lane, i64)> {
        self.all
            .iter()
            .filter_map(|rows| Some((&rows.lane, *rows.ids.front()?)))
    }

    /// How many numbers there are.
    pub(super) fn count(&self) -> usize {
        self.all.len()
    }
}

impl LaneRows {
    fn add(&mut self, id: i64) {
        if self.ids.back().is_none_or(|last| *last < id) {
            self.ids.push_back(id);
        } else if let Err(place) = self.ids.binary_search(&id) {
            self.ids.insert(place, id);
        }
    }

    fn remove(&mut self, id: i64) {
        if self.ids.front() == Some(&id) {
            self.ids.pop_front();
        } else if let Ok(place) = self.ids.binary_search(&id) {
            self.ids.remove(place);
        }
    }

    /// Whether a row of this lane before `id` is not settled.
    pub(super) fn has_before(&self, id: i64) -> bool {
        self.ids.front().is_some_and(|first| *first < id)
    }

    /// Begins a look at the lane in one pass over the rows, unless this pass has.
    pub(super) fn enter(&mut self, pass: u64) {
        if self.pass != pass {
            (self.pass, self.last_gone, self.stopped) = (pass, None, false);
        }
    }

    /// Whether one of its rows may go now, given those that went in this pass: nothing else of the lane is in flight, and
    /// nothing before it waits or has failed.
    pub(super) fn may_go(&self, id: i64) -> bool {
        if self.stopped || (self.last_gone.is_none() && self.in_flight > 0) {
            return false;
        }
        let before = match self.ids.back() {
            Some(last) if *last == id => self.ids.len().checked_sub(2),
            _ => self.ids.partition_point(|other| *other < id).checked_sub(1),
        };
        before.is_none_or(|before| Some(self.ids[before]) <= self.last_gone)
    }

    /// The same for the newest row of the lane where all before it may be in flight.
    pub(super) fn may_follow(&self, id: i64) -> bool {
        let is_newest = self.ids.back() == Some(&id);
        !self.stopped && is_newest && self.in_flight + 1 == self.ids.len()
    }

    /// A row goes in this pass.
    pub(super) fn go(&mut self, id: i64) {
        self.last_gone = Some(id);
    }

    /// Nothing more of the lane goes in this pass.
    pub(super) fn stop(&mut self) {
        self.stopped = true;
    }
}
