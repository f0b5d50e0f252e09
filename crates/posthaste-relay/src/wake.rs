//! When to claim: at once while there is work, else at a growing interval that a wake-up cuts short.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::wake::{Doorbell, WakeSource};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Wakes a relay in the same process. Ring it after a commit.
#[derive(Clone, Debug, Default)]
pub struct LocalDoorbell(Arc<Notify>);

impl LocalDoorbell {
    /// Resolves at the next ring, or at once if one came since the last wait.
    pub(crate) async fn rung(&self) {
        self.0.notified().await;
    }
}

impl Doorbell for LocalDoorbell {
    fn ring(&self) {
        self.0.notify_one();
    }
}

/// Passes the store's wake-ups on until the relay stops.
pub(crate) async fn forward(mut source: Box<dyn WakeSource>, doorbell: LocalDoorbell, stop: CancellationToken) {
    while stop.run_until_cancelled(source.wait()).await.is_some() {
        doorbell.ring();
    }
}

/// The wait between claims.
#[derive(Debug)]
pub(crate) struct Pace {
    shortest: Duration,
    longest: Duration,
    next: Duration,
}

impl Pace {
    pub(crate) fn new(shortest: Duration, longest: Duration) -> Self {
        Self {
            shortest,
            longest,
            next: shortest,
        }
    }

    /// There was work: be attentive.
    pub(crate) fn busy(&mut self) -> Duration {
        self.next = self.shortest;
        self.shortest
    }

    /// There was none, and the look took so long: wait longer each time. Looks that are dear, past a deep backlog of rows
    /// that cannot go, take no more than a fifth of the time.
    pub(crate) fn idle(&mut self, took: Duration) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(self.longest);
        wait.max(took.saturating_mul(4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_slows_down_when_idle_and_recovers_with_work() {
        let [short, long] = [100, 350].map(Duration::from_millis);
        let mut pace = Pace::new(short, long);
        let quick = Duration::from_millis(1);
        let waits = [(); 4].map(|()| pace.idle(quick));
        assert_eq!(waits, [short, short * 2, long, long]);
        assert_eq!(pace.busy(), short);
        assert_eq!(pace.idle(quick), short);
        assert_eq!(pace.idle(long), long * 4, "a look that took long is not repeated soon");
    }
}
