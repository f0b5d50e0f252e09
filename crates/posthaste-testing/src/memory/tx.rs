//! Transactions in memory.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::enqueue::{NewRow, Prepared};
use posthaste_core::lifecycle::RowModel;
use posthaste_core::{EnqueueError, Enqueued, IntoMessage, Mark, Message, MessageId, OutboxOptions};
use tokio::sync::OwnedMutexGuard;

use super::MemoryStore;
use super::rows::{Dedupe, DedupeKey, HandledKey, Locks, Row, UniqueKey};

/// A transaction of a [`MemoryStore`]. What it wrote is not seen before [`MemoryTx::commit`]; dropping it is a rollback.
/// A second transaction with an equal dedupe or inbox key waits until the first has ended.
#[derive(Debug)]
#[must_use = "a transaction that is dropped is rolled back"]
pub struct MemoryTx(MemoryConnection);

/// What is written on in a [`MemoryTx`], as on the connection of a database.
#[derive(Debug)]
pub struct MemoryConnection {
    store: MemoryStore,
    outbox: Vec<(i64, Row)>,
    ids: HashSet<MessageId>,
    dedupe: HashMap<DedupeKey, Dedupe>,
    handled: Vec<HandledKey>,
    business: Vec<String>,
    reserved: HashMap<UniqueKey, OwnedMutexGuard<()>>,
    locks: Locks,
    pub(super) marks: Vec<Mark>,
}

impl MemoryTx {
    pub(super) fn new(store: MemoryStore) -> Self {
        Self(MemoryConnection::new(store))
    }

    /// Makes everything visible at once.
    pub fn commit(self) {
        self.0.commit();
    }

    /// Forgets everything.
    pub fn rollback(self) {}
}

impl Deref for MemoryTx {
    type Target = MemoryConnection;

    fn deref(&self) -> &MemoryConnection {
        &self.0
    }
}

impl DerefMut for MemoryTx {
    fn deref_mut(&mut self) -> &mut MemoryConnection {
        &mut self.0
    }
}

impl MemoryConnection {
    fn new(store: MemoryStore) -> Self {
        Self {
            locks: Locks::new(Arc::clone(&store.shared)),
            store,
            outbox: Vec::new(),
            ids: HashSet::new(),
            dedupe: HashMap::new(),
            handled: Vec::new(),
            business: Vec::new(),
            reserved: HashMap::new(),
            marks: Vec::new(),
        }
    }

    /// Enqueues messages; they are sent once the transaction is committed.
    ///
    /// # Errors
    /// [`EnqueueError::Invalid`] and [`EnqueueError::Encode`] if one of them is refused; none is enqueued then.
    pub async fn enqueue<M: IntoMessage>(
        &mut self,
        messages: impl IntoIterator<Item = M>,
        options: &OutboxOptions,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let prepared = Prepared::new(messages, options)?;
        let stored = self.insert(&prepared, options.dedupe_window).await;
        Ok(prepared.outcomes(&stored))
    }

    pub(super) async fn insert(&mut self, prepared: &Prepared, dedupe_window: Duration) -> Vec<Enqueued> {
        let keys: BTreeSet<_> = prepared.rows.iter().filter_map(dedupe_key).collect();
        for key in keys {
            self.reserve(UniqueKey::Dedupe(key)).await;
        }
        prepared.rows.iter().map(|row| self.stage(row, dedupe_window)).collect()
    }

    fn stage(&mut self, new: &NewRow, window: Duration) -> Enqueued {
        let now = self.store.clock.now();
        let id = new.message.id;
        let mut rows = self.store.shared.rows();
        if let Some(key) = dedupe_key(new) {
            let staged = self.dedupe.get(&key).map(|dedupe| dedupe.id);
            if let Some(holder) = staged.or_else(|| rows.dedupe_holder(&key, now)) {
                return Enqueued::Duplicate(holder);
            }
            let until = now + window;
            self.dedupe.insert(key, Dedupe { id, until });
        }
        if rows.row(id).is_some() || !self.ids.insert(id) {
            return Enqueued::Duplicate(id);
        }
        let row = Row {
            message: Message {
                namespace: Some(new.namespace.clone()),
                not_before: None,
                ..new.message.clone()
            },
            namespace: new.namespace.to_string(),
            hash: *new.hash(),
            model: RowModel::begin(now, new.message.not_before),
            locked_by: None,
            locked_at: None,
            version: 0,
            fault: None,
            max_attempts: None,
            delivered_at: None,
        };
        self.outbox.push((rows.next_sequence(), row));
        Enqueued::Inserted(id)
    }

    /// Writes to a table of the application's own, so that a test can see that both are committed or neither.
    pub fn write_business_row(&mut self, key: impl Into<String>) {
        self.business.push(key.into());
    }

    /// Locks a row of the outbox, as `select … for update` does, until the transaction ends.
    pub fn lock(&mut self, id: MessageId) {
        self.locks.add(id);
    }

    pub(super) async fn record_handled(&mut self, key: HandledKey) -> bool {
        self.reserve(UniqueKey::Handled(key.clone())).await;
        let known = self.handled.contains(&key) || self.store.shared.rows().handled.contains_key(&key);
        if !known {
            self.handled.push(key);
        }
        !known
    }

    async fn reserve(&mut self, key: UniqueKey) {
        if !self.reserved.contains_key(&key) {
            let guard = self.store.shared.reserve(key.clone()).await;
            self.reserved.insert(key, guard);
        }
    }

    fn commit(self) {
        let now = self.store.clock.now();
        let wakes = !self.outbox.is_empty();
        {
            let mut rows = self.store.shared.rows();
            for (sequence, row) in self.outbox {
                rows.insert(sequence, row);
            }
            rows.dedupe.extend(self.dedupe);
            rows.handled.extend(self.handled.into_iter().map(|key| (key, now)));
            rows.business.extend(self.business);
        }
        if wakes {
            self.store
                .shared
                .notifier
                .send_modify(|notifications| *notifications += 1);
        }
    }

    /// Forgets everything and goes on, as some databases do behind the application's back, after a deadlock for one.
    pub fn lose(&mut self) {
        *self = Self::new(self.store.clone());
    }
}

fn dedupe_key(row: &NewRow) -> Option<DedupeKey> {
    let key = row.message.dedupe_key.clone()?;
    Some((row.namespace.to_string(), row.message.topic.clone(), key))
}
