//! Who serves an outbox: what relays say of themselves, and which of them leads.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use uuid::Uuid;

use super::WorkerId;
use crate::breaker::CircuitState;

/// A relay's word that it is there. For the eyes of operators; nothing depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayBeat {
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
    /// The failure that opened it.
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
    /// The failure that opened it.
    pub circuit_reason: Option<String>,
    /// Whether it leads, where only one relay may be active.
    pub leads: bool,
}

/// Asks to lead, or to go on leading: to be the one active relay of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadRequest {
    /// The namespace.
    pub namespace: String,
    /// Who asks.
    pub worker: WorkerId,
    /// For how long, from now.
    pub lease: Duration,
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

/// Relays that were not heard for so long are removed by the beat of another one.
pub const FORGOTTEN_AFTER: Duration = Duration::from_hours(24);
