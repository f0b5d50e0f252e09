//! A database at which things go wrong.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::lifecycle::{Settlement, Verdict};
use posthaste_core::store::{
    Claim, ClaimRequest, ExtendRequest, Extended, LeadRequest, Leadership, OutboxStats, PurgeRequest, Purged, Reading,
    RecoverRequest, Recovered, RefusedVerdict, RelayHeartbeat, RelayRecord, RelayRegistry, Scope, Settled,
    StoreErrorKind, StoreRequirements, TableGauges, WorkerId,
};
use posthaste_core::wake::Listener;
use posthaste_core::{MessageId, RelayStore, StoreError};
use tokio::sync::watch;
use tokio::time::sleep;

/// A store in front of another one. It refuses verdicts on some rows, as a constraint, a trigger or a missing grant does,
/// stops answering, as a frozen server does, loses answers, claims slowly or in vain, or counts slowly. Clones share what goes wrong.
///
/// ```
/// use posthaste_testkit::{MemoryStore, FaultyStore};
///
/// let store = FaultyStore::new(MemoryStore::new());
/// store.refuse_all();
/// store.allow_all();
/// ```
#[derive(Clone, Debug)]
pub struct FaultyStore<S> {
    inner: S,
    script: Arc<Script>,
}

#[derive(Debug, Default)]
struct Script {
    faults: Mutex<Faults>,
    hanging: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Faults {
    refuse_all: bool,
    lose_all: bool,
    refused: HashSet<MessageId>,
    refused_releases: HashSet<MessageId>,
    contended: HashSet<MessageId>,
    refusals: u64,
    unheard_settlements: u32,
    claims: u64,
    claims_take: Duration,
    failing_claims: u32,
    panicking_sweeps: u32,
    silent: bool,
    stats_take: Duration,
}

impl<S> FaultyStore<S> {
    /// Refuses nothing yet.
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            script: Arc::default(),
        }
    }

    /// The store behind it.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// Refuses every verdict on these rows.
    pub fn refuse(&self, ids: impl IntoIterator<Item = MessageId>) {
        self.faults().refused.extend(ids);
    }

    /// Refuses every verdict.
    pub fn refuse_all(&self) {
        self.faults().refuse_all = true;
    }

    /// Refuses to take these rows back when they were claimed and not tried.
    pub fn refuse_releases(&self, ids: impl IntoIterator<Item = MessageId>) {
        self.faults().refused_releases.extend(ids);
    }

    /// Calls with verdicts on these rows fail, as they do if a trigger asks for a lock that another transaction has.
    pub fn contend(&self, ids: impl IntoIterator<Item = MessageId>) {
        self.faults().contended.extend(ids);
    }

    /// Loses every claim before its verdicts are written; its rows are free again.
    pub fn lose_all(&self) {
        self.faults().lose_all = true;
    }

    /// The next `count` calls write their verdicts, and their answers are lost.
    pub fn lose_answers(&self, count: u32) {
        self.faults().unheard_settlements = count;
    }

    /// Refuses and loses nothing any more.
    pub fn allow_all(&self) {
        let mut faults = self.faults();
        faults.lose_all = false;
        faults.refuse_all = false;
        faults.refused.clear();
        faults.refused_releases.clear();
        faults.contended.clear();
    }

    /// How many calls met with a refusal.
    pub fn refusals(&self) -> u64 {
        self.faults().refusals
    }

    /// No call is answered until [`FaultyStore::release`].
    pub fn hang(&self) {
        self.script.hanging.send_replace(true);
    }

    /// Answers again.
    pub fn release(&self) {
        self.script.hanging.send_replace(false);
    }

    /// How many claims were made.
    pub fn claims(&self) -> u64 {
        self.faults().claims
    }

    /// From now on the answer to a claim takes so long.
    pub fn slow_claims(&self, take: Duration) {
        self.faults().claims_take = take;
    }

    /// The next `count` claims fail as deadlocks do.
    pub fn fail_claims(&self, count: u32) {
        self.faults().failing_claims = count;
    }

    /// From now on the answer to a count of the rows takes so long.
    pub fn slow_stats(&self, take: Duration) {
        self.faults().stats_take = take;
    }

    /// From now on a relay that starts is not woken by what is enqueued.
    pub fn fall_silent(&self) {
        self.faults().silent = true;
    }

    /// The next sweep panics.
    pub fn panic_next_sweep(&self) {
        self.faults().panicking_sweeps = 1;
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.script.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answering(&self) {
        let mut hanging = self.script.hanging.subscribe();
        // An error would mean that the sender is gone, and `self` holds it.
        let _ = hanging.wait_for(|hanging| !hanging).await;
    }

    /// The rows whose verdicts are refused.
    fn culprits(&self, settlements: &[Settlement]) -> HashSet<MessageId> {
        let mut faults = self.faults();
        let is_refused = |one: &&Settlement| {
            // A row that is only given back is as it was, or as it was claimed.
            if one.verdict == Verdict::Released {
                return faults.refused_releases.contains(&one.id);
            }
            faults.refuse_all || faults.refused.contains(&one.id)
        };
        let culprits: HashSet<_> = settlements.iter().filter(is_refused).map(|one| one.id).collect();
        faults.refusals += u64::from(!culprits.is_empty());
        culprits
    }
}

fn deadlock() -> StoreError {
    StoreError {
        kind: StoreErrorKind::Contention,
        message: "a deadlock, as scripted".to_owned(),
        remedy: None,
        source: None,
    }
}

fn no_answer() -> StoreError {
    StoreError {
        kind: StoreErrorKind::Unavailable,
        message: "no answer in time, as scripted".to_owned(),
        remedy: None,
        source: None,
    }
}

fn refusal() -> StoreError {
    StoreError {
        kind: StoreErrorKind::Other,
        message: "a trigger refuses the row, as scripted".to_owned(),
        remedy: None,
        source: None,
    }
}

#[async_trait]
impl<S: RelayStore> RelayStore for FaultyStore<S> {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.answering().await;
        {
            let mut faults = self.faults();
            faults.claims += 1;
            if faults.failing_claims > 0 {
                faults.failing_claims -= 1;
                return Err(deadlock());
            }
        }
        let claim = self.inner.claim(request).await;
        let take = self.faults().claims_take;
        if !take.is_zero() {
            sleep(take).await;
        }
        claim
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Settled, StoreError> {
        self.answering().await;
        if settlements.iter().any(|one| self.faults().contended.contains(&one.id)) {
            return Err(deadlock());
        }
        if self.faults().lose_all {
            let released = settlements
                .iter()
                .map(|settlement| Settlement::released(settlement.id, settlement.token));
            self.inner.settle(&released.collect::<Vec<_>>()).await?;
            return Ok(Settled::but(
                settlements.iter().map(|settlement| settlement.id).collect(),
            ));
        }
        let culprits = self.culprits(settlements);
        if culprits.is_empty() {
            let settled = self.inner.settle(settlements).await;
            let mut faults = self.faults();
            if faults.unheard_settlements > 0 {
                faults.unheard_settlements -= 1;
                return Err(no_answer());
            }
            return settled;
        }
        if !self.inner.requirements().batch_settlement {
            return Err(refusal());
        }
        // The call ends the transaction: what is left out is as it was before its claim. Without any verdict there would
        // be no transaction to end.
        let (mut kept, refused): (Vec<_>, Vec<_>) = settlements
            .iter()
            .cloned()
            .partition(|settlement| !culprits.contains(&settlement.id));
        let first = refused[0].clone();
        kept.push(Settlement::released(first.id, first.token));
        let mut settled = self.inner.settle(&kept).await?;
        for Settlement { id, .. } in refused {
            settled.refused.push(RefusedVerdict { id, error: refusal() });
        }
        settled.lost.retain(|id| !culprits.contains(id));
        Ok(settled)
    }

    async fn extend(&self, request: ExtendRequest<'_>) -> Result<Extended, StoreError> {
        self.answering().await;
        self.inner.extend(request).await
    }

    fn requirements(&self) -> StoreRequirements {
        self.inner.requirements()
    }

    async fn recover(&self, request: &RecoverRequest) -> Result<Recovered, StoreError> {
        self.answering().await;
        self.inner.recover(request).await
    }

    async fn sweep(&self, scope: &Scope, max_attempts: u32) -> Result<Vec<MessageId>, StoreError> {
        self.answering().await;
        let panics = std::mem::take(&mut self.faults().panicking_sweeps) > 0;
        assert!(!panics, "the store panics, as scripted");
        self.inner.sweep(scope, max_attempts).await
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<Purged, StoreError> {
        self.answering().await;
        self.inner.purge(request).await
    }

    async fn stats(&self, namespace: &str) -> Result<OutboxStats, StoreError> {
        self.answering().await;
        let take = self.faults().stats_take;
        if !take.is_zero() {
            sleep(take).await;
        }
        self.inner.stats(namespace).await
    }

    async fn table_gauges(&self, namespace: &str) -> Result<TableGauges, StoreError> {
        self.answering().await;
        let take = self.faults().stats_take;
        if !take.is_zero() {
            sleep(take).await;
        }
        self.inner.table_gauges(namespace).await
    }

    async fn elect_janitor(&self, request: &LeadRequest) -> Result<Leadership, StoreError> {
        self.answering().await;
        self.inner.elect_janitor(request).await
    }

    async fn resign_janitor(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.answering().await;
        self.inner.resign_janitor(worker).await
    }

    fn registry(&self) -> Option<&dyn RelayRegistry> {
        self.inner.registry().is_some().then_some(self)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.answering().await;
        self.inner.ping().await
    }

    async fn keep_alive(&self) -> Result<(), StoreError> {
        self.answering().await;
        self.inner.keep_alive().await
    }

    fn reading(&self) -> Reading {
        self.inner.reading()
    }

    async fn rescan(&self) {
        self.inner.rescan().await;
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.answering().await;
        self.inner.close().await
    }

    async fn listener(&self) -> Option<Box<dyn Listener>> {
        let silent = self.faults().silent;
        if silent { None } else { self.inner.listener().await }
    }

    async fn left_in_queue(&self) -> Result<OutboxStats, StoreError> {
        self.answering().await;
        self.inner.left_in_queue().await
    }

    async fn left_in_log(&self) -> Result<OutboxStats, StoreError> {
        self.answering().await;
        self.inner.left_in_log().await
    }

    async fn check_for(&self, scope: &Scope) -> Result<(), StoreError> {
        self.answering().await;
        self.inner.check_for(scope).await
    }
}

#[async_trait]
impl<S: RelayStore> RelayRegistry for FaultyStore<S> {
    async fn heartbeat(&self, heartbeat: &RelayHeartbeat) -> Result<(), StoreError> {
        self.answering().await;
        self.list()?.heartbeat(heartbeat).await
    }

    async fn elect_leader(&self, request: &LeadRequest) -> Result<Leadership, StoreError> {
        self.answering().await;
        self.list()?.elect_leader(request).await
    }

    async fn deregister(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.answering().await;
        self.list()?.deregister(worker).await
    }

    async fn relays(&self, namespace: &str) -> Result<Vec<RelayRecord>, StoreError> {
        self.answering().await;
        self.list()?.relays(namespace).await
    }
}

impl<S: RelayStore> FaultyStore<S> {
    fn list(&self) -> Result<&dyn RelayRegistry, StoreError> {
        self.inner.registry().ok_or_else(StoreError::no_registry)
    }
}
