//! What a run has done so far, for its report.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use posthaste_core::MessageId;
use posthaste_core::lifecycle::Verdict;

use crate::report::RelayReport;
use crate::upkeep::undelivered::{Cause, Undelivered};

/// What a run has done so far.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    delivered: AtomicU64,
    retried: AtomicU64,
    postponed: AtomicU64,
    released: AtomicU64,
    died: AtomicU64,
    lease_lost: AtomicU64,
    recovered: AtomicU64,
    remaining: AtomicU64,
    /// Kept by a drain: a relay that runs for months would gather what others have delivered long since.
    undelivered: Option<Mutex<Undelivered>>,
}

impl Totals {
    pub(crate) fn new(draining: bool) -> Self {
        Self {
            undelivered: draining.then(Mutex::default),
            ..Self::default()
        }
    }

    /// Takes note of a message that is not delivered, as far as the database knows.
    pub(crate) fn undelivered(&self, id: MessageId, cause: Cause<'_>) {
        if let Some(mut undelivered) = self.undelivered_yet() {
            undelivered.add(id, cause);
        }
    }

    fn undelivered_yet(&self) -> Option<MutexGuard<'_, Undelivered>> {
        let undelivered = self.undelivered.as_ref()?;
        // No code panics while holding the lock, and the data would be sound if it did.
        Some(undelivered.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether there are messages whose verdicts came too late, and that were not delivered later on.
    pub(crate) fn lost_any(&self) -> bool {
        self.undelivered_yet().is_some_and(|undelivered| undelivered.lost_any())
    }

    /// How many were delivered so far.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    /// Whether a drain has put all of these off before.
    pub(crate) fn postponed_before(&self, ids: impl Iterator<Item = MessageId>) -> bool {
        self.undelivered_yet()
            .is_some_and(|undelivered| undelivered.postponed_before(ids))
    }

    /// Takes note of a verdict that was written.
    pub(crate) fn settled(&self, id: MessageId, verdict: &Verdict) {
        if let Some(mut undelivered) = self.undelivered_yet() {
            match verdict {
                Verdict::Delivered => undelivered.delivered(id),
                Verdict::Released => undelivered.add(id, Cause::NotTried),
                Verdict::Postponed { error, .. } => {
                    undelivered.postponed(id);
                    undelivered.add(id, Cause::Failed(error));
                }
                Verdict::Retry { error, .. } | Verdict::Dead { error } => undelivered.add(id, Cause::Failed(error)),
            }
        }
        self.count(verdict);
    }

    /// Takes note of deliveries that were written.
    pub(crate) fn delivered_all(&self, ids: impl Iterator<Item = MessageId>, messages: u32) {
        if let Some(mut undelivered) = self.undelivered_yet()
            && !undelivered.is_empty()
        {
            ids.for_each(|id| undelivered.delivered(id));
        }
        self.delivered.fetch_add(u64::from(messages), Ordering::Relaxed);
    }

    /// Takes note of an attempt that was made in place.
    pub(crate) fn count(&self, verdict: &Verdict) {
        let total = match verdict {
            Verdict::Delivered => &self.delivered,
            Verdict::Retry { .. } => &self.retried,
            Verdict::Postponed { .. } => &self.postponed,
            Verdict::Released => &self.released,
            Verdict::Dead { .. } => &self.died,
        };
        total.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn swept(&self, died: &[MessageId]) {
        self.died.fetch_add(died.len() as u64, Ordering::Relaxed);
        for id in died {
            let cause = "it used all its attempts, the last one without an answer";
            self.undelivered(*id, Cause::Failed(cause));
        }
    }

    pub(crate) fn lease_lost(&self, id: MessageId) {
        self.undelivered(id, Cause::Lost);
        self.lease_lost.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn recovered(&self, rows: usize) {
        self.recovered.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Takes note of what was still due when a drain ended.
    pub(crate) fn remaining(&self, rows: u64) {
        self.remaining.store(rows, Ordering::Relaxed);
    }

    pub(crate) fn report(&self, abandoned: u32, unsettled: u32, refused: usize, busy: usize) -> RelayReport {
        let read = |total: &AtomicU64| total.load(Ordering::Relaxed);
        let (undelivered, first_failure) = self.undelivered_yet().map_or((0, None), |undelivered| {
            let unknown = u64::from(abandoned) + u64::from(unsettled);
            (undelivered.count() + unknown, undelivered.first_failure())
        });
        RelayReport {
            delivered: read(&self.delivered),
            retried: read(&self.retried),
            postponed: read(&self.postponed),
            released: read(&self.released),
            died: read(&self.died),
            lease_lost: read(&self.lease_lost),
            recovered: read(&self.recovered),
            abandoned: u64::from(abandoned),
            unsettled: u64::from(unsettled),
            refused: refused as u64,
            busy: busy as u64,
            undelivered,
            first_failure,
            remaining: read(&self.remaining),
        }
    }
}
