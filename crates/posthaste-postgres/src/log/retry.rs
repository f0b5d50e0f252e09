//! Hands out failed rows that are due, and apart from them those that may have killed an earlier reader.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use posthaste_core::MessageId;
use posthaste_core::lifecycle::{EXHAUSTED, Verdict};
use posthaste_core::store::{Claim, ClaimRequest, ClaimedMessage};
use posthaste_sql::RowChange;
use posthaste_sql::log::{Lane, Policy, SuspectedRetries};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::error::LogResult;
use super::relay_store::say_refused;
use super::rows::{failed, failed_id, lane};
use super::session::{Retry, Session};
use super::{Reader, of_segments, of_shard};

/// A failed row that may go now.
struct DueRow {
    number: i64,
    lane: Option<Lane>,
    claimed: ClaimedMessage,
    /// What its table counts.
    counted: u32,
}

impl Reader {
    /// Failed rows that are due and that nothing is suspected of.
    pub(super) async fn claim_failed(
        &self,
        session: &mut Session,
        request: &ClaimRequest,
        now: Instant,
    ) -> LogResult<Vec<ClaimedMessage>> {
        let suspects_too = false;
        let (due, took) = self.look_for_due(session, request, suspects_too, now).await?;
        let found = due.len();
        let messages = self.hand_out_failed(session, request, due, now).await?;
        session.fresh_first = !messages.is_empty();
        let has_more = found > messages.len() || found >= self.retries_together(request) as usize;
        let interval = self.options.retry_interval;
        session.retry_looks.looked(now, took, interval, has_more);
        Ok(messages)
    }

    /// Failed rows that are due and that may have killed an earlier reader, so few together and with nothing beside them. Gives up
    /// those that have used all of their attempts so.
    pub(super) async fn claim_suspected(
        &self,
        session: &mut Session,
        request: &ClaimRequest,
        others: usize,
        now: Instant,
    ) -> LogResult<Claim> {
        let mut claim = Claim::default();
        if session.suspected.is_empty() {
            return Ok(claim);
        }
        let (suspects_too, fresh_first) = (true, session.fresh_first);
        let (mut due, _) = self.look_for_due(session, request, suspects_too, now).await?;
        due.retain(|row| session.suspected.contains(row.number));
        let allowed = self.retries_allowed(request);
        let exhausted = |row: &DueRow| session.suspected.is_exhausted(row.number, row.counted, allowed);
        let (exhausted, mut due): (Vec<_>, Vec<_>) = due.into_iter().partition(exhausted);
        if !exhausted.is_empty() {
            claim.died = self.give_up_failed(session, request, exhausted, now).await?;
        }
        let group = session.suspected.group(due.iter().map(|row| row.number), request.limit);
        due.truncate(group);
        session.retry_looks.end();
        let is_beside_others = others + session.in_flight() > 0;
        if due.is_empty() || is_beside_others {
            session.fresh_first = fresh_first;
            session.guard.retries_wait_to_be_alone = !due.is_empty();
            return Ok(claim);
        }
        for row in &mut due {
            let crashes = session.suspected.crashes_alone(row.number);
            row.claimed.attempts = row.claimed.attempts.saturating_add(crashes);
        }
        session.suspected.tried(now);
        session.retry_looks.soon(now);
        claim.messages = self.hand_out_failed(session, request, due, now).await?;
        claim.reclaimed = true;
        Ok(claim)
    }

    /// Failed rows that are due, and how long it took to find them. Until the claim knows better it was a long look, after which it is
    /// the turn of fresh rows: one that fails, or is cut short, would be the first thing in every claim.
    async fn look_for_due(
        &self,
        session: &mut Session,
        request: &ClaimRequest,
        suspects_too: bool,
        now: Instant,
    ) -> LogResult<(Vec<DueRow>, Duration)> {
        let (asked, interval) = (Instant::now(), self.options.retry_interval);
        session.fresh_first = true;
        session.retry_looks.begin(now, interval);
        let due = self.due_rows(session, request, suspects_too, now).await;
        let took = asked.elapsed();
        if due.is_err() {
            let has_more = false;
            session.retry_looks.looked(now, took, interval, has_more);
        }
        Ok((due?, took))
    }

    /// Failed rows that are due, in their order.
    async fn due_rows(
        &self,
        session: &mut Session,
        request: &ClaimRequest,
        suspects_too: bool,
        now: Instant,
    ) -> LogResult<Vec<DueRow>> {
        let policy = Policy::of(&request.ordering);
        let held = || session.held_retries.iter().filter(|(_, (until, _))| !until.is_due(now));
        let mut rows: Vec<i64> = session
            .retries
            .keys()
            .chain(held().map(|(row, _)| row))
            .copied()
            .collect();
        let held_lanes = held().filter_map(|(_, (_, lane))| lane.as_ref());
        let retries_in_flight = session.retries.values().filter_map(|retry| retry.lane.as_ref());
        let mut lanes: BTreeSet<_> = session
            .reader
            .window
            .lanes_in_flight()
            .chain(retries_in_flight)
            .chain(held_lanes)
            .collect();
        if !suspects_too {
            rows.extend(session.suspected.rows());
            lanes.extend(session.suspected.lanes());
        }
        let lanes: (Vec<_>, Vec<_>) = lanes
            .iter()
            .map(|(kind, key)| (kind.to_string(), key.to_string()))
            .unzip();
        // Which rows are blocked depends on their topics. Where that is no column they are sorted out here, of ever more rows, so that
        // those that wait for an operator hide no others.
        let sorts_out = policy.may_block() && self.shard.is_none();
        let mut most = self.retries_together(request);
        if sorts_out {
            most = most.saturating_mul(100);
        }
        // The rows of other numbers up to the highest are settled, or known in memory.
        let unread = session.reader.gaps().ids();
        let unread: (Vec<i64>, Vec<i64>) = unread.iter().map(|range| (*range.start(), *range.end())).unzip();
        // What has a time of its own stands behind rows of its lane that are not settled.
        let waiting = session.reader.window.unsettled_lanes();
        let waiting: (Vec<_>, Vec<_>, Vec<_>) = waiting
            .map(|((topic, key), first)| (topic.to_string(), key.to_string(), first))
            .collect();
        let first = self.first_segment_of(session).await?;
        loop {
            let query = sqlx::query(self.statements.failures.retry.sql())
                .bind(i64::from(self.retries_allowed(request)))
                .bind(policy.ordered)
                .bind(&rows)
                .bind(&lanes.0)
                .bind(&lanes.1)
                .bind(policy.may_block())
                .bind(i64::from(most));
            let mut query = of_segments(query, self.shard.as_ref(), first);
            if self.shard.is_some() {
                let (dead_blocks, except) = policy.blocking();
                let hi = session.reader.gaps().hi();
                query = query
                    .bind(hi)
                    .bind(&unread.0)
                    .bind(&unread.1)
                    .bind(dead_blocks)
                    .bind(except)
                    .bind(&waiting.0)
                    .bind(&waiting.1)
                    .bind(&waiting.2);
            }
            let found = query.fetch_all(session.connection()?).await?;
            let mut due = Vec::with_capacity(found.len());
            for row in &found {
                due.extend(self.due_row(row, &policy)?);
            }
            if !due.is_empty() || !sorts_out || found.len() < most as usize {
                return Ok(due);
            }
            most = most.saturating_mul(10);
        }
    }

    /// A row that was found, unless it has to wait for others after all.
    fn due_row(&self, row: &PgRow, policy: &Policy<'_>) -> sqlx::Result<Option<DueRow>> {
        let claimed = failed(row, &self.map)?;
        if row.try_get("behind_dead")? && policy.blocks(&claimed.message.topic) {
            return Ok(None);
        }
        let lane = lane(row)?.filter(|_| policy.ordered);
        Ok(Some(DueRow {
            number: row.try_get("id")?,
            lane,
            claimed,
            counted: u32::try_from(row.try_get::<i64, _>("attempts")?).unwrap_or(u32::MAX),
        }))
    }

    /// Hands out as many of these as a claim takes. It is written down which ones before they go: if this reader crashes, its
    /// successor knows what may have caused it.
    async fn hand_out_failed(
        &self,
        session: &mut Session,
        request: &ClaimRequest,
        due: Vec<DueRow>,
        now: Instant,
    ) -> LogResult<Vec<ClaimedMessage>> {
        let limit = self.retries_together(request) as usize;
        let (mut messages, mut bytes) = (Vec::new(), 0);
        for row in due {
            bytes += row.claimed.message.payload.len() as u64;
            if messages.len() >= limit || (bytes > request.max_bytes && !messages.is_empty()) {
                break;
            }
            let retry = Retry {
                token: request.token,
                lane: row.lane,
                outcome: None,
                refused: None,
            };
            session.retries.insert(row.number, retry);
            messages.push(row.claimed);
        }
        if !messages.is_empty() && session.counts_crashes() {
            self.write_trial(session, now).await?;
        }
        Ok(messages)
    }

    /// Gives up rows that killed their readers; returns those for which that is written.
    async fn give_up_failed(
        &self,
        session: &mut Session,
        request: &ClaimRequest,
        rows: Vec<DueRow>,
        now: Instant,
    ) -> LogResult<Vec<MessageId>> {
        let numbers: Vec<i64> = rows.iter().map(|row| row.number).collect();
        for row in rows {
            let error = EXHAUSTED.to_owned();
            let mut change = RowChange::of(&Verdict::Dead { error }, &self.map);
            // It was not tried once more.
            change.attempts = i32::try_from(session.suspected.crashes_alone(row.number)).unwrap_or(i32::MAX);
            let retry = Retry {
                token: request.token,
                lane: row.lane,
                outcome: Some(change),
                refused: None,
            };
            session.retries.insert(row.number, retry);
        }
        // What the database does not take is remembered, and written when it does.
        say_refused(&self.flush(session, &[], now).await?.refused);
        let written = numbers
            .into_iter()
            .filter(|number| !session.retries.contains_key(number));
        Ok(written.map(failed_id).collect())
    }

    /// Most failed rows of a claim.
    fn retries_together(&self, request: &ClaimRequest) -> u32 {
        request.limit.min(self.options.retry_batch)
    }

    /// Retries that this relay may make; never more than those after which a row counts as dead. Where all tries are
    /// counted, those.
    fn retries_allowed(&self, request: &ClaimRequest) -> u32 {
        if self.is_native() {
            return request.max_attempts;
        }
        self.options.max_retries.min(request.max_attempts.saturating_sub(1))
    }

    /// Keeps those suspects that are still to be delivered: others may have been given up, removed, or delivered.
    pub(super) async fn keep_live(
        &self,
        connection: &mut PgConnection,
        suspected: &mut SuspectedRetries,
    ) -> LogResult<()> {
        if suspected.is_empty() {
            return Ok(());
        }
        let query = sqlx::query(self.statements.failures.suspected.sql())
            .bind(suspected.rows().collect::<Vec<_>>())
            .bind(i64::from(self.options.max_retries));
        let rows = of_shard(query, self.shard.as_ref()).fetch_all(connection).await?;
        let live = rows.iter().map(|row| Ok((row.try_get("id")?, lane(row)?)));
        suspected.keep_live(live.collect::<sqlx::Result<Vec<_>>>()?);
        Ok(())
    }
}
