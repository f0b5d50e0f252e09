//! Hands out failed rows that are due.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Instant;

use posthaste_core::MessageId;
use posthaste_core::lifecycle::EXHAUSTED;
use posthaste_core::store::{Claim, ClaimRequest, ClaimedMessage, RefusedRow};
use posthaste_sql::log::{Lane, Policy};
use sqlx::sqlite::SqliteRow;
use sqlx::types::Json;
use sqlx::{Connection, Row, SqliteConnection};

use super::Inner;
use super::rows::lane;
use super::session::{Retry, Session};
use crate::begin::{acquire, begin};
use crate::error::store_error;
use crate::rows::{ByRole, id};
use crate::taking::is_refusal;

impl Inner {
    pub(super) async fn claim_failed(
        &self,
        session: &mut Session,
        request: &ClaimRequest,
        now: Instant,
    ) -> sqlx::Result<Claim> {
        let policy = Policy::of(&request.ordering);
        let window = &session.reader.window;
        let retries_in_flight = session.retries.values().filter_map(|retry| retry.lane.as_ref());
        let held = || session.held_retries.iter().filter(|(_, held)| !held.until.is_due(now));
        let held_lanes = held().filter_map(|(_, held)| held.lane.as_ref());
        let lanes: BTreeSet<_> = window
            .lanes_in_flight()
            .chain(retries_in_flight)
            .chain(held_lanes)
            .collect();
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
        let tried = session.retries.values().map(|retry| retry.number);
        let in_flight: Vec<i64> = tried.clone().chain(held().map(|(number, _)| *number)).collect();
        let not_to_sweep: Vec<i64> = tried.chain(session.held_retries.keys().copied()).collect();
        let (dead_blocks, except) = policy.blocking();
        // The rows of other numbers up to the highest are settled, or known in memory.
        let gaps = session.reader.gaps();
        let unread: Vec<_> = gaps.ids().iter().map(|range| (*range.start(), *range.end())).collect();
        let mut connection = acquire(self.common.pool()).await?;
        let asked = Instant::now();
        let rows = sqlx::query(self.statements.failures.retry.sql())
            .bind(policy.ordered)
            .bind(Json(&in_flight))
            .bind(Json(lanes))
            .bind(policy.may_block())
            .bind(i64::from(request.limit))
            .bind(gaps.hi())
            .bind(Json(unread))
            .bind(dead_blocks)
            .bind(Json(except))
            .bind(Json(unsettled))
            .fetch_all(&mut *connection)
            .await?;
        let took = asked.elapsed();
        // A pool may have only this one.
        drop(connection);
        if rows.is_empty() {
            session.retry_looks.looked(now, took, self.retry_interval, false);
            return Ok(Claim::default());
        }
        let mut tx = begin(self.common.pool()).await?;
        let died = self
            .give_up_exhausted(&mut tx, request.max_attempts, &not_to_sweep)
            .await?;
        let Choice {
            messages,
            mut chosen,
            has_more,
        } = self.choose(session, request, &rows, &died)?;
        let mut claim = Claim {
            messages,
            ..Claim::default()
        };
        let refused = self.count_attempts(session, &mut tx, &chosen).await?;
        if !refused.is_empty() {
            claim
                .messages
                .retain(|claimed| !refused.contains_key(&claimed.message.id));
            let (left, taken): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|(id, _, _)| refused.contains_key(id));
            chosen = taken;
            for (id, number, lane) in left {
                if let Some(Some(error)) = refused.get(&id) {
                    session.hold(number, lane, false, now);
                    let error = error.clone();
                    claim.refused.push(RefusedRow { id, error });
                }
            }
        }
        claim.died = died;
        if !self.is_reader(session, &mut tx).await? {
            return Ok(Claim::default());
        }
        tx.commit().await?;
        for (id, number, its_lane) in chosen {
            let token = request.token;
            session.retries.insert(
                id,
                Retry {
                    number,
                    token,
                    lane: its_lane,
                    outcome: None,
                    refused: None,
                },
            );
        }
        session.fresh_first = !claim.messages.is_empty();
        session.retry_looks.looked(now, took, self.retry_interval, has_more);
        Ok(claim)
    }

    /// Those of them that are handed out now.
    fn choose(
        &self,
        session: &Session,
        request: &ClaimRequest,
        rows: &[SqliteRow],
        died: &[MessageId],
    ) -> sqlx::Result<Choice> {
        let policy = Policy::of(&request.ordering);
        let (mut choice, mut bytes) = (Choice::default(), 0_u64);
        for failed in rows {
            let mut claimed = self.map.claimed(&ByRole(failed))?;
            let id = claimed.message.id;
            if died.contains(&id) {
                continue;
            }
            bytes = bytes.saturating_add(claimed.message.payload.len() as u64);
            if bytes > request.max_bytes && !choice.messages.is_empty() {
                choice.has_more = true;
                return Ok(choice);
            }
            let number: i64 = failed.try_get("number")?;
            if !session.is_counted(number) {
                if claimed.attempts >= request.max_attempts {
                    // To give it up was refused.
                    continue;
                }
                claimed.attempts = claimed.attempts.saturating_add(1);
            }
            let lane = lane(&claimed.message).filter(|_| policy.ordered);
            choice.chosen.push((id, number, lane));
            choice.messages.push(claimed);
        }
        choice.has_more = choice.messages.len() >= request.limit as usize;
        Ok(choice)
    }

    /// Gives up what has used all its attempts. If that is refused, the janitor says so.
    async fn give_up_exhausted(
        &self,
        tx: &mut SqliteConnection,
        max_attempts: u32,
        but: &[i64],
    ) -> sqlx::Result<Vec<MessageId>> {
        let mut apart = tx.begin().await?;
        let died = sqlx::query(self.statements.failures.sweep.sql())
            .bind(i64::from(max_attempts))
            .bind(Json(but))
            .bind(EXHAUSTED)
            .fetch_all(&mut *apart)
            .await;
        match died {
            Err(error) if is_refusal(&error) => {
                apart.rollback().await?;
                Ok(Vec::new())
            }
            died => {
                let died = died?;
                apart.commit().await?;
                died.iter().map(|row| id(row, "id", &self.map)).collect()
            }
        }
    }

    /// Counts attempts before they are made. Returns the rows that cannot go: with the reason where counting is refused, and
    /// without one those behind them in their lanes.
    async fn count_attempts(
        &self,
        session: &Session,
        tx: &mut SqliteConnection,
        chosen: &[Chosen],
    ) -> sqlx::Result<HashMap<MessageId, Option<String>>> {
        let mut left_out = HashMap::new();
        let numbers = chosen.iter().map(|(_, number, _)| *number);
        let numbers: Vec<i64> = numbers.filter(|number| !session.is_counted(*number)).collect();
        if self.try_to_count(tx, &numbers).await?.is_none() {
            return Ok(left_out);
        }
        let mut stopped = HashSet::new();
        for (id, number, lane) in chosen {
            if lane.as_ref().is_some_and(|lane| stopped.contains(lane)) {
                left_out.insert(*id, None);
            } else if !session.is_counted(*number)
                && let Some(error) = self.try_to_count(tx, &[*number]).await?
            {
                left_out.insert(*id, Some(error));
                stopped.extend(lane.as_ref());
            }
        }
        Ok(left_out)
    }

    /// Says why if it is refused; then nothing was counted.
    async fn try_to_count(&self, tx: &mut SqliteConnection, numbers: &[i64]) -> sqlx::Result<Option<String>> {
        let mut apart = tx.begin().await?;
        let count = sqlx::query(self.statements.failures.claim_failed.sql()).bind(Json(numbers));
        match count.execute(&mut *apart).await {
            Ok(_) => {
                apart.commit().await?;
                Ok(None)
            }
            Err(error) if is_refusal(&error) => {
                apart.rollback().await?;
                Ok(Some(store_error(error).to_string()))
            }
            Err(error) => Err(error),
        }
    }
}

/// Failed rows that are to be handed out.
#[derive(Default)]
struct Choice {
    messages: Vec<ClaimedMessage>,
    chosen: Vec<Chosen>,
    /// There may be others that are due.
    has_more: bool,
}

/// A failed row that is to be handed out: its id, its number, and its lane where lanes are kept in order.
type Chosen = (MessageId, i64, Option<Lane>);
