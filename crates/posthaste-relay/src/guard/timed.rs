//! A time limit on every call of the database.
//!
//! A server that stops without closing its connections, or a firewall that drops packets, would otherwise be waited for
//! without a word: drivers set no limit. A call that is given up is dropped; its connection goes back to the pool, which has to
//! close it if it does not answer (`after_release`), or it is lost to the pool for good. What the call did is not known then: a claim may have leased rows that no relay knows of, and they wait until their lease is over; verdicts
//! are written again, and are lost if they had been written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::lifecycle::Settlement;
use posthaste_core::readable::Readable;
use posthaste_core::store::{
    Claim, ClaimRequest, ExtendRequest, Extended, LeadRequest, Leadership, OutboxStats, PurgeRequest, Purged, Reading,
    RecoverRequest, Recovered, RelayHeartbeat, RelayRecord, RelayRegistry, Scope, Settled, StoreErrorKind,
    StoreRequirements, TableGauges, WorkerId,
};
use posthaste_core::wake::Listener;
use posthaste_core::{MessageId, RelayStore, StoreError};
use tokio::time::timeout;

use crate::guard::calls::Calls;

/// A call that takes long for good reason is given at most so many times the limit.
const MAX_TIMEOUT_FACTOR: u32 = 6;

/// A ping that takes longer has failed: it is there to find that out.
const PING_TIMEOUT: Duration = Duration::from_secs(3);

pub(crate) struct TimedStore {
    inner: Arc<dyn RelayStore>,
    calls: Arc<Calls>,
    limits: Limits,
    check: Limit,
    // What may look at many rows, and is not waited for by messages. Each has a limit of its own: one that is quick must
    // not take the time from one that is slow.
    recover: Limit,
    sweep: Limit,
    purge: Limit,
    stats: Limit,
}

/// The limits of the calls that messages wait for.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) claim: Arc<Limit>,
    pub(crate) settle: Arc<Limit>,
    pub(crate) extend: Arc<Limit>,
    pub(crate) elect: Arc<Limit>,
    /// Of what nothing waits for. Its quick calls must not take the time from an election that is slow.
    pub(crate) registry: Arc<Limit>,
}

impl Limits {
    pub(crate) fn new(limit: Duration) -> Self {
        let new = || Arc::new(Limit::new(limit));
        Self {
            claim: new(),
            settle: new(),
            extend: new(),
            elect: new(),
            registry: new(),
        }
    }
}

impl TimedStore {
    pub(crate) fn new(inner: Arc<dyn RelayStore>, limit: Duration) -> Self {
        let long = limit.saturating_mul(MAX_TIMEOUT_FACTOR);
        Self {
            inner,
            calls: Arc::default(),
            limits: Limits::new(limit),
            check: Limit::new(limit),
            recover: Limit::new(long),
            sweep: Limit::new(long),
            purge: Limit::new(long),
            stats: Limit::new(long),
        }
    }

    pub(crate) fn calls(&self) -> Arc<Calls> {
        Arc::clone(&self.calls)
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits.clone()
    }

    /// A call that messages wait for.
    async fn awaited<T>(
        &self,
        doing: &'static str,
        limit: &Limit,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let _open = self.calls.begin(doing);
        let result = limit.on(call).await;
        self.calls.ended(&result);
        result
    }

    /// A call that they do not wait for.
    async fn aside<T>(
        &self,
        limit: &Limit,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let result = limit.on(call).await;
        self.calls.ended_aside(&result);
        result
    }
}

/// The limit of one kind of calls. It doubles while they take too long, so that a slow database gets its work done, and
/// is what it was as soon as one succeeds.
#[derive(Debug)]
pub(crate) struct Limit {
    base: Duration,
    timeouts: AtomicU32,
}

impl Limit {
    pub(crate) fn new(base: Duration) -> Self {
        Self {
            base,
            timeouts: AtomicU32::new(0),
        }
    }

    /// How long the next call may take, or the one that is under way.
    pub(crate) fn current(&self) -> Duration {
        let factor = (1 << self.timeouts.load(Ordering::Relaxed).min(8)).min(MAX_TIMEOUT_FACTOR);
        self.base.saturating_mul(factor)
    }

    async fn on<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let limit = self.current();
        let Ok(answer) = timeout(limit, call).await else {
            self.timeouts.fetch_add(1, Ordering::Relaxed);
            return Err(StoreError {
                kind: StoreErrorKind::Unavailable,
                message: format!("the database gave no answer for {}", Readable(limit)),
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
        let claim = self
            .awaited("claiming", &self.limits.claim, self.inner.claim(request))
            .await;
        if claim.is_ok() {
            self.calls.claimed();
        }
        claim
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Settled, StoreError> {
        self.awaited("settling", &self.limits.settle, self.inner.settle(settlements))
            .await
    }

    async fn extend(&self, request: ExtendRequest<'_>) -> Result<Extended, StoreError> {
        self.awaited("renewing leases", &self.limits.extend, self.inner.extend(request))
            .await
    }

    /// A call of which no answer came may have locked what this one needs. The next claim says so.
    async fn rescan(&self) {
        let _late = timeout(self.limits.claim.current(), self.inner.rescan()).await;
    }

    fn requirements(&self) -> StoreRequirements {
        self.inner.requirements()
    }

    async fn recover(&self, request: &RecoverRequest) -> Result<Recovered, StoreError> {
        self.aside(&self.recover, self.inner.recover(request)).await
    }

    async fn sweep(&self, scope: &Scope, max_attempts: u32) -> Result<Vec<MessageId>, StoreError> {
        self.aside(&self.sweep, self.inner.sweep(scope, max_attempts)).await
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<Purged, StoreError> {
        self.aside(&self.purge, self.inner.purge(request)).await
    }

    async fn stats(&self, namespace: &str) -> Result<OutboxStats, StoreError> {
        self.aside(&self.stats, self.inner.stats(namespace)).await
    }

    async fn table_gauges(&self, namespace: &str) -> Result<TableGauges, StoreError> {
        let gauges = self.aside(&self.stats, self.inner.table_gauges(namespace)).await;
        if let Ok(gauges) = &gauges {
            self.calls.counted(&gauges.stats);
        }
        gauges
    }

    async fn elect_janitor(&self, request: &LeadRequest) -> Result<Leadership, StoreError> {
        self.aside(&self.limits.registry, self.inner.elect_janitor(request))
            .await
    }

    async fn resign_janitor(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.aside(&self.limits.registry, self.inner.resign_janitor(worker))
            .await
    }

    fn registry(&self) -> Option<&dyn RelayRegistry> {
        self.inner.registry().is_some().then_some(self)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        let timeout = PING_TIMEOUT.min(self.limits.registry.base);
        self.awaited("asking whether it is there", &Limit::new(timeout), self.inner.ping())
            .await
    }

    async fn keep_alive(&self) -> Result<(), StoreError> {
        self.aside(&self.limits.registry, self.inner.keep_alive()).await
    }

    fn reading(&self) -> Reading {
        self.inner.reading()
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.limits.registry.on(self.inner.close()).await
    }

    /// Without one, polling alone is enough.
    async fn listener(&self) -> Option<Box<dyn Listener>> {
        timeout(self.limits.registry.base, self.inner.listener()).await.ok()?
    }

    async fn left_in_queue(&self) -> Result<OutboxStats, StoreError> {
        self.aside(&self.stats, self.inner.left_in_queue()).await
    }

    async fn left_in_log(&self) -> Result<OutboxStats, StoreError> {
        self.aside(&self.stats, self.inner.left_in_log()).await
    }

    async fn check_for(&self, scope: &Scope) -> Result<(), StoreError> {
        self.check.on(self.inner.check_for(scope)).await
    }
}

#[async_trait]
impl RelayRegistry for TimedStore {
    async fn heartbeat(&self, heartbeat: &RelayHeartbeat) -> Result<(), StoreError> {
        self.aside(&self.limits.registry, self.list()?.heartbeat(heartbeat))
            .await
    }

    async fn elect_leader(&self, request: &LeadRequest) -> Result<Leadership, StoreError> {
        let election = self.list()?.elect_leader(request);
        self.awaited("asking for the lead", &self.limits.elect, election).await
    }

    async fn deregister(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.limits.registry.on(self.list()?.deregister(worker)).await
    }

    async fn relays(&self, namespace: &str) -> Result<Vec<RelayRecord>, StoreError> {
        self.aside(&self.limits.registry, self.list()?.relays(namespace)).await
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
