//! Who serves the outbox, and who leads.

use chrono::{DateTime, Utc};
use posthaste_core::store::{FORGOTTEN_AFTER, LeadRequest, Leadership, RelayHeartbeat, RelayRecord, WorkerId};

use super::rows::Rows;

/// A relay's last heartbeat.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    heartbeat: RelayHeartbeat,
    started_at: DateTime<Utc>,
    seen_at: DateTime<Utc>,
}

/// Who leads a namespace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leader {
    worker: WorkerId,
    until: DateTime<Utc>,
}

impl Rows {
    pub(super) fn heartbeat(&mut self, heartbeat: &RelayHeartbeat, now: DateTime<Utc>) {
        let heard = self.relays.entry(heartbeat.worker.as_uuid()).or_insert_with(|| Heard {
            heartbeat: heartbeat.clone(),
            started_at: now,
            seen_at: now,
        });
        heard.heartbeat = heartbeat.clone();
        heard.seen_at = now;
        self.relays.retain(|_, heard| heard.seen_at >= now - FORGOTTEN_AFTER);
    }

    pub(super) fn elect_leader(&mut self, request: &LeadRequest, now: DateTime<Utc>) -> Leadership {
        if let Some(leader) = self.leaders.get(&*request.key())
            && leader.worker != request.worker
            && leader.until > now
        {
            return Leadership::HeldBy {
                worker: leader.worker.as_uuid(),
                left: (leader.until - now).to_std().unwrap_or_default(),
            };
        }
        let leader = Leader {
            worker: request.worker,
            until: now + request.lease,
        };
        self.leaders.insert(request.key().into_owned(), leader);
        Leadership::Held
    }

    pub(super) fn deregister(&mut self, worker: WorkerId) {
        self.relays.remove(&worker.as_uuid());
        self.leaders.retain(|_, leader| leader.worker != worker);
    }

    pub(super) fn relays(&self, namespace: &str, now: DateTime<Utc>) -> Vec<RelayRecord> {
        let leader = self.leaders.get(namespace).filter(|leader| leader.until > now);
        let of_namespace = self
            .relays
            .values()
            .filter(|heard| heard.heartbeat.namespace == namespace);
        let mut relays: Vec<_> = of_namespace
            .map(
                |Heard {
                     heartbeat,
                     started_at,
                     seen_at,
                 }| RelayRecord {
                    worker: heartbeat.worker.as_uuid(),
                    namespace: heartbeat.namespace.clone(),
                    publisher: heartbeat.publisher.clone(),
                    host: heartbeat.host.clone(),
                    pid: heartbeat.pid,
                    version: heartbeat.version.clone(),
                    started_at: *started_at,
                    seen_at: *seen_at,
                    silent_seconds: (now - *seen_at).as_seconds_f64().max(0.0),
                    circuit: heartbeat.circuit,
                    circuit_since: *seen_at - heartbeat.circuit_lasted,
                    circuit_reason: heartbeat.circuit_reason.clone(),
                    leads: leader.is_some_and(|leader| leader.worker == heartbeat.worker),
                },
            )
            .collect();
        relays.sort_by_key(|relay| (relay.started_at, relay.worker));
        relays
    }
}
