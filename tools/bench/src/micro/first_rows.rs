//! A store that runs dry after so many rows.

use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use posthaste_core::lifecycle::Settlement;
use posthaste_core::store::{
    Claim, ClaimRequest, ExtendRequest, Extended, OutboxStats, PurgeRequest, Purged, RelayRegistry, RelayStore, Scope,
    Settled,
};
use posthaste_core::{MessageId, StoreError};
use posthaste_postgres::PostgresStore;

/// A namespace without rows.
const NOBODY: &str = "nobody's";

/// A store that has handed out everything once `left` rows were claimed, so that a drain ends there.
pub(crate) struct FirstRows {
    store: PostgresStore,
    left: AtomicU32,
}

impl FirstRows {
    pub(crate) fn new(store: PostgresStore, rows: u32) -> Self {
        Self {
            store,
            left: AtomicU32::new(rows),
        }
    }
}

#[async_trait]
impl RelayStore for FirstRows {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return Ok(Claim::default());
        }
        let limit = request.limit.min(left);
        let claim = self
            .store
            .claim(&ClaimRequest {
                limit,
                ..request.clone()
            })
            .await?;
        let claimed = u32::try_from(claim.messages.len()).unwrap_or(u32::MAX);
        self.left.fetch_sub(claimed, Ordering::Relaxed);
        Ok(claim)
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Settled, StoreError> {
        self.store.settle(settlements).await
    }

    async fn extend(&self, request: ExtendRequest<'_>) -> Result<Extended, StoreError> {
        self.store.extend(request).await
    }

    async fn sweep(&self, scope: &Scope, max_attempts: u32) -> Result<Vec<MessageId>, StoreError> {
        self.store.sweep(scope, max_attempts).await
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<Purged, StoreError> {
        self.store.purge(request).await
    }

    async fn stats(&self, namespace: &str) -> Result<OutboxStats, StoreError> {
        // Whoever drained a table of so many rows would count none, and the rest is not there for it.
        let is_dry = self.left.load(Ordering::Relaxed) == 0;
        self.store.stats(if is_dry { NOBODY } else { namespace }).await
    }

    fn registry(&self) -> Option<&dyn RelayRegistry> {
        self.store.registry()
    }

    async fn check_for(&self, scope: &Scope) -> Result<(), StoreError> {
        self.store.check_for(scope).await
    }
}
