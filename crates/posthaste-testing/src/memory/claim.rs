//! Which rows a claim may take: the rules of [`posthaste_core::store::RelayStore::claim`], said plainly.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use posthaste_core::lifecycle::State;
use posthaste_core::reclaim::reclaim_limit;
use posthaste_core::store::{ClaimRequest, DeadHead, KeyOrdering, RefusedRow};

use super::rows::{Row, Rows};

/// The rows to take, by sequence, whether they come from workers that crashed, and those that are refused.
pub(super) fn choose_but_refused(
    rows: &Rows,
    request: &ClaimRequest,
    now: DateTime<Utc>,
) -> (Vec<i64>, bool, Vec<RefusedRow>) {
    let mut request = request.clone();
    let mut refused = Vec::new();
    loop {
        let (chosen, reclaimed) = choose(rows, &request, now);
        let ids = chosen
            .iter()
            .filter_map(|sequence| Some(rows.outbox.get(sequence)?.message.id));
        let culprits: Vec<_> = ids.filter(|id| rows.unchangeable.contains(id)).collect();
        if culprits.is_empty() {
            return (chosen, reclaimed, refused);
        }
        refused.extend(culprits.iter().map(|id| RefusedRow {
            id: *id,
            error: "the row is not to be changed".to_owned(),
        }));
        request.left_out.extend(culprits);
    }
}

/// The rows to take, by sequence, and whether they come from workers that crashed.
fn choose(rows: &Rows, request: &ClaimRequest, now: DateTime<Utc>) -> (Vec<i64>, bool) {
    let lanes = Lanes::of(rows, request, now);
    let free = |expired: bool| {
        rows.outbox
            .iter()
            .filter(move |(_, row)| row.is_in(&request.scope) && row.model.is_expired(now) == expired)
            .filter(|(_, row)| row.model.is_claimable(now, row.limit(request.max_attempts)))
            .filter(|(_, row)| !request.left_out.contains(&row.message.id))
            .filter(|(_, row)| !rows.locked.contains(&row.message.id))
            .filter(|(sequence, row)| lanes.allow(**sequence, row))
    };
    let risk = |row: &Row| reclaim_limit(row.model.attempts, row.limit(request.max_attempts), request.limit);
    // The most-tried row decides.
    match free(true).map(|(_, row)| risk(row)).min() {
        Some(limit) => (within(free(true), limit, request.max_bytes), true),
        None => (within(free(false), request.limit, request.max_bytes), false),
    }
}

/// The first rows that stay within the limits, but always one. A row that does not fit ends the claim: to skip it would
/// starve large messages, and break the order of its key.
fn within<'a>(rows: impl Iterator<Item = (&'a i64, &'a Row)>, limit: u32, max_bytes: u64) -> Vec<i64> {
    let mut bytes = 0;
    rows.take(limit as usize)
        .enumerate()
        .take_while(|(place, (_, row))| {
            bytes += row.message.payload.len() as u64;
            *place == 0 || bytes <= max_bytes
        })
        .map(|(_, (sequence, _))| *sequence)
        .collect()
}

type Lane<'a> = (&'a str, &'a str, &'a str);

/// How far each lane may be read.
struct Lanes<'a> {
    until: HashMap<Lane<'a>, Until>,
    ordered: bool,
}

/// The last row of a lane that may be taken.
#[derive(Clone, Copy)]
enum Until {
    Before(i64),
    Including(i64),
}

impl<'a> Lanes<'a> {
    fn of(rows: &'a Rows, request: &ClaimRequest, now: DateTime<Utc>) -> Self {
        let KeyOrdering::PerKey { dead_head, except } = &request.ordering else {
            return Self {
                until: HashMap::new(),
                ordered: false,
            };
        };
        let blocks =
            |row: &Row| (*dead_head == DeadHead::Block) != except.iter().any(|topic| *topic == row.message.topic);
        let mut until = HashMap::new();
        for (&sequence, row) in &rows.outbox {
            let Some(lane) = lane(row) else { continue };
            let live = row.model.state == State::Processing && !row.model.is_expired(now);
            let stop = match row.model.state {
                State::Pending | State::Processing if request.left_out.contains(&row.message.id) => {
                    Until::Before(sequence)
                }
                // The whole lane is in flight, also what lies before this row.
                State::Processing if live => {
                    until.insert(lane, Until::Before(0));
                    continue;
                }
                // It is not known what becomes of a row that another transaction has locked.
                State::Pending | State::Processing if rows.locked.contains(&row.message.id) => Until::Before(sequence),
                // A retry goes alone: if it fails again, nothing that follows it is touched.
                State::Pending if row.model.is_waiting() => Until::Including(sequence),
                State::Dead if blocks(row) => Until::Before(sequence),
                _ => continue,
            };
            until.entry(lane).or_insert(stop);
        }
        // Fresh rows and rows of crashed workers are never claimed together, so the first row of a lane decides which
        // of the two it gives out; the second kind begins where the first ends.
        let mut heads: HashMap<Lane<'a>, bool> = HashMap::new();
        for (&sequence, row) in &rows.outbox {
            let Some(lane) = lane(row) else { continue };
            if matches!(row.model.state, State::Pending | State::Processing) {
                let expired = row.model.is_expired(now);
                if *heads.entry(lane).or_insert(expired) != expired {
                    until
                        .entry(lane)
                        .and_modify(|until| *until = until.earlier(Until::Before(sequence)))
                        .or_insert(Until::Before(sequence));
                }
            }
        }
        Self { until, ordered: true }
    }

    fn allow(&self, sequence: i64, row: &Row) -> bool {
        let until = lane(row).and_then(|lane| self.until.get(&lane));
        !self.ordered || until.is_none_or(|until| until.allows(sequence))
    }
}

impl Until {
    fn allows(self, sequence: i64) -> bool {
        match self {
            Self::Before(end) => sequence < end,
            Self::Including(end) => sequence <= end,
        }
    }

    fn earlier(self, other: Self) -> Self {
        let key = |until| match until {
            Self::Before(end) => (end, 0),
            Self::Including(end) => (end, 1),
        };
        if key(other) < key(self) { other } else { self }
    }
}

fn lane(row: &Row) -> Option<Lane<'_>> {
    let (topic, key) = row.message.lane()?;
    Some((&row.namespace, topic, key))
}
