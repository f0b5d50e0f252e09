//! A time limit on every call of the database.
//!
//! A server that stops without closing its connections, or a firewall that drops packets, would otherwise be waited for
//! without a word: drivers set no limit. A call that is given up is dropped, and its connection with it. What it did is
//! not known then: a claim may have leased rows that no relay knows of, and they wait until their lease is over; verdicts
//! are written again, and are lost if they had been written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::lifecycle::Settlement;
use posthaste_core::store::{
    Claim, ClaimRequest, ExtendRequest, Extended, LeadRequest, Leadership, OutboxStats, PurgeRequest, Purged,
    RecoverRequest, Recovered, RelayHeartbeat, RelayRecord, RelayRegistry, Scope, Settled, StoreErrorKind,
    StoreRequirements, TableGauges, WorkerId,
};
use posthaste_core::wake::Listener;
use posthaste_core::{MessageId, RelayStore, StoreError};
use tokio::time::timeout;

/// A call that takes long for good reason is given at most so many times the limit.
const MAX_TIMEOUT_FACTOR: u32 = 6;

pub(crate) struct TimedStore {
    inner: Arc<dyn RelayStore>,
    claim: Limit,
    settle: Limit,
    extend: Limit,
    registry: Limit,
    check: Limit,
    // What may look at many rows, and is not waited for by messages. Each has a limit of its own: one that is quick must
    // not take the time from one that is slow.
    recover: Limit,
    sweep: Limit,
    purge: Limit,
    stats: Limit,
}

impl TimedStore {
    pub(crate) fn new(inner: Arc<dyn RelayStore>, limit: Duration) -> Self {
        let long = limit.saturating_mul(MAX_TIMEOUT_FACTOR);
        Self {
            inner,
            claim: Limit::new(limit),
            settle: Limit::new(limit),
            extend: Limit::new(limit),
            registry: Limit::new(limit),
            check: Limit::new(limit),
            recover: Limit::new(long),
            sweep: Limit::new(long),
            purge: Limit::new(long),
            stats: Limit::new(long),
        }
    }
}

/// The limit of one kind of calls. It doubles while they take too long, so that a slow database gets its work done, and
/// is what it was as soon as one succeeds.
struct Limit {
    base: Duration,
    timeouts: AtomicU32,
}

impl Limit {
    fn new(base: Duration) -> Self {
        Self {
            base,
            timeouts: AtomicU32::new(0),
        }
    }

    async fn on<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let factor = (1 << self.timeouts.load(Ordering::Relaxed).min(8)).min(MAX_TIMEOUT_FACTOR);
        let limit = self.base.saturating_mul(factor);
        let Ok(answer) = timeout(limit, call).await else {
            self.timeouts.fetch_add(1, Ordering::Relaxed);
            return Err(StoreError {
                kind: StoreErrorKind::Unavailable,
                message: format!("the database gave no answer for {limit:?}"),
                remedy: Some("see whether it hangs or is overloaded; if it is only slow, raise relay.store_timeout"),
                source: None,
            });
        };
        self.timeouts.store(0, Ordering::Relaxed);
        answer
    }
}

#[async_trait]
impl RelayStore for TimedStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.claim.on(self.inner.claim(request)).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Settled, StoreError> {
        self.settle.on(self.inner.settle(settlements)).await
    }

    async fn extend(&self, request: ExtendRequest<'_>) -> Result<Extended, StoreError> {
        self.extend.on(self.inner.extend(request)).await
    }

    fn requirements(&self) -> StoreRequirements {
        self.inner.requirements()
    }

    async fn recover(&self, request: &RecoverRequest) -> Result<Recovered, StoreError> {
        self.recover.on(self.inner.recover(request)).await
    }

    async fn sweep(&self, scope: &Scope, max_attempts: u32) -> Result<Vec<MessageId>, StoreError> {
        self.sweep.on(self.inner.sweep(scope, max_attempts)).await
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<Purged, StoreError> {
        self.purge.on(self.inner.purge(request)).await
    }

    async fn stats(&self, namespace: &str) -> Result<OutboxStats, StoreError> {
        self.stats.on(self.inner.stats(namespace)).await
    }

    async fn table_gauges(&self, namespace: &str) -> Result<TableGauges, StoreError> {
        self.stats.on(self.inner.table_gauges(namespace)).await
    }

    async fn elect_janitor(&self, request: &LeadRequest) -> Result<Leadership, StoreError> {
        self.registry.on(self.inner.elect_janitor(request)).await
    }

    async fn resign_janitor(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.registry.on(self.inner.resign_janitor(worker)).await
    }

    fn registry(&self) -> Option<&dyn RelayRegistry> {
        self.inner.registry().is_some().then_some(self)
    }

    async fn keep_alive(&self) -> Result<(), StoreError> {
        self.registry.on(self.inner.keep_alive()).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.registry.on(self.inner.close()).await
    }

    /// Without one, polling alone is enough.
    async fn listener(&self) -> Option<Box<dyn Listener>> {
        timeout(self.registry.base, self.inner.listener()).await.ok()?
    }

    async fn check_for(&self, scope: &Scope) -> Result<(), StoreError> {
        self.check.on(self.inner.check_for(scope)).await
    }
}

#[async_trait]
impl RelayRegistry for TimedStore {
    async fn heartbeat(&self, heartbeat: &RelayHeartbeat) -> Result<(), StoreError> {
        self.registry.on(self.list()?.heartbeat(heartbeat)).await
    }

    async fn elect_leader(&self, request: &LeadRequest) -> Result<Leadership, StoreError> {
        self.registry.on(self.list()?.elect_leader(request)).await
    }

    async fn deregister(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.registry.on(self.list()?.deregister(worker)).await
    }

    async fn relays(&self, namespace: &str) -> Result<Vec<RelayRecord>, StoreError> {
        self.registry.on(self.list()?.relays(namespace)).await
    }
}

impl TimedStore {
    fn list(&self) -> Result<&dyn RelayRegistry, StoreError> {
        self.inner.registry().ok_or_else(StoreError::no_registry)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_is_given_up_and_given_more_time_up_to_a_bound() {
        let limit = Limit::new(Duration::from_secs(10));
        let mut waits = Vec::new();
        for _ in 0..5 {
            let start = Instant::now();
            let error = limit.on(pending::<Result<(), _>>()).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Unavailable);
            waits.push(start.elapsed().as_secs());
        }
        assert_eq!(waits, [10, 20, 40, 60, 60]);
        let slow = async {
            sleep(Duration::from_secs(59)).await;
            Ok(())
        };
        limit.on(slow).await.unwrap();
        let start = Instant::now();
        limit.on(pending::<Result<(), _>>()).await.unwrap_err();
        assert_eq!(start.elapsed().as_secs(), 10, "as before");
    }
}
