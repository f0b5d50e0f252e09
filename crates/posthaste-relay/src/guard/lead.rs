//! Being the one active relay of a namespace, counted down on this worker's own monotonic clock.
//!
//! The database says who leads, by its own clock. The leader reckons from before it asked, so its count is over first;
//! and once less than a headroom is left it neither claims nor hands anything over, until it has asked again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posthaste_core::store::Leadership;
use tokio::sync::Notify;

use crate::config::RelayConfig;
use crate::guard::changes;
use crate::guard::clock::Moment;

/// Whether this relay may be active.
#[derive(Debug)]
pub(crate) struct Lead {
    /// How long a lead holds without renewal; `None` where relays share the work.
    pub(crate) lease: Option<Duration>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// When the lead was last asked for and granted.
    since: Option<Moment>,
    /// The other relay that leads, by what the store last said.
    other: Option<String>,
}

impl Lead {
    pub(crate) fn new(config: &RelayConfig) -> Self {
        Self {
            lease: config.exclusive.then_some(config.exclusive_lease),
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Whether this relay certainly leads, or relays share the work: it may be active.
    pub(crate) fn is_leader(&self) -> bool {
        let Some(lease) = self.lease else { return true };
        let since = self.state().since;
        since.is_some_and(|since| since.elapsed().saturating_add(lease / 5) < lease)
    }

    /// Waits until this relay may be active.
    pub(crate) async fn wait(&self) {
        loop {
            // Registered before the look, so that no change in between is missed.
            let changed = self.changed.notified();
            if self.is_leader() {
                return;
            }
            changed.await;
        }
    }

    /// The relay that leads instead of this one, if that was heard of.
    pub(crate) fn other(&self) -> Option<String> {
        self.state().other.clone()
    }

    /// Takes note of an answer to a request that was sent at `sent`; returns when to ask again.
    pub(crate) fn answered(
        &self,
        sent: Moment,
        lease: Duration,
        answer: Leadership,
        longest_wait: Duration,
    ) -> Duration {
        let mut state = self.state();
        let led = state.since.is_some();
        let wait = match answer {
            Leadership::Held => {
                state.since = Some(sent);
                if !led {
                    tracing::info!("this relay leads");
                }
                state.other = None;
                lease / 3
            }
            Leadership::HeldBy { worker, left } => {
                state.since = None;
                let worker = worker.to_string();
                if led {
                    tracing::warn!(leader = worker, "lost the lead; standing by");
                } else if state.other.as_ref() != Some(&worker) {
                    tracing::info!("standing by; relay {worker} leads");
                }
                state.other = Some(worker);
                // A leader that leaves is followed soon, and one that died as soon as its time is over.
                left.min(longest_wait)
            }
        };
        drop(state);
        changes::note();
        self.changed.notify_waiters();
        wait
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;
    use uuid::Uuid;

    use super::*;
    use crate::observed::observe;

    const LEASE: Duration = Duration::from_secs(30);
    const SECOND: Duration = Duration::from_secs(1);

    fn exclusive() -> Lead {
        Lead::new(&RelayConfig {
            exclusive: true,
            ..RelayConfig::default()
        })
    }

    fn other(left: Duration) -> Leadership {
        let worker = Uuid::nil();
        Leadership::HeldBy { worker, left }
    }

    #[tokio::test(start_paused = true)]
    async fn relays_that_share_the_work_are_always_active() {
        assert!(Lead::new(&RelayConfig::default()).is_leader());
        assert!(!exclusive().is_leader(), "before it has asked");
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_counts_from_before_it_asked_and_stops_a_headroom_before_the_end() {
        let (lead, sent) = (exclusive(), Moment::now());
        advance(SECOND * 10).await;
        assert_eq!(lead.answered(sent, LEASE, Leadership::Held, SECOND), LEASE / 3);
        advance(SECOND * 13).await;
        assert!(lead.is_leader(), "23 s of 30 s with 6 s of headroom");
        advance(SECOND * 2).await;
        assert!(!lead.is_leader());
        lead.answered(Moment::now(), LEASE, Leadership::Held, SECOND);
        assert!(lead.is_leader());
        assert_eq!(lead.answered(Moment::now(), LEASE, other(LEASE), SECOND), SECOND);
        assert!(!lead.is_leader(), "at once");
    }

    #[tokio::test(start_paused = true)]
    async fn standing_by_is_told_once_and_a_lost_lead_is_a_warning() {
        let lead = exclusive();
        let (_, log) = observe(|| {
            for _ in 0..5 {
                lead.answered(Moment::now(), LEASE, other(LEASE), SECOND);
            }
        });
        assert_eq!(log.lines().count(), 1, "{log}");
        let told = format!("standing by; relay {} leads", Uuid::nil());
        assert!(log.contains("INFO") && log.contains(&told), "{log}");
        assert_eq!(
            lead.answered(Moment::now(), LEASE, other(SECOND / 2), SECOND),
            SECOND / 2
        );
        lead.answered(Moment::now(), LEASE, Leadership::Held, SECOND);
        let (_, log) = observe(|| {
            lead.answered(Moment::now(), LEASE, other(LEASE), SECOND);
        });
        assert!(log.contains("WARN") && log.contains("lost the lead"), "{log}");
    }
}
