//! Hands out fresh rows of the log, and failed rows that are due.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use posthaste_core::store::{Claim, ClaimRequest, ClaimedMessage, DeadHead, KeyOrdering};
use posthaste_sql::TableMap;
use posthaste_sql::log::{Failure, Holder, LaneRule, LogRow, ReadResult};
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::error::LogResult;
use super::reader_lock::shared_session;
use super::relay_store::say_refused;
use super::rows::{failed, fresh, lane};
use super::session::{Retry, Session};
use super::{Reader, of_shard};

/// A claim that finds only rows that have to wait reads on, but not forever: the next claim goes on where it ended.
const MAX_READS: u32 = 20;

/// Every such read looks at twice as many rows as the one before, up to so many: others may wait behind a long backlog.
const MAX_ROWS: u32 = 1_000;

/// How often gaps whose holders have ended are looked into before a claim says that there is nothing. There may always be
/// more of them; the next claim is soon.
const SECOND_LOOKS: u32 = 2;

impl Reader {
    pub(super) async fn claim_on(&self, session: &mut Session, request: &ClaimRequest) -> LogResult<Claim> {
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

    async fn claim_now(&self, session: &mut Session, request: &ClaimRequest, now: Instant) -> LogResult<Claim> {
        say_refused(&self.flush(session, &[], now).await?.refused);
        // Nothing more is handed out while it is not known how far it was: after a restart it would all go out again.
        self.checkpoint(session, false, now).await?;
        self.watch_ids(session, now).await?;
        let retry_due = session.retry_at <= now;
        // Failed rows first, but not twice in a row: neither lane may starve the other.
        let fresh_first = std::mem::take(&mut session.fresh_first);
        let mut messages = Vec::new();
        if retry_due && !fresh_first {
            messages = self.claim_failed(session, request, now).await?;
        }
        if messages.is_empty() {
            messages = self.claim_fresh(session, request, now).await?;
        }
        if messages.is_empty() && retry_due && fresh_first {
            messages = self.claim_failed(session, request, now).await?;
        }
        if messages.is_empty() {
            let at_rest = session.in_flight() == 0;
            self.checkpoint(session, at_rest, now).await?;
        }
        Ok(Claim {
            messages,
            ..Claim::default()
        })
    }

    /// Failed rows that are due.
    async fn claim_failed(
        &self,
        session: &mut Session,
        request: &ClaimRequest,
        now: Instant,
    ) -> LogResult<Vec<ClaimedMessage>> {
        let policy = Policy::of(&request.ordering);
        let held = || session.held_retries.iter().filter(|(_, (until, _))| !until.is_due(now));
        let held_lanes = held().filter_map(|(_, (_, lane))| lane.as_ref());
        let retries_in_flight = session.retries.values().filter_map(|retry| retry.lane.as_ref());
        let lanes: BTreeSet<_> = session
            .reader
            .window
            .lanes_in_flight()
            .chain(retries_in_flight)
            .chain(held_lanes)
            .collect();
        let limit = request.limit.min(self.options.retry_batch);
        let query = sqlx::query(self.statements.failures.retry.sql())
            .bind(i64::from(self.retries_allowed(request)))
            .bind(policy.ordered)
            .bind(
                session
                    .retries
                    .keys()
                    .chain(held().map(|(row, _)| row))
                    .copied()
                    .collect::<Vec<_>>(),
            )
            .bind(lanes.iter().map(|lane| lane.0.to_string()).collect::<Vec<_>>())
            .bind(lanes.iter().map(|lane| lane.1.to_string()).collect::<Vec<_>>())
            .bind(policy.may_block())
            // Which rows are blocked depends on their topics, which the table does not have: those are sorted out here.
            .bind(i64::from(if policy.may_block() {
                limit.saturating_mul(100)
            } else {
                limit
            }));
        let mut query = of_shard(query, self.shard.as_ref());
        if self.shard.is_some() {
            query = query.bind(session.reader.gaps().hi());
        }
        let rows = query.fetch_all(session.connection()?).await?;
        let (mut messages, mut bytes) = (Vec::new(), 0);
        for row in &rows {
            let claimed = failed(row, &self.map)?;
            if row.try_get("behind_dead")? && policy.blocks(&claimed.message.topic) {
                continue;
            }
            let lane = lane(row)?.filter(|_| policy.ordered);
            // What has a time of its own stands behind rows of its lane that wait in memory.
            if let (Some(lane), Some(place), true) = (&lane, claimed.sequence, self.is_native())
                && session.reader.window.is_behind(place, lane)
            {
                continue;
            }
            bytes += claimed.message.payload.len() as u64;
            if messages.len() >= limit as usize || (bytes > request.max_bytes && !messages.is_empty()) {
                break;
            }
            let retry = Retry {
                token: request.token,
                lane,
                outcome: None,
                refused: None,
            };
            session.retries.insert(row.try_get("id")?, retry);
            messages.push(claimed);
        }
        session.fresh_first = !messages.is_empty();
        if messages.len() < limit as usize {
            session.retry_at = now + self.options.retry_interval;
        }
        Ok(messages)
    }

    /// Fresh rows of the log.
    async fn claim_fresh(
        &self,
        session: &mut Session,
        request: &ClaimRequest,
        now: Instant,
    ) -> LogResult<Vec<ClaimedMessage>> {
        let policy = Policy::of(&request.ordering);
        let lanes = policy.lanes(request.pipelined);
        for reads in 0..MAX_READS {
            if let Some(messages) = self.claim_tail(session, request, lanes, now).await? {
                if messages.is_empty() && session.reader.window.has_waiting() {
                    continue;
                }
                return Ok(messages);
            }
            let rows_to_read = request
                .limit
                .saturating_mul(1 << reads)
                .min(MAX_ROWS)
                .max(request.limit);
            let plan = session
                .reader
                .plan(now, request.limit as usize)
                .pipelined(request.pipelined);
            if plan.ids.is_empty() {
                break;
            }
            let (first, last): (Vec<i64>, Vec<i64>) =
                plan.ids.iter().map(|range| (*range.start(), *range.end())).unzip();
            let query = sqlx::query(self.statements.reading.read.sql())
                .bind(first)
                .bind(last)
                .bind(i64::from(rows_to_read))
                .bind(i64::try_from(request.max_bytes).unwrap_or(i64::MAX))
                .bind(i64::from(self.options.max_retries))
                .bind(self.lock_source());
            let query = of_shard(query, self.shard.as_ref());
            let rows = query.fetch_all(session.connection()?).await?;
            let mark = session.link.as_ref().map(|link| link.mark.as_str());
            if rows.first().map(|row| row.try_get("reader")).transpose()? != Some(mark) {
                return Err(shared_session());
            }
            let read = Read::of(&rows, &self.map, rows_to_read as usize, &policy)?;
            let sorted = session.reader.read(&plan, &read.result, request.token, policy.ordered);
            if !sorted.park.is_empty() {
                for id in sorted.park {
                    session.reader.window.fail(Failure::parked(id));
                }
                say_refused(&self.flush(session, &[], now).await?.refused);
            }
            if !sorted.handed_out.is_empty() {
                let mut messages = read.messages;
                let message = |id: &i64| messages.remove(id);
                return Ok(sorted.handed_out.iter().filter_map(message).collect());
            }
            // Another read if this one did not see everything, or to close the gaps that it found abandoned.
            let second_look = reads < SECOND_LOOKS && session.reader.gaps().worth_a_look();
            if read.result.complete_to == i64::MAX && !second_look {
                break;
            }
        }
        Ok(Vec::new())
    }

    /// Retries that this relay may make; never more than those after which a row counts as dead. Where all tries are
    /// counted, those.
    fn retries_allowed(&self, request: &ClaimRequest) -> u32 {
        if self.is_native() {
            return request.max_attempts;
        }
        self.options.max_retries.min(request.max_attempts.saturating_sub(1))
    }
}

/// One read of the log.
struct Read {
    result: ReadResult,
    messages: HashMap<i64, ClaimedMessage>,
}

impl Read {
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

/// What a claim says about order.
struct Policy<'a> {
    ordered: bool,
    dead_blocks: bool,
    except: &'a [String],
}

impl<'a> Policy<'a> {
    fn of(ordering: &'a KeyOrdering) -> Self {
        match ordering {
            KeyOrdering::None => Self {
                ordered: false,
                dead_blocks: false,
                except: &[],
            },
            KeyOrdering::PerKey { dead_head, except } => Self {
                ordered: true,
                dead_blocks: *dead_head == DeadHead::Block,
                except,
            },
        }
    }

    /// In which order rows go.
    fn lanes(&self, pipelined: bool) -> LaneRule {
        match (self.ordered, pipelined) {
            (false, _) => LaneRule::Unordered,
            (true, false) => LaneRule::OneBatch,
            (true, true) => LaneRule::Pipelined,
        }
    }

    /// Whether a row that was given up blocks its lane in any topic.
    fn may_block(&self) -> bool {
        self.dead_blocks || !self.except.is_empty()
    }

    /// Whether it does in this one.
    fn blocks(&self, topic: &str) -> bool {
        self.except.iter().any(|other| other == topic) != self.dead_blocks
    }
}
