//! The relay's verbs, and the schema's, which has nothing to do.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::MutexGuard;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use posthaste_core::integrity::StoredHash;
use posthaste_core::lifecycle::{Lease, Settlement, State};
use posthaste_core::store::{
    BusyRow, Claim, ClaimRequest, ClaimedMessage, ExtendRequest, Extended, LeadRequest, Leadership, Migration,
    OutboxStats, ProducerStore, PurgeRequest, Purged, RecoverRequest, Recovered, RelayHeartbeat, RelayRecord,
    RelayRegistry, SchemaStore, Scope, Settled, StoreRequirements, TableGauges, TopicBacklog, WorkerId,
};
use posthaste_core::wake::Listener;
use posthaste_core::{EnqueueError, Enqueued, Message, MessageId, OutboxOptions, RelayStore, StoreError};
use tokio::sync::watch;

use super::rows::{NEVER, Row, Rows};
use super::{MemoryLease, MemoryStore, claim};

#[async_trait]
impl RelayStore for MemoryStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let now = self.clock.now();
        let mut rows = self.rows_at(now);
        // What waits above a lowered limit is left to the sweep.
        let died = sweep(&mut rows, &request.scope, request.max_attempts, now, |state| {
            state == State::Processing
        });
        let (chosen, reclaimed, refused) = claim::choose_but_refused(&rows, request, now);
        let lease = Lease {
            token: request.token,
            until: self.until(now, request.lease),
        };
        let mut messages = Vec::with_capacity(chosen.len());
        for sequence in chosen {
            let Some(row) = rows.outbox.get_mut(&sequence) else {
                continue;
            };
            if row.model.claim(now, lease, row.limit(request.max_attempts)).is_ok() {
                row.follow(now);
                row.locked_by = Some(request.worker);
                row.locked_at = Some(now);
                messages.push(ClaimedMessage {
                    message: row.message.clone(),
                    sequence: Some(sequence),
                    created_at: row.model.created_at,
                    attempts: row.model.attempts,
                    hash: Some(StoredHash::native(Some(row.hash))),
                    version: self.table.versioned.then_some(row.version),
                    fault: row.fault.clone(),
                    max_attempts: row.max_attempts,
                });
                if self.table.without_attempts {
                    row.model.attempts = 0;
                }
            }
        }
        Ok(Claim {
            messages,
            reclaimed,
            died,
            refused,
        })
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Settled, StoreError> {
        let now = self.clock.now();
        let mut rows = self.rows_at(now);
        let (mut lost, mut busy) = (Vec::new(), Vec::new());
        for settlement in settlements {
            if rows.is_busy(settlement.id, settlement.token) {
                busy.push(BusyRow {
                    id: settlement.id,
                    holder: Some("a transaction in memory".to_owned()),
                });
                continue;
            }
            let settled = rows.row_mut(settlement.id).is_some_and(|row| {
                let known = settlement.version.is_none_or(|version| version == row.version);
                let settled = known && row.model.settle(now, settlement.token, &settlement.verdict).is_ok();
                if settled {
                    // As tables keep it.
                    let error = row.model.last_error.take();
                    row.model.last_error = error.map(|error| error.replace('\0', " "));
                    row.follow(now);
                }
                settled
            });
            if !settled {
                lost.push(settlement.id);
            }
        }
        if self.table.lease == MemoryLease::RowLocks {
            rows.commit(settlements, now);
        }
        Ok(Settled {
            busy,
            ..Settled::but(lost)
        })
    }

    async fn extend(&self, request: ExtendRequest<'_>) -> Result<Extended, StoreError> {
        let ExtendRequest { token, ids, lease } = request;
        let now = self.clock.now();
        let mut rows = self.rows_at(now);
        let until = self.until(now, lease);
        let (busy, free): (Vec<_>, Vec<_>) = ids.iter().copied().partition(|id| rows.is_busy(*id, token));
        let held = |id: &MessageId| {
            let Some(row) = rows.row_mut(*id) else { return false };
            let held = row.model.extend(now, Lease { token, until }).is_ok();
            if held {
                row.locked_at = Some(now);
            }
            held
        };
        let held = free.into_iter().filter(held).collect();
        Ok(Extended { held, busy })
    }

    fn requirements(&self) -> StoreRequirements {
        self.table.requirements()
    }

    async fn recover(&self, request: &RecoverRequest) -> Result<Recovered, StoreError> {
        if self.table.lease != MemoryLease::Since {
            return Ok(Recovered::default());
        }
        let now = self.clock.now();
        let mut rows = self.shared.rows();
        Ok(rows.recover(&request.scope, request.max_attempts, now - request.stalled_after, now))
    }

    async fn sweep(&self, scope: &Scope, max_attempts: u32) -> Result<Vec<MessageId>, StoreError> {
        let now = self.clock.now();
        Ok(sweep(&mut self.rows_at(now), scope, max_attempts, now, |_| true))
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<Purged, StoreError> {
        let now = self.clock.now();
        let mut rows = self.shared.rows();
        let limit = request.limit as usize;
        let mut purged = Purged::default();
        let of_namespace = |row: &Row| request.namespace.as_ref().is_none_or(|asked| *asked == row.namespace);
        let old: Vec<_> = rows
            .outbox
            .iter()
            .filter(|(_, row)| of_namespace(row) && !rows.locked.contains(&row.message.id))
            .filter(|(_, row)| row.is_purgeable(request, now))
            .map(|(sequence, row)| (*sequence, row.model.state, row.message.id))
            .collect();
        for (sequence, state, id) in old {
            if state == State::Dead && purged.dead.len() < limit {
                purged.dead.push(id);
            } else if state == State::Delivered && purged.delivered < u64::from(request.limit) {
                purged.delivered += 1;
            } else {
                continue;
            }
            rows.remove(sequence);
        }
        let free: Vec<_> = rows
            .dedupe
            .keys()
            .filter(|key| request.dedupe && rows.dedupe_holder(key, now).is_none())
            .take(limit)
            .cloned()
            .collect();
        for key in &free {
            rows.dedupe.remove(key);
        }
        purged.dedupe = free.len() as u64;
        Ok(purged)
    }

    async fn stats(&self, namespace: &str) -> Result<OutboxStats, StoreError> {
        let now = self.clock.now();
        let rows = self.shared.rows();
        let mut stats = OutboxStats::default();
        let mut oldest = now;
        for row in rows.outbox.values().filter(|row| row.namespace == namespace) {
            let model = &row.model;
            match model.state {
                State::Pending => {
                    stats.pending += 1;
                    stats.waiting += u64::from(model.next_attempt_at > now);
                }
                State::Processing => stats.processing += 1,
                State::Dead => stats.dead += 1,
                State::Delivered => {}
            }
            if matches!(model.state, State::Pending | State::Processing) {
                oldest = oldest.min(model.created_at);
            }
        }
        stats.oldest_seconds = (now - oldest).as_seconds_f64();
        Ok(stats)
    }

    async fn table_gauges(&self, namespace: &str) -> Result<TableGauges, StoreError> {
        let stats = self.stats(namespace).await?;
        let now = self.clock.now();
        let rows = self.shared.rows();
        let mut by_topic: BTreeMap<&str, TopicBacklog> = BTreeMap::new();
        let is_pending = |row: &&Row| row.namespace == namespace && row.model.state == State::Pending;
        for row in rows.outbox.values().filter(is_pending) {
            let topic = row.message.topic.as_str();
            let backlog = by_topic.entry(topic).or_insert_with(|| TopicBacklog {
                topic: topic.to_owned(),
                pending: 0,
                oldest_seconds: 0.0,
            });
            backlog.pending += 1;
            let age = (now - row.model.created_at).as_seconds_f64();
            backlog.oldest_seconds = backlog.oldest_seconds.max(age);
        }
        let mut topics: Vec<_> = by_topic.into_values().collect();
        topics.sort_by_key(|topic| Reverse(topic.pending));
        Ok(TableGauges {
            stats,
            topics,
            shards: Vec::new(),
        })
    }

    fn registry(&self) -> Option<&dyn RelayRegistry> {
        Some(self)
    }

    async fn listener(&self) -> Option<Box<dyn Listener>> {
        Some(Box::new(Notifier(self.shared.notifier.subscribe())))
    }

    async fn check_for(&self, _scope: &Scope) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl RelayRegistry for MemoryStore {
    async fn heartbeat(&self, heartbeat: &RelayHeartbeat) -> Result<(), StoreError> {
        self.shared.rows().heartbeat(heartbeat, self.clock.now());
        Ok(())
    }

    async fn elect_leader(&self, request: &LeadRequest) -> Result<Leadership, StoreError> {
        Ok(self.shared.rows().elect_leader(request, self.clock.now()))
    }

    async fn deregister(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.shared.rows().deregister(worker);
        Ok(())
    }

    async fn relays(&self, namespace: &str) -> Result<Vec<RelayRecord>, StoreError> {
        Ok(self.shared.rows().relays(namespace, self.clock.now()))
    }
}

impl MemoryStore {
    /// The rows, once the database has done what it does by itself.
    fn rows_at(&self, now: DateTime<Utc>) -> MutexGuard<'_, Rows> {
        let mut rows = self.shared.rows();
        if self.table.lease == MemoryLease::RowLocks {
            rows.roll_back_expired(now);
        }
        rows
    }

    /// Until when a claim holds.
    fn until(&self, now: DateTime<Utc>, lease: Duration) -> DateTime<Utc> {
        match self.table.lease {
            MemoryLease::Since => NEVER,
            MemoryLease::Until | MemoryLease::RowLocks => now + lease,
        }
    }
}

fn sweep(
    rows: &mut Rows,
    scope: &Scope,
    max_attempts: u32,
    now: DateTime<Utc>,
    concerned: impl Fn(State) -> bool,
) -> Vec<MessageId> {
    let mut died = Vec::new();
    let Rows { outbox, locked, .. } = rows;
    let in_scope = outbox.values_mut().filter(|row| row.is_in(scope));
    let free = in_scope.filter(|row| !locked.contains(&row.message.id));
    for row in free.filter(|row| concerned(row.model.state)) {
        if row.model.sweep(now, row.limit(max_attempts)).is_ok() {
            row.follow(now);
            died.push(row.message.id);
        }
    }
    died
}

/// Rings at every commit with messages.
struct Notifier(watch::Receiver<u64>);

#[async_trait]
impl Listener for Notifier {
    async fn wait(&mut self) {
        if self.0.changed().await.is_err() {
            // The store is gone, so there is nothing left to wake for.
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl ProducerStore for MemoryStore {
    async fn enqueue_and_commit(
        &self,
        options: &OutboxOptions,
        messages: Vec<Message>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let mut tx = self.begin();
        let enqueued = tx.enqueue(messages, options).await?;
        tx.commit();
        Ok(enqueued)
    }
}

#[async_trait]
impl SchemaStore for MemoryStore {
    fn migrations(&self) -> Vec<Migration> {
        Vec::new()
    }

    async fn applied(&self) -> Result<Vec<i64>, StoreError> {
        Ok(Vec::new())
    }

    async fn migrate(&self) -> Result<Vec<Migration>, StoreError> {
        Ok(Vec::new())
    }

    fn statements(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}
