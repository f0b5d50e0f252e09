//! Writes rows that only wait to the table of failures: they stand behind one that is there, or others need the room.
//!
//! None of them was tried, and each can go on waiting in memory. So where that table does not take them there is no long search for the
//! one that is refused; and they are written in pieces, so that what was written is settled if a later piece takes too long.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use posthaste_core::StoreError;
use posthaste_core::store::RefusedVerdict;
use posthaste_sql::log::{Failure, Lane, Window};

use super::Reader;
use super::error::LogResult;
use super::session::Session;
use super::settle::{refusal, say_locked};

/// Most rows of a statement.
const MAX_ROWS: usize = 500;

/// What is not written in this time is left to the next call: there is other work.
const MAX_TIME: Duration = Duration::from_secs(1);

/// After so many refusals it is not looked for the next row that is refused: all of a piece go on waiting.
const MAX_REFUSALS: u32 = 32;

const CUT_SHORT: &str = "it was not written within the time limit of a call";

/// In pieces, of which that to begin with is the last.
pub(super) fn pieces(failures: &[Failure]) -> Vec<Vec<Failure>> {
    failures.chunks(MAX_ROWS).rev().map(<[Failure]>::to_vec).collect()
}

/// Takes out what stands in a lane of which something was not written. What only waits goes on waiting.
pub(super) fn keep_behind(window: &mut Window, batch: &mut Vec<Failure>, stopped: &HashSet<Lane>, now: Instant) {
    batch.retain(|failure| {
        let is_behind = window.lane(failure.id).is_some_and(|lane| stopped.contains(lane));
        if is_behind && failure.only_waits() {
            window.keep_waiting(failure, now);
        }
        !is_behind
    });
}

impl Reader {
    /// What may be written now: rows that only wait, and apart from them what failed. Where the table has a lane in the order in which
    /// it is written, what waits in one of which something failed is written with that.
    pub(super) fn part_failures(&self, window: &Window, now: Instant) -> (Vec<Failure>, Vec<Failure>) {
        let failures = window.failures(now);
        let failed = failures
            .iter()
            .filter(|failure| !self.is_native() && !failure.only_waits());
        let failed: HashSet<Lane> = failed.filter_map(|failure| window.lane(failure.id).cloned()).collect();
        let is_apart = |lane: Option<&Lane>| lane.is_none_or(|lane| !failed.contains(lane));
        failures
            .into_iter()
            .partition(|failure| failure.only_waits() && is_apart(window.lane(failure.id)))
    }

    /// Writes rows that only wait, as far as the database takes them within a while. Names one of those that it does not take, if that is
    /// news.
    pub(super) async fn flush_waiting(
        &self,
        session: &mut Session,
        rows: &[Failure],
        now: Instant,
    ) -> LogResult<Option<RefusedVerdict>> {
        if std::mem::take(&mut session.is_parking) {
            let news = keep_waiting(&mut session.reader.window, rows, now);
            return Ok(news.map(|row| refusal(row.into(), CUT_SHORT)));
        }
        let (begun, mut refusals, mut refused) = (Instant::now(), 0_u32, None);
        let mut stopped: HashSet<Lane> = HashSet::new();
        let mut batches = pieces(rows);
        while let Some(mut batch) = batches.pop() {
            keep_behind(&mut session.reader.window, &mut batch, &stopped, now);
            if batch.is_empty() || begun.elapsed() >= MAX_TIME {
                continue;
            }
            session.is_parking = true;
            let written = self.write_failures(session, &batch).await;
            session.is_parking = false;
            let window = &mut session.reader.window;
            let Err(error) = written else {
                for row in &batch {
                    window.settle(row.id);
                }
                window.may_park();
                continue;
            };
            let takes_long = error.is_cancelled() || error.is_contention();
            if !takes_long && !error.is_refusal() {
                return Err(error);
            }
            refusals += 1;
            if takes_long || error.concerns_all_rows() {
                // So would the next piece.
                batch.extend(batches.drain(..).rev().flatten());
            } else if batch.len() > 1 && refusals <= MAX_REFUSALS {
                let rest = batch.split_off(batch.len() / 2);
                // The last is taken first.
                batches.push(rest);
                batches.push(batch);
                continue;
            }
            if !self.is_native() {
                // That table has a lane in the order in which it is written.
                let lanes = batch.iter().filter_map(|row| window.lane(row.id));
                stopped.extend(lanes.cloned());
            }
            let Some(row) = keep_waiting(window, &batch, now) else {
                continue;
            };
            let is_locked = error.is_contention();
            let error = StoreError::from(error).to_string();
            if is_locked {
                say_locked(row, &error);
            } else {
                refused = Some(refusal(row.into(), &error));
            }
        }
        Ok(refused)
    }
}

/// Rows that were not written go on waiting. Returns one of them if that is news.
fn keep_waiting(window: &mut Window, rows: &[Failure], now: Instant) -> Option<i64> {
    let mut news = None;
    for row in rows {
        if window.keep_waiting(row, now) {
            news = Some(row.id);
        }
    }
    news
}
