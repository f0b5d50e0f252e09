//! What the tables of a database would hold.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use posthaste_core::integrity::ContentHash;
use posthaste_core::lifecycle::{LeaseToken, RowModel, State};
use posthaste_core::store::{PurgeRequest, Record, Scope, WorkerId};
use posthaste_core::{Message, MessageId, Text};
use tokio::sync::{OwnedMutexGuard, watch};
use uuid::Uuid;

use super::registry::{Heard, Leader};

/// The end of a claim in a table that does not say when it ends.
pub(super) const NEVER: DateTime<Utc> = DateTime::<Utc>::MAX_UTC;

/// What all clones of a store share.
#[derive(Debug)]
pub(super) struct Shared {
    rows: Mutex<Rows>,
    unique: Mutex<HashMap<UniqueKey, Arc<tokio::sync::Mutex<()>>>>,
    /// Counts commits with messages.
    pub(super) notifier: watch::Sender<u64>,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            rows: Mutex::default(),
            unique: Mutex::default(),
            notifier: watch::Sender::new(0),
        }
    }
}

impl Shared {
    pub(super) fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a transaction that has written the same unique key and not ended yet, as a unique index does.
    pub(super) async fn reserve(&self, key: UniqueKey) -> OwnedMutexGuard<()> {
        let lock = {
            let mut unique = self.unique.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(unique.entry(key).or_default())
        };
        lock.lock_owned().await
    }
}

/// An entry of a unique index. Ordered, so that calls with several keys reserve them in one order and cannot wait for
/// each other in a circle.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum UniqueKey {
    Dedupe(DedupeKey),
    Handled(HandledKey),
}

/// Namespace, topic and dedupe key.
pub(super) type DedupeKey = (String, Text, Text);
/// Consumer and key.
pub(super) type HandledKey = (String, String);

#[derive(Debug, Default)]
pub(super) struct Rows {
    /// Rows that cannot be claimed.
    pub(super) unchangeable: HashSet<MessageId>,
    pub(super) outbox: BTreeMap<i64, Row>,
    pub(super) sequences: HashMap<MessageId, i64>,
    pub(super) dedupe: HashMap<DedupeKey, Dedupe>,
    pub(super) handled: HashMap<HandledKey, DateTime<Utc>>,
    pub(super) business: Vec<String>,
    pub(super) relays: BTreeMap<Uuid, Heard>,
    pub(super) leaders: HashMap<String, Leader>,
    /// Rows that transactions of the application have locked.
    pub(super) locked: HashSet<MessageId>,
    last_sequence: i64,
}

/// The rows that a transaction has locked, until it ends.
#[derive(Debug)]
pub(super) struct Locks {
    shared: Arc<Shared>,
    ids: HashSet<MessageId>,
}

impl Locks {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            ids: HashSet::new(),
        }
    }

    pub(super) fn add(&mut self, id: MessageId) {
        self.shared.rows().locked.insert(id);
        self.ids.insert(id);
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        let mut rows = self.shared.rows();
        for id in &self.ids {
            rows.locked.remove(id);
        }
    }
}

/// A dedupe key that was used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dedupe {
    pub(super) id: MessageId,
    pub(super) until: DateTime<Utc>,
}

/// One message and its row model.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// As it is handed out: with its namespace, and without `not_before`, which lives on in the next attempt.
    pub(super) message: Message,
    pub(super) namespace: String,
    pub(super) hash: ContentHash,
    pub(super) model: RowModel,
    pub(super) locked_by: Option<WorkerId>,
    pub(super) locked_at: Option<DateTime<Utc>>,
    pub(super) version: i64,
    /// Why it can never be published.
    pub(super) fault: Option<String>,
    /// The row's own limit.
    pub(super) max_attempts: Option<u32>,
    pub(super) delivered_at: Option<DateTime<Utc>>,
}

impl Rows {
    /// Taken when a row is written, not when it is committed, as databases do.
    pub(super) fn next_sequence(&mut self) -> i64 {
        self.last_sequence += 1;
        self.last_sequence
    }

    pub(super) fn insert(&mut self, sequence: i64, row: Row) {
        self.sequences.insert(row.message.id, sequence);
        self.outbox.insert(sequence, row);
    }

    pub(super) fn remove(&mut self, sequence: i64) {
        if let Some(row) = self.outbox.remove(&sequence) {
            self.sequences.remove(&row.message.id);
        }
    }

    pub(super) fn row(&self, id: MessageId) -> Option<(i64, &Row)> {
        let sequence = *self.sequences.get(&id)?;
        self.outbox.get(&sequence).map(|row| (sequence, row))
    }

    pub(super) fn row_mut(&mut self, id: MessageId) -> Option<&mut Row> {
        self.outbox.get_mut(self.sequences.get(&id)?)
    }

    /// Whether a row is under this token while another transaction has locked it.
    pub(super) fn is_busy(&self, id: MessageId, token: LeaseToken) -> bool {
        let held = |row: &Row| {
            let lease = row.model.lease.is_some_and(|lease| lease.token == token);
            row.model.state == State::Processing && lease
        };
        self.locked.contains(&id) && self.row(id).is_some_and(|(_, row)| held(row))
    }

    /// The message that holds a dedupe key: as long as its row is there or its window runs, whichever is longer.
    pub(super) fn dedupe_holder(&self, key: &DedupeKey, now: DateTime<Utc>) -> Option<MessageId> {
        let dedupe = self.dedupe.get(key)?;
        (dedupe.until > now || self.sequences.contains_key(&dedupe.id)).then_some(dedupe.id)
    }
}

impl Row {
    /// Whether it is old enough to be removed, by what the request says of its state.
    pub(super) fn is_purgeable(&self, request: &PurgeRequest, now: DateTime<Utc>) -> bool {
        let is_old = |at: DateTime<Utc>, keep: Option<Duration>| keep.is_some_and(|keep| at < now - keep);
        match self.model.state {
            State::Delivered => self.delivered_at.is_some_and(|at| is_old(at, request.delivered)),
            State::Dead => is_old(self.model.updated_at, request.dead),
            State::Pending | State::Processing => false,
        }
    }

    pub(super) fn is_in(&self, scope: &Scope) -> bool {
        self.namespace == scope.namespace
            && (scope.topics.is_empty() || scope.topics.iter().any(|topic| *topic == self.message.topic))
            && (scope.tenant.is_none() || self.message.tenant.as_deref() == scope.tenant.as_deref())
    }

    /// Most attempts of this row, where the policy has so many.
    pub(super) fn limit(&self, max_attempts: u32) -> u32 {
        self.max_attempts.unwrap_or(max_attempts)
    }

    pub(super) fn record(&self, sequence: i64) -> Record {
        Record {
            message: self.message.clone(),
            sequence: Some(sequence),
            state: self.model.state,
            attempts: self.model.attempts,
            next_attempt_at: self.model.next_attempt_at,
            locked_by: self.locked_by.map(|worker| worker.as_uuid().to_string()),
            locked_until: self.model.lease.map(|lease| lease.until).filter(|until| *until < NEVER),
            last_error: self.model.last_error.clone(),
            created_at: self.model.created_at,
            updated_at: self.model.updated_at,
            delivered_at: self.delivered_at,
        }
    }

    /// Brings the columns that [`RowModel`] does not keep in line with it, after a transition.
    pub(super) fn follow(&mut self, now: DateTime<Utc>) {
        if self.model.state != State::Processing {
            self.locked_by = None;
            self.locked_at = None;
        }
        self.version += 1;
        if self.model.state == State::Delivered {
            self.delivered_at.get_or_insert(now);
        }
    }
}
