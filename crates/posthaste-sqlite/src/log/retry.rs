//! Hands out failed rows that are due.

use std::collections::BTreeSet;
use std::time::Instant;

use posthaste_core::MessageId;
use posthaste_core::lifecycle::EXHAUSTED;
use posthaste_core::store::{Claim, ClaimRequest};
use posthaste_sql::log::Policy;
use sqlx::Row;
use sqlx::types::Json;

use super::Inner;
use super::rows::lane;
use super::session::{Retry, Session};
use crate::BEGIN;
use crate::rows::{ByRole, id};

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
        let lanes: BTreeSet<_> = window.lanes_in_flight().chain(retries_in_flight).collect();
        let lanes: Vec<_> = lanes
            .into_iter()
            .map(|lane| (lane.0.to_string(), lane.1.to_string()))
            .collect();
        let in_flight: Vec<i64> = session.retries.values().map(|retry| retry.number).collect();
        // What is behind a dead one is sorted out here, by topic.
        let look = if policy.may_block() {
            request.limit.saturating_mul(100)
        } else {
            request.limit
        };
        let state = session.reader.state(now);
        let rows = sqlx::query(self.statements.failures.retry.sql())
            .bind(policy.ordered)
            .bind(Json(&in_flight))
            .bind(Json(lanes))
            .bind(policy.may_block())
            .bind(i64::from(look))
            // A message with a time of its own waits for all before it to be read.
            .bind(state.hi)
            .fetch_all(self.common.pool())
            .await?;
        if rows.is_empty() {
            session.retry_at = now + self.retry_interval;
            return Ok(Claim::default());
        }
        let mut tx = self.common.pool().begin_with(BEGIN).await?;
        let died = sqlx::query(self.statements.failures.sweep.sql())
            .bind(i64::from(request.max_attempts))
            .bind(Json(&in_flight))
            .bind(EXHAUSTED)
            .fetch_all(&mut *tx)
            .await?;
        let died: Vec<MessageId> = died
            .iter()
            .map(|row| id(row, "id", &self.map))
            .collect::<sqlx::Result<_>>()?;
        let (mut claim, mut chosen, mut bytes) = (Claim::default(), Vec::new(), 0_u64);
        for failed in &rows {
            let mut claimed = self.map.claimed(&ByRole(failed))?;
            let id = claimed.message.id;
            if died.contains(&id) || (failed.try_get("behind_dead")? && policy.blocks(&claimed.message.topic)) {
                continue;
            }
            // What stands unsettled before it in the log comes first.
            let lane = lane(&claimed.message).filter(|_| policy.ordered);
            let place: i64 = failed.try_get("seq")?;
            if lane
                .as_ref()
                .is_some_and(|lane| session.reader.window.is_behind(place, lane))
            {
                continue;
            }
            bytes = bytes.saturating_add(claimed.message.payload.len() as u64);
            if claim.messages.len() >= request.limit as usize
                || (bytes > request.max_bytes && !claim.messages.is_empty())
            {
                break;
            }
            let number: i64 = failed.try_get("number")?;
            claimed.attempts = claimed.attempts.saturating_add(1);
            chosen.push((id, number, lane));
            claim.messages.push(claimed);
        }
        claim.died = died;
        let numbers: Vec<i64> = chosen.iter().map(|(_, number, _)| *number).collect();
        sqlx::query(self.statements.failures.claim_failed.sql())
            .bind(Json(numbers))
            .execute(&mut *tx)
            .await?;
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
                },
            );
        }
        session.fresh_first = !claim.messages.is_empty();
        if claim.messages.len() < request.limit as usize {
            session.retry_at = now + self.retry_interval;
        }
        Ok(claim)
    }
}
