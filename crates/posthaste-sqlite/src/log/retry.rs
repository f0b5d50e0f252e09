//! Hands out failed rows that are due, and apart from them those that may have killed an earlier reader.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use posthaste_core::MessageId;
use posthaste_core::lifecycle::{EXHAUSTED, Verdict};
use posthaste_core::store::{Claim, ClaimRequest, ClaimedMessage};
use posthaste_sql::RowChange;
use posthaste_sql::log::{Lane, Policy, SuspectedRetries};
use sqlx::types::Json;
use sqlx::{Connection, Row, SqliteConnection};

use super::Inner;
use super::rows::lane;
use super::session::{Retry, Session};
use crate::begin::{acquire, begin};
use crate::rows::{ByRole, id};
use crate::taking::is_refusal;

/// A failed row that may go now.
struct DueRow {
    number: i64,
    /// Where lanes are kept in order.
    lane: Option<Lane>,
    claimed: ClaimedMessage,
    /// The attempts that its table counts.
    counted: u32,
}

impl Inner {
    /// Failed rows that are due and that nothing is suspected of.
    pub(super) async fn claim_failed(
        &self,
        session: &mut Session,
        request: &ClaimRequest,
        now: Instant,
    ) -> sqlx::Result<Claim> {
        let are_suspected = false;
        let (due, took) = self.look_for_due(session, request, are_suspected, now).await?;
        let full = due.len() >= request.limit as usize;
        let mut claim = Claim::default();
        // As under a limit that was lowered.
        let (spent, due): (Vec<_>, Vec<_>) = due.into_iter().partition(|row| row.counted >= request.max_attempts);
        if !spent.is_empty() {
            claim.died = self.give_up_spent(session, request.max_attempts).await?;
        }
        let found = due.len();
        claim.messages = self.hand_out_failed(session, request, due, now).await?;
        session.fresh_first = !claim.messages.is_empty();
        let has_more = full || found > claim.messages.len() || !claim.died.is_empty();
        session.retry_looks.looked(now, took, self.retry_interval, has_more);
        Ok(claim)
    }

    /// Failed rows that are due and that may have killed an earlier reader, so few together and with nothing beside them. Gives up
    /// those that have used all of their attempts so.
    pub(super) async fn claim_suspected(
        &self,
        session: &mut Session,
        request: &ClaimRequest,
        now: Instant,
    ) -> sqlx::Result<Claim> {
        let mut claim = Claim::default();
        if session.suspected.is_empty() {
            return Ok(claim);
        }
        let (are_suspected, fresh_first) = (true, session.fresh_first);
        let (due, _) = self.look_for_due(session, request, are_suspected, now).await?;
        let allowed = request.max_attempts;
        let exhausted =
            |row: &DueRow| row.counted >= allowed || session.suspected.is_exhausted(row.number, row.counted, allowed);
        let (exhausted, mut due): (Vec<_>, Vec<_>) = due.into_iter().partition(exhausted);
        if !exhausted.is_empty() {
            claim.died = self.give_up_suspected(session, request, exhausted, now).await?;
        }
        let group = session.suspected.group(due.iter().map(|row| row.number), request.limit);
        due.truncate(group);
        session.retry_looks.end();
        let is_beside_others = session.in_flight() > 0;
        if due.is_empty() || is_beside_others {
            session.fresh_first = fresh_first;
            session.guard.retries_wait_to_be_alone |= !due.is_empty();
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
        are_suspected: bool,
        now: Instant,
    ) -> sqlx::Result<(Vec<DueRow>, Duration)> {
        let asked = Instant::now();
        session.fresh_first = true;
        session.retry_looks.begin(now, self.retry_interval);
        let due = self.due_rows(session, request, are_suspected, now).await;
        let took = asked.elapsed();
        if due.is_err() {
            let has_more = false;
            session.retry_looks.looked(now, took, self.retry_interval, has_more);
        }
        Ok((due?, took))
    }

    /// Failed rows that are due, in their order: those that are suspected, or the others.
    async fn due_rows(
        &self,
        session: &mut Session,
        request: &ClaimRequest,
        are_suspected: bool,
        now: Instant,
    ) -> sqlx::Result<Vec<DueRow>> {
        self.keep_live(&mut session.suspected).await?;
        let policy = Policy::of(&request.ordering);
        let window = &session.reader.window;
        let retries_in_flight = session.retries.values().filter_map(|retry| retry.lane.as_ref());
        let held = || session.held_retries.iter().filter(|(_, held)| !held.until.is_due(now));
        let held_lanes = held().filter_map(|(_, held)| held.lane.as_ref());
        let mut lanes: BTreeSet<_> = window
            .lanes_in_flight()
            .chain(retries_in_flight)
            .chain(held_lanes)
            .collect();
        let tried = session.retries.values().map(|retry| retry.number);
        let mut left_out: Vec<i64> = tried.chain(held().map(|(number, _)| *number)).collect();
        let suspected: Vec<i64> = session.suspected.rows().collect();
        if !are_suspected {
            left_out.extend(&suspected);
            lanes.extend(session.suspected.lanes());
        }
        // What has a time of its own stands behind rows of its lane that wait in memory.
        let unsettled: Vec<_> = window
            .unsettled_lanes()
            .filter(|(lane, _)| !lanes.contains(lane))
            .map(|((topic, key), first)| (topic.to_string(), key.to_string(), first))
            .collect();
        let lanes: Vec<_> = lanes
            .into_iter()
            .map(|lane| (lane.0.to_string(), lane.1.to_string()))
            .collect();
        let (dead_blocks, except) = policy.blocking();
        // The rows of other numbers up to the highest are settled, or known in memory.
        let gaps = session.reader.gaps();
        let unread: Vec<_> = gaps.ids().iter().map(|range| (*range.start(), *range.end())).collect();
        let mut connection = acquire(self.common.pool()).await?;
        let rows = sqlx::query(self.statements.failures.retry.sql())
            .bind(policy.ordered)
            .bind(Json(&left_out))
            .bind(Json(lanes))
            .bind(policy.may_block())
            .bind(i64::from(request.limit))
            .bind(gaps.hi())
            .bind(Json(unread))
            .bind(dead_blocks)
            .bind(Json(except))
            .bind(Json(unsettled))
            .bind(are_suspected.then_some(Json(suspected)))
            .fetch_all(&mut *connection)
            .await?;
        let mut due = Vec::with_capacity(rows.len());
        for row in &rows {
            let mut claimed = self.map.claimed(&ByRole(row))?;
            let counted = claimed.attempts;
            claimed.attempts = counted.saturating_add(1);
            due.push(DueRow {
                number: row.try_get("number")?,
                lane: lane(&claimed.message).filter(|_| policy.ordered),
                claimed,
                counted,
            });
        }
        Ok(due)
    }

    /// Hands out as many of these as a claim takes. It is written down which ones before they go: if this reader crashes, its
    /// successor knows what may have caused it.
    async fn hand_out_failed(
        &self,
        session: &mut Session,
        request: &ClaimRequest,
        due: Vec<DueRow>,
        now: Instant,
    ) -> sqlx::Result<Vec<ClaimedMessage>> {
        let (mut messages, mut bytes) = (Vec::new(), 0_u64);
        for row in due {
            bytes = bytes.saturating_add(row.claimed.message.payload.len() as u64);
            if bytes > request.max_bytes && !messages.is_empty() {
                break;
            }
            let retry = Retry {
                number: row.number,
                token: request.token,
                lane: row.lane,
                counted: row.counted,
                outcome: None,
                refused: None,
            };
            session.retries.insert(row.claimed.message.id, retry);
            messages.push(row.claimed);
        }
        if !messages.is_empty() && !self.write_down(session, now).await? {
            // Another one reads, who hands them out.
            messages.clear();
        }
        Ok(messages)
    }

    /// Gives up all that has used all its attempts. If that is refused, the janitor says so.
    async fn give_up_spent(&self, session: &mut Session, max_attempts: u32) -> sqlx::Result<Vec<MessageId>> {
        let mut tx = begin(self.common.pool()).await?;
        if !self.is_reader(session, &mut tx).await? {
            return Ok(Vec::new());
        }
        let mut apart = tx.begin().await?;
        let died = self.sweep_failed(session, &mut apart, max_attempts).await;
        match died {
            Err(error) if is_refusal(&error) => {
                apart.rollback().await?;
                Ok(Vec::new())
            }
            died => {
                let died = died?;
                apart.commit().await?;
                tx.commit().await?;
                Ok(died)
            }
        }
    }

    /// Gives up failed rows that have used all their attempts, but for those that are tried, or come for their verdicts.
    pub(super) async fn sweep_failed(
        &self,
        session: &Session,
        connection: &mut SqliteConnection,
        max_attempts: u32,
    ) -> sqlx::Result<Vec<MessageId>> {
        let held = session.held_retries.keys().copied();
        let but: Vec<i64> = held.chain(session.retries.values().map(|retry| retry.number)).collect();
        let rows = sqlx::query(self.statements.failures.sweep.sql())
            .bind(i64::from(max_attempts))
            .bind(Json(but))
            .bind(EXHAUSTED)
            .fetch_all(connection)
            .await?;
        rows.iter().map(|row| id(row, "id", &self.map)).collect()
    }

    /// Gives up rows that killed their readers; returns those for which that is written.
    async fn give_up_suspected(
        &self,
        session: &mut Session,
        request: &ClaimRequest,
        rows: Vec<DueRow>,
        now: Instant,
    ) -> sqlx::Result<Vec<MessageId>> {
        let ids: Vec<MessageId> = rows.iter().map(|row| row.claimed.message.id).collect();
        for row in rows {
            let error = EXHAUSTED.to_owned();
            let mut change = RowChange::of(&Verdict::Dead { error }, &self.map);
            // It was not tried once more.
            change.attempts = i32::try_from(session.suspected.crashes_alone(row.number)).unwrap_or(i32::MAX);
            let retry = Retry {
                number: row.number,
                token: request.token,
                lane: row.lane,
                counted: row.counted,
                outcome: Some(change),
                refused: None,
            };
            session.retries.insert(row.claimed.message.id, retry);
        }
        // What the database does not take is remembered, and written when it does.
        if !self.write_down(session, now).await? {
            return Ok(Vec::new());
        }
        let written = ids.into_iter().filter(|id| !session.retries.contains_key(id));
        Ok(written.collect())
    }

    /// Keeps those suspects that are still to be delivered, with their lanes: others may have been given up, or removed.
    async fn keep_live(&self, suspected: &mut SuspectedRetries) -> sqlx::Result<()> {
        if suspected.is_empty() {
            return Ok(());
        }
        let rows = sqlx::query(self.statements.failures.suspected.sql())
            .bind(Json(suspected.rows().collect::<Vec<_>>()))
            .fetch_all(self.common.pool())
            .await?;
        let live = rows.iter().map(|row| {
            let key: Option<String> = row.try_get("ordering_key")?;
            let topic: String = row.try_get("topic")?;
            Ok((row.try_get("number")?, key.map(|key| (topic.into(), key.into()))))
        });
        suspected.keep_live(live.collect::<sqlx::Result<Vec<_>>>()?);
        Ok(())
    }
}
