//! Being the one relay of a namespace that counts what is in the table and removes what is old.
//!
//! Two at a time would do no harm to a row, but figures would be counted twice, and work done twice. So the one that has the
//! lease of the table does it, counted down on its own clock, and the others show 0: sums over a fleet are right.

use std::time::Duration;

use posthaste_core::StoreError;
use posthaste_core::store::{LeadRequest, LeaderRole, Leadership};

use crate::engine::Engine;
use crate::guard::clock::Moment;

/// A shorter lease would change hands whenever the database is slow.
const SHORTEST_LEASE: Duration = Duration::from_secs(3);

/// Whether this relay looks after the table.
#[derive(Debug)]
pub(super) struct Owner {
    lease: Duration,
    /// When the lease was last asked for and granted.
    since: Option<Moment>,
    /// Whether the database does not say who it is.
    unknown: bool,
}

impl Owner {
    /// One that is silent for three rounds is followed.
    pub(super) fn new(janitor_interval: Duration) -> Self {
        Self {
            lease: janitor_interval.saturating_mul(3).max(SHORTEST_LEASE),
            since: None,
            unknown: false,
        }
    }

    /// Whether this relay counts: figures that are shown twice are better than a backlog that is shown nowhere.
    pub(super) fn counts(&self) -> bool {
        self.is_held() || self.unknown
    }

    /// Whether this relay certainly looks after the table.
    pub(super) fn is_held(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() < self.lease)
    }

    /// Asks for the lease, or for more of it.
    pub(super) async fn ask(&mut self, engine: &Engine) -> Result<(), StoreError> {
        let request = LeadRequest {
            role: LeaderRole::Upkeep,
            namespace: engine.config.scope.namespace.clone(),
            worker: engine.worker,
            lease: self.lease,
        };
        // The lease counts from before the request leaves: the database's count can only start later.
        let sent = Moment::now();
        let answer = engine.store.elect_janitor(&request).await;
        self.unknown = answer.is_err();
        self.answered(sent, answer?);
        Ok(())
    }

    /// Asks again if a third of the lease is over, so that long work does not outlast it.
    pub(super) async fn renew(&mut self, engine: &Engine) -> Result<bool, StoreError> {
        if self.since.is_none_or(|since| since.elapsed() > self.lease / 3) {
            self.ask(engine).await?;
        }
        Ok(self.is_held())
    }

    fn answered(&mut self, sent: Moment, answer: Leadership) {
        let held = self.since.is_some();
        match answer {
            Leadership::Held => {
                self.since = Some(sent);
                if !held {
                    tracing::info!("this relay counts and cleans up for its namespace");
                }
            }
            Leadership::HeldBy { .. } => {
                self.since = None;
                if held {
                    tracing::info!("another relay counts and cleans up now");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;
    use uuid::Uuid;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_ends_by_this_relays_own_clock_or_by_what_the_store_says() {
        let mut owner = Owner::new(Duration::from_secs(15));
        assert!(!owner.is_held());
        owner.answered(Moment::now(), Leadership::Held);
        advance(Duration::from_secs(44)).await;
        assert!(owner.is_held());
        advance(Duration::from_secs(1)).await;
        assert!(!owner.is_held(), "three rounds without an answer");
        owner.answered(Moment::now(), Leadership::Held);
        assert!(owner.is_held());
        let (worker, left) = (Uuid::nil(), Duration::from_secs(45));
        owner.answered(Moment::now(), Leadership::HeldBy { worker, left });
        assert!(!owner.is_held());
    }
}
