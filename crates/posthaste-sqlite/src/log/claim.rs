//! Hands out fresh rows of the log.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use posthaste_core::MessageId;
use posthaste_core::store::{Claim, ClaimRequest, ClaimedMessage};
use posthaste_sql::log::{Failure, LogRow, Plan, Policy, ReadResult, Risk, Suspects};
use sqlx::Row;

use super::Inner;
use super::checkpoint::Handing;
use super::rows::lane;
use super::session::Session;
use crate::rows::ByRole;

/// A claim that finds only rows that have to wait reads on, but not forever: the next claim goes on where it ended.
const MAX_READS: u32 = 20;

/// Every such read looks at twice as many rows as the one before, up to so many: others may wait behind a long backlog.
const MAX_ROWS: u32 = 10_000;

impl Inner {
    /// Work for one who reads the log.
    pub(super) async fn claim_on(&self, session: &mut Session, request: &ClaimRequest) -> sqlx::Result<Claim> {
        let now = self.now();
        session.release_expired(now);
        // Before anything is handed out: if this call is cut short, what it took goes out again after the lease.
        session.leases.insert(request.token, now + request.lease);
        let claim = self.claim_now(session, request, now).await;
        if claim.as_ref().map_or(true, |claim| claim.messages.is_empty()) {
            session.release(request.token);
        }
        claim
    }

    async fn claim_now(&self, session: &mut Session, request: &ClaimRequest, now: Instant) -> sqlx::Result<Claim> {
        // Beside what may have killed its readers nothing else is risked, nor before it where it waits for that.
        let waits_to_be_alone = std::mem::take(&mut session.guard.waits_to_be_alone);
        let retries_wait = std::mem::take(&mut session.guard.retries_wait_to_be_alone);
        if session.is_alone() {
            return Ok(Claim::default());
        }
        session.retry_looks.end_unfinished(now);
        let retry_due = session.retry_looks.are_due(now) && !waits_to_be_alone;
        let suspects_due = session.suspected.are_due(now) && retry_due;
        // Failed rows first, but not twice in a row: neither may starve the other.
        let fresh_first = std::mem::take(&mut session.fresh_first);
        let mut claim = Claim::default();
        if retries_wait || (suspects_due && !fresh_first) {
            claim = self.claim_suspected(session, request, now).await?;
            if claim.messages.is_empty() && session.guard.retries_wait_to_be_alone {
                return Ok(claim);
            }
        }
        if claim.messages.is_empty() && retry_due && !fresh_first {
            claim = after(claim, self.claim_failed(session, request, now).await?);
        }
        if claim.messages.is_empty() {
            claim = after(claim, self.claim_fresh(session, request, now).await?);
        }
        if claim.messages.is_empty() && retry_due && !session.guard.waits_to_be_alone {
            if fresh_first {
                claim = after(claim, self.claim_failed(session, request, now).await?);
            }
            // There is no other work.
            if claim.messages.is_empty() {
                claim = after(claim, self.claim_suspected(session, request, now).await?);
            }
        }
        Ok(claim)
    }

    async fn claim_fresh(&self, session: &mut Session, request: &ClaimRequest, now: Instant) -> sqlx::Result<Claim> {
        let policy = Policy::of(&request.ordering);
        let mut claim = Claim::default();
        if !self.make_room(session, now).await? {
            return Ok(claim);
        }
        for reads in 0..MAX_READS {
            let plan = session.reader.plan(now, request.limit as usize);
            let Some(first) = plan.ids.first() else { break };
            let limit = Suspects::most_together(session.reader.suspects.crashes(first), request.limit);
            let rows_to_read = limit.saturating_mul(1 << reads).min(MAX_ROWS).max(limit);
            let mut read = self.read(&plan, rows_to_read, request, &policy).await?;
            let retried = session.in_flight() - session.fresh.len();
            match session.reader.risk(&read.result.rows, request.limit, retried) {
                Risk::Together(0) if !read.result.rows.is_empty() => break,
                Risk::Together(rows) => read.result.cut(rows),
                Risk::Alone => read.result.cut(1),
                Risk::WaitsToBeAlone => {
                    session.guard.waits_to_be_alone = true;
                    break;
                }
            }
            let last = read.result.rows.last().map_or(i64::MIN, |row| row.id);
            let is_suspect = session.reader.suspects.crashes(last) > 0;
            // What is suspected is written down by itself.
            if last > session.reach && !is_suspect && !self.write_down_with(session, Handing::UpTo(last), now).await? {
                return Ok(Claim::default());
            }
            let sorted = session.reader.read(&plan, &read.result, request.token, policy.ordered);
            let parked = !sorted.park.is_empty();
            for row in sorted.park {
                session.reader.window.fail(Failure::parked(row));
            }
            for row in sorted.handed_out {
                let Some(mut claimed) = read.messages.remove(&row) else {
                    continue;
                };
                let id = claimed.message.id;
                if let Some(failure) = session.reader.suspects.exhausted(row, request.max_attempts) {
                    session.reader.window.fail(failure);
                    claim.died.push(id);
                    continue;
                }
                let crashes = session.reader.suspects.crashes_alone(row);
                claimed.attempts = claimed.attempts.saturating_add(crashes);
                session.fresh.insert(id, row);
                claim.messages.push(claimed);
            }
            if (parked || !claim.died.is_empty()) && !self.flush(session, false, now).await? {
                return Ok(Claim::default());
            }
            if is_suspect && !claim.messages.is_empty() {
                claim.reclaimed = true;
                // Their attempts are counted before they go.
                if !self.write_down(session, now).await? {
                    return Ok(Claim::default());
                }
            }
            if !claim.messages.is_empty() || read.result.complete_to == i64::MAX {
                break;
            }
        }
        Ok(claim)
    }

    /// Lets others go on beside thousands of rows that wait. Returns whether this is still the reader.
    async fn make_room(&self, session: &mut Session, now: Instant) -> sqlx::Result<bool> {
        let parked = session.reader.make_room(now);
        if parked == 0 {
            return Ok(true);
        }
        tracing::warn!(
            rows = parked,
            "messages of the log wait for an unavailable receiver or for earlier ones of their keys; so that others are delivered, \
             they wait in the table of failed messages from now on, and are delivered in order from there"
        );
        self.flush(session, false, now).await
    }

    /// Rows of the plan.
    async fn read(&self, plan: &Plan, limit: u32, request: &ClaimRequest, policy: &Policy<'_>) -> sqlx::Result<Read> {
        let mut read = Read::default();
        let mut bytes: u64 = 0;
        let mut conn = self.common.pool().acquire().await?;
        for range in plan.ids.iter() {
            let left = i64::from(limit) - i64::try_from(read.result.rows.len()).unwrap_or(i64::MAX);
            let rows = sqlx::query(self.statements.reading.read.sql())
                .bind(*range.start())
                .bind(*range.end())
                .bind(left)
                .fetch_all(&mut *conn)
                .await?;
            let all = i64::try_from(rows.len()).unwrap_or(i64::MAX) < left;
            for row in &rows {
                let claimed = self.map.claimed(&ByRole(row))?;
                bytes = bytes.saturating_add(claimed.message.payload.len() as u64);
                if bytes > request.max_bytes && !read.result.rows.is_empty() {
                    return Ok(read.cut_off());
                }
                let id: i64 = row.try_get("seq")?;
                let by_dead = row.try_get("held_by_dead")? && policy.blocks(&claimed.message.topic);
                read.result.rows.push(LogRow {
                    id,
                    lane: lane(&claimed.message),
                    kept: row.try_get("kept")?,
                    held: by_dead || row.try_get("held")?,
                });
                read.messages.insert(id, claimed);
            }
            if !all {
                return Ok(read.cut_off());
            }
        }
        Ok(read)
    }
}

/// What a claim found, after one that found nothing that goes.
fn after(before: Claim, mut found: Claim) -> Claim {
    found.died.splice(..0, before.died);
    found
}

/// One read of the log.
struct Read {
    result: ReadResult,
    messages: HashMap<i64, ClaimedMessage>,
}

impl Default for Read {
    fn default() -> Self {
        Self {
            result: ReadResult {
                rows: Vec::new(),
                complete_to: i64::MAX,
                // Nobody can have taken a number and not used it: there is one writer at a time.
                holders: BTreeSet::new(),
            },
            messages: HashMap::new(),
        }
    }
}

impl Read {
    /// There may be more.
    fn cut_off(mut self) -> Self {
        self.result.complete_to = self.result.rows.last().map_or(i64::MAX, |row| row.id);
        self
    }
}

impl Session {
    /// The row of the log that is handed out under this id and token.
    pub(super) fn fresh_row(&self, id: MessageId, token: posthaste_core::lifecycle::LeaseToken) -> Option<i64> {
        let row = *self.fresh.get(&id)?;
        self.reader.window.is_held(row, token).then_some(row)
    }
}
