//! The inbox in memory.

use std::io;
use std::time::Duration;

use posthaste_core::{Inbox, InboxStore, Mark, StoreError};

use super::{MemoryConnection, MemoryStore, MemoryTx};

/// The inbox of one consumer of a [`MemoryStore`].
#[derive(Clone, Debug)]
pub struct MemoryInbox {
    store: MemoryStore,
    consumer: String,
}

impl MemoryInbox {
    pub(super) fn new(store: MemoryStore, consumer: String) -> Self {
        Self { store, consumer }
    }
}

impl Inbox for MemoryInbox {
    type Connection = MemoryConnection;

    async fn record(&self, tx: &mut MemoryConnection, key: &str) -> Result<bool, StoreError> {
        Ok(tx.record_handled((self.consumer.clone(), key.to_owned())).await)
    }

    async fn mark(&self, tx: &mut MemoryConnection, mark: Mark) -> Result<(), StoreError> {
        tx.marks.push(mark);
        Ok(())
    }

    async fn prove(&self, tx: &mut MemoryConnection, mark: Mark) -> Result<(), StoreError> {
        let place = tx.marks.iter().rposition(|known| *known == mark);
        let place = place.ok_or_else(|| Mark::lost(io::Error::other("the transaction was rolled back")))?;
        tx.marks.truncate(place);
        Ok(())
    }
}

impl InboxStore for MemoryInbox {
    type Transaction = MemoryTx;

    async fn begin(&self) -> Result<MemoryTx, StoreError> {
        let mut tx = self.store.begin();
        self.mark(&mut tx, Mark::BEGIN).await?;
        Ok(tx)
    }

    async fn commit(&self, mut tx: MemoryTx) -> Result<(), StoreError> {
        self.prove(&mut tx, Mark::BEGIN).await?;
        tx.commit();
        Ok(())
    }

    async fn purge(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        Ok(self.store.purge_inbox(&self.consumer, keep, limit))
    }
}

impl MemoryStore {
    /// Forgets what a consumer handled longer than `keep` ago, at most `limit`; returns how many.
    pub fn purge_inbox(&self, consumer: &str, keep: Duration, limit: u32) -> u64 {
        let before = self.clock.now() - keep;
        let mut rows = self.shared.rows();
        let old: Vec<_> = rows
            .handled
            .iter()
            .filter(|((of, _), at)| of == consumer && **at < before)
            .map(|(key, _)| key.clone())
            .take(limit as usize)
            .collect();
        for key in &old {
            rows.handled.remove(key);
        }
        old.len() as u64
    }
}
