//! Hands out fresh rows of the log, and takes turns between them and failed rows that are due.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use posthaste_core::store::{Claim, ClaimRequest, ClaimedMessage};
use posthaste_sql::TableMap;
use posthaste_sql::log::{Failure, Holder, LogRow, Plan, Policy, ReadResult, Risk, Suspects};
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::error::LogResult;
use super::reader_lock::shared_session;
use super::relay_store::say_refused;
use super::rows::{failed_id, fresh, lane};
use super::session::Session;
use super::{Reader, of_segments};

/// A claim that finds only rows that have to wait reads on, but not forever: the next claim goes on where it ended.
const MAX_READS: u32 = 20;

/// Every such read looks at twice as many rows as the one before, up to so many: others may wait behind a long backlog.
const MAX_ROWS: u32 = 1_000;

/// How often gaps whose holders have ended are looked into before a claim says that there is nothing. There may always be
/// more of them; the next claim is soon.
const SECOND_LOOKS: u32 = 2;

impl Reader {
    pub(super) async fn claim_on(
        &self,
        session: &mut Session,
        request: &ClaimRequest,
        others: usize,
    ) -> LogResult<Claim> {
        let now = self.now();
        session.release_expired(now);
        // Before anything is handed out: if this call is cut short, what it took goes out again after the lease.
        session.leases.insert(request.token, now + request.lease);
        let claim = self.claim_now(session, request, others, now).await;
        if claim.as_ref().map_or(true, |claim| claim.messages.is_empty()) {
            session.release(request.token);
        }
        claim
    }

    async fn claim_now(
        &self,
        session: &mut Session,
        request: &ClaimRequest,
        others: usize,
        now: Instant,
    ) -> LogResult<Claim> {
        say_refused(&self.flush(session, &[], now).await?.refused);
        // Nothing more is handed out while it is not known how far it was: after a restart it would all go out again.
        self.checkpoint(session, false, now).await?;
        self.watch_ids(session, now).await?;
        // Beside what may have killed its readers nothing else is risked, nor before it where it waits for that.
        let waits_to_be_alone = std::mem::take(&mut session.guard.waits_to_be_alone);
        let retries_wait = std::mem::take(&mut session.guard.retries_wait_to_be_alone);
        if session.is_alone() {
            return Ok(Claim::default());
        }
        session.retry_looks.end_unfinished(now);
        let retry_due = session.retry_looks.are_due(now) && !waits_to_be_alone;
        let suspects_due = session.suspected.are_due(now) && retry_due;
        // Failed rows first, but not twice in a row: neither lane may starve the other.
        let fresh_first = std::mem::take(&mut session.fresh_first);
        let mut claim = Claim::default();
        if retries_wait || (suspects_due && !fresh_first) {
            claim = self.claim_suspected(session, request, others, now).await?;
        }
        if claim.messages.is_empty() && session.guard.retries_wait_to_be_alone {
            return Ok(claim);
        }
        if claim.messages.is_empty() && retry_due && !fresh_first {
            claim.messages = self.claim_failed(session, request, now).await?;
        }
        if claim.messages.is_empty() {
            claim = after(claim, self.claim_fresh(session, request, others, now).await?);
        }
        if claim.messages.is_empty() && retry_due && !session.guard.waits_to_be_alone {
            if fresh_first {
                claim.messages = self.claim_failed(session, request, now).await?;
            }
            // There is no other work.
            if claim.messages.is_empty() {
                claim = after(claim, self.claim_suspected(session, request, others, now).await?);
            }
        }
        if claim.messages.is_empty() {
            let at_rest = session.in_flight() == 0;
            self.checkpoint(session, at_rest, now).await?;
        }
        Ok(claim)
    }

    /// Fresh rows of the log.
    async fn claim_fresh(
        &self,
        session: &mut Session,
        request: &ClaimRequest,
        others: usize,
        now: Instant,
    ) -> LogResult<Claim> {
        let policy = Policy::of(&request.ordering);
        let mut claim = Claim::default();
        self.make_room(session, now).await?;
        for reads in 0..MAX_READS {
            let hi = session.reader.gaps().hi();
            if let Some(messages) = self.claim_tail(session, request, now).await? {
                // There may be others behind rows that wait.
                let went_on = session.reader.window.has_waiting() || session.reader.gaps().hi() > hi;
                if messages.is_empty() && went_on {
                    continue;
                }
                claim.messages = messages;
                return Ok(claim);
            }
            let plan = session
                .reader
                .plan(now, request.limit as usize)
                .pipelined(request.pipelined);
            let Some(first_id) = plan.ids.first() else { break };
            let crashes = session.reader.suspects.crashes(first_id);
            let rows_to_read = Suspects::most_together(crashes, request.limit)
                .saturating_mul(1 << reads)
                .min(MAX_ROWS)
                .max(request.limit);
            let mut read = self.read_plan(session, request, &plan, rows_to_read).await?;
            let beside = others + session.retries_in_flight();
            match session.reader.risk(&read.result.rows, request.limit, beside) {
                Risk::Together(0) if !read.result.rows.is_empty() => break,
                Risk::Together(rows) => read.result.cut(rows),
                Risk::Alone => read.result.cut(1),
                Risk::WaitsToBeAlone => {
                    session.guard.waits_to_be_alone = true;
                    break;
                }
            }
            // What is suspected is written down by itself.
            let last = read.result.rows.last();
            if let Some(last) = last.filter(|last| session.reader.suspects.crashes(last.id) == 0) {
                self.write_ahead(session, last.id, now).await?;
            }
            let sorted = session.reader.read(&plan, &read.result, request.token, policy.ordered);
            if !read.is_whole() && session.reader.gaps().hi() > hi {
                session.tail.expect_more(session.reader.gaps().hi());
            }
            if !sorted.park.is_empty() {
                for id in sorted.park {
                    session.reader.window.fail(Failure::parked(id));
                }
                say_refused(&self.flush(session, &[], now).await?.refused);
            }
            if !sorted.handed_out.is_empty() {
                claim.messages = read.take(&sorted.handed_out);
                self.try_suspects(session, request, &sorted.handed_out, &mut claim, now)
                    .await?;
                if !claim.messages.is_empty() {
                    return Ok(claim);
                }
            }
            // Another read if this one did not see everything, or to close the gaps that it found abandoned.
            let second_look = reads < SECOND_LOOKS && session.reader.gaps().worth_a_look();
            if read.is_whole() && !second_look {
                break;
            }
        }
        Ok(claim)
    }

    /// Lets others go on beside thousands of rows that wait.
    async fn make_room(&self, session: &mut Session, now: Instant) -> LogResult<()> {
        let parked = session.reader.make_room(now);
        if parked > 0 {
            tracing::warn!(
                rows = parked,
                "messages of the log wait for an unavailable receiver or for earlier ones of their keys; so that others are delivered, \
                 they wait in the table of failed messages from now on, and are delivered in order from there"
            );
            say_refused(&self.flush(session, &[], now).await?.refused);
        }
        Ok(())
    }

    /// Reads what a plan says, in one snapshot, and then looks up who may still commit.
    pub(super) async fn read_plan(
        &self,
        session: &mut Session,
        request: &ClaimRequest,
        plan: &Plan,
        rows_to_read: u32,
    ) -> LogResult<Read> {
        let (first, last): (Vec<i64>, Vec<i64>) = plan.ids.iter().map(|range| (*range.start(), *range.end())).unzip();
        let query = sqlx::query(self.statements.reading.read.sql())
            .bind(first)
            .bind(last)
            .bind(i64::from(rows_to_read))
            .bind(i64::try_from(request.max_bytes).unwrap_or(i64::MAX))
            .bind(i64::from(self.options.max_retries))
            .bind(self.lock_source());
        let query = of_segments(query, self.shard.as_ref(), self.first_segment_of(session).await?);
        let rows = query.fetch_all(session.connection()?).await?;
        let mark = session.link.as_ref().map(|link| link.mark.as_str());
        if rows.first().map(|row| row.try_get("reader")).transpose()? != Some(mark) {
            return Err(shared_session());
        }
        let policy = Policy::of(&request.ordering);
        Ok(Read::of(&rows, &self.map, rows_to_read as usize, &policy)?)
    }

    /// Counts an attempt of rows that may have killed their readers before they go, and gives up the one that has used all
    /// of its attempts so.
    async fn try_suspects(
        &self,
        session: &mut Session,
        request: &ClaimRequest,
        handed_out: &[i64],
        claim: &mut Claim,
        now: Instant,
    ) -> LogResult<()> {
        let suspects = &session.reader.suspects;
        if !handed_out.iter().any(|id| suspects.crashes(*id) > 0) {
            return Ok(());
        }
        for claimed in &mut claim.messages {
            let crashes = claimed.sequence.map_or(0, |id| suspects.crashes_alone(id));
            claimed.attempts = claimed.attempts.saturating_add(crashes);
        }
        let exhausted = handed_out
            .first()
            .and_then(|id| suspects.exhausted(*id, request.max_attempts));
        let Some(failure) = exhausted else {
            claim.reclaimed = true;
            return self.write_trial(session, now).await;
        };
        claim.messages.clear();
        match self.write_failures(session, std::slice::from_ref(&failure)).await {
            Ok(numbers) => {
                session.reader.window.settle(failure.id);
                claim.died.extend(numbers.into_iter().map(failed_id));
                Ok(())
            }
            // It is remembered, and written when the database takes it.
            Err(error) if error.is_refusal() || error.is_contention() => {
                session.reader.window.fail(failure);
                say_refused(&self.flush(session, &[], now).await?.refused);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// What a claim found, after one that found nothing that goes.
fn after(before: Claim, mut found: Claim) -> Claim {
    found.died.splice(..0, before.died);
    found
}

/// One read of the log.
pub(super) struct Read {
    pub(super) result: ReadResult,
    messages: HashMap<i64, ClaimedMessage>,
}

impl Read {
    /// The messages of these rows.
    pub(super) fn take(&mut self, handed_out: &[i64]) -> Vec<ClaimedMessage> {
        handed_out.iter().filter_map(|id| self.messages.remove(id)).collect()
    }

    /// Whether it saw all that it was asked for.
    pub(super) fn is_whole(&self) -> bool {
        self.result.complete_to == i64::MAX
    }

    /// How many messages it found, and how many bytes of payload.
    pub(super) fn load(&self) -> (u32, u64) {
        let bytes = |claimed: &ClaimedMessage| claimed.message.payload.len() as u64;
        let count = u32::try_from(self.messages.len()).unwrap_or(u32::MAX);
        (count, self.messages.values().map(bytes).sum())
    }

    fn of(rows: &[PgRow], map: &TableMap, limit: usize, policy: &Policy<'_>) -> sqlx::Result<Self> {
        let mut holders = BTreeSet::new();
        let mut result = Vec::with_capacity(rows.len());
        let mut messages = HashMap::with_capacity(rows.len());
        let mut seen = 0;
        for row in rows {
            let names: Option<Vec<String>> = row.try_get("holders")?;
            let prepared: Option<Vec<bool>> = row.try_get("holders_prepared")?;
            let pairs = names.into_iter().flatten().zip(prepared.into_iter().flatten());
            holders.extend(pairs.map(|(name, prepared)| Holder { name, prepared }));
            // The holders come also where nothing else does.
            let Some(id) = row.try_get::<Option<i64>, _>("id")? else {
                continue;
            };
            seen = usize::try_from(row.try_get::<i64, _>("seen")?).unwrap_or(usize::MAX);
            let claimed = fresh(row, map)?;
            let held_by_dead = row.try_get("held_by_dead")? && policy.blocks(&claimed.message.topic);
            result.push(LogRow {
                id,
                lane: lane(row)?,
                kept: row.try_get("kept")?,
                held: held_by_dead || row.try_get("held")?,
            });
            messages.insert(id, claimed);
        }
        let all = seen == result.len() && seen < limit;
        let complete_to = result.last().filter(|_| !all).map_or(i64::MAX, |row| row.id);
        let rows = result;
        Ok(Self {
            result: ReadResult {
                rows,
                complete_to,
                holders,
            },
            messages,
        })
    }
}
