//! Who serves an outbox: what relays say of themselves, and which of them leads.

use std::borrow::Cow;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::Serialize;
use uuid::Uuid;

use super::{StoreError, WorkerId};
use crate::breaker::CircuitState;
use crate::integrity::ContentHash;
use crate::validate::MAX_NAME_BYTES;

/// A relay's heartbeat: it is there. For the eyes of operators; nothing depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayHeartbeat {
    /// Which relay.
    pub worker: WorkerId,
    /// The namespace it serves.
    pub namespace: String,
    /// The name of its publisher.
    pub publisher: String,
    /// The machine it runs on.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// The version of Posthaste.
    pub version: String,
    /// Where its circuit stands.
    pub circuit: CircuitState,
    /// For how long. A duration, so that the database can reckon with its own clock.
    pub circuit_lasted: Duration,
    /// The failure that opened it; while it is closed, which destinations are unavailable, and how many verdicts the database
    /// refuses to write.
    pub circuit_reason: Option<String>,
}

/// A relay as an operator sees it. All times are the database's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RelayRecord {
    /// Which relay.
    pub worker: Uuid,
    /// The namespace it serves.
    pub namespace: String,
    /// The name of its publisher.
    pub publisher: String,
    /// The machine it runs on.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// The version of Posthaste.
    pub version: String,
    /// When it was first heard.
    pub started_at: DateTime<Utc>,
    /// When it was last heard.
    pub seen_at: DateTime<Utc>,
    /// How long ago that is.
    pub silent_seconds: f64,
    /// Where its circuit stands.
    pub circuit: CircuitState,
    /// Since when.
    pub circuit_since: DateTime<Utc>,
    /// The failure that opened it; while it is closed, which destinations are unavailable, and how many verdicts the database
    /// refuses to write.
    pub circuit_reason: Option<String>,
    /// Whether it leads, where only one relay may be active.
    pub leads: bool,
}

/// What there is one relay for, of those that serve a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaderRole {
    /// Delivering, where only one relay may be active.
    Relay,
    /// Counting what is in the table and removing what is old.
    Upkeep,
}

/// Asks to lead, or to go on leading: to be the one relay of a namespace that does something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadRequest {
    /// What there is one for.
    pub role: LeaderRole,
    /// The namespace.
    pub namespace: String,
    /// Who asks.
    pub worker: WorkerId,
    /// For how long, from now.
    pub lease: Duration,
}

impl LeadRequest {
    /// The name under which the leader is written down. The active relay stands under its namespace alone, as it did before
    /// there were other roles; no namespace that is typed by a person begins with a control character.
    pub fn key(&self) -> Cow<'_, str> {
        match self.role {
            LeaderRole::Relay => Cow::Borrowed(&self.namespace),
            LeaderRole::Upkeep => {
                let key = format!("\u{1}upkeep:{}", self.namespace);
                if key.len() <= MAX_NAME_BYTES {
                    return Cow::Owned(key);
                }
                let hash = ContentHash::of(&[self.namespace.as_bytes()]);
                Cow::Owned(format!("\u{1}upkeep:{hash}"))
            }
        }
    }
}

/// Who leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// The one who asked, for as long as it asked.
    Held,
    /// Another one.
    HeldBy {
        /// Which relay.
        worker: Uuid,
        /// For how long, unless it goes on.
        left: Duration,
    },
}

/// Relays that were not heard for so long are removed by the heartbeat of another one.
pub const FORGOTTEN_AFTER: Duration = Duration::from_hours(24);

/// The list of relays, and their leader.
///
/// # Contract
/// - **heartbeat** writes down what a relay says of itself: its first one is its start, and each one says when it was last
///   heard. It also removes relays that were not heard for [`FORGOTTEN_AFTER`].
/// - **`elect_leader`** makes the one who asks the leader of its namespace, in the role it asks for, until its lease is over, unless another one's is not.
///   Of any number that ask at the same time one gets it. A leader that asks again in time goes on leading.
/// - **deregister** takes a relay off the list and ends its leadership in every role, so that another one can follow at once.
///
/// # Errors
/// Delivery depends on **`elect_leader`** alone, and only where one relay may be active: as long as it fails, no new
/// relay leads.
#[async_trait]
pub trait RelayRegistry: Send + Sync {
    /// Says that a relay is there.
    async fn heartbeat(&self, heartbeat: &RelayHeartbeat) -> Result<(), StoreError>;

    /// Asks to be the one active relay; says who is.
    async fn elect_leader(&self, request: &LeadRequest) -> Result<Leadership, StoreError>;

    /// Says that a relay is gone.
    async fn deregister(&self, worker: WorkerId) -> Result<(), StoreError>;

    /// The relays of a namespace that were heard and have not left, oldest first. Whether they are alive is for the
    /// reader to say: a relay that died cannot leave.
    async fn relays(&self, namespace: &str) -> Result<Vec<RelayRecord>, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(role: LeaderRole, namespace: &str) -> String {
        let request = LeadRequest {
            role,
            namespace: namespace.to_owned(),
            worker: WorkerId::new(),
            lease: FORGOTTEN_AFTER,
        };
        request.key().into_owned()
    }

    #[test]
    fn every_role_of_every_namespace_has_a_key_that_fits() {
        assert_eq!(key(LeaderRole::Relay, "default"), "default");
        assert_eq!(key(LeaderRole::Upkeep, "default"), "\u{1}upkeep:default");
        let long = |end: &str| key(LeaderRole::Upkeep, &format!("{}{end}", "x".repeat(MAX_NAME_BYTES - 1)));
        assert!(long("a").len() <= MAX_NAME_BYTES);
        assert_ne!(long("a"), long("b"));
    }
}
