//! Everything that a relay knows of itself, for an operator's eyes.

use std::collections::BTreeMap;

use posthaste_core::breaker::CircuitState;
use posthaste_core::store::OutboxStats;
use serde::Serialize;

use crate::upkeep::pulse::TaskReport;

/// What a relay is doing.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct HealthReport {
    /// Whether it has begun, or ends.
    pub relay: Phase,
    /// Whether all its tasks give signs of life.
    pub alive: bool,
    /// Whether it does its work, or stands by to.
    pub ready: bool,
    /// Why it is not.
    pub problem: Option<String>,
    /// This relay among others.
    pub id: Option<String>,
    /// The namespace that it serves.
    pub namespace: Option<String>,
    /// Where messages go.
    pub publisher: Option<String>,
    /// Since it found its database.
    pub uptime_seconds: Option<f64>,
    /// Whether it shares the work, leads or stands by.
    pub leadership: Option<Leadership>,
    /// The relay that leads instead.
    pub leader: Option<String>,
    /// Whether the broker is there.
    pub circuit: Option<CircuitState>,
    /// Why the circuit is not closed.
    pub circuit_reason: Option<String>,
    /// The destinations that are unavailable while others are not, each with the reason.
    pub unavailable: BTreeMap<String, String>,
    /// What keeps messages of a log waiting, and only an operator can mend; it makes no relay unready.
    pub notices: Vec<String>,
    /// The shards of a log that it reads.
    pub shards: Vec<i32>,
    /// Whether the database answers.
    pub database: DatabaseReport,
    /// The loops that messages wait for.
    pub tasks: Vec<TaskReport>,
    /// What is claimed and not settled.
    pub in_flight: InFlightReport,
    /// Since the last claim, whatever it brought.
    pub seconds_since_claim: Option<f64>,
    /// What was in the outbox when it was last counted.
    pub backlog: Option<BacklogReport>,
}

/// Whether a relay has begun, or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Phase {
    /// It waits for its database.
    Starting,
    /// It runs.
    Running,
    /// It takes no more work and finishes what it has.
    Stopping,
}

/// Whether a relay is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Leadership {
    /// Relays share the work.
    Shared,
    /// It is the one that is active.
    Leader,
    /// Another one is.
    Standby,
}

/// Whether the database answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct DatabaseReport {
    /// Whether it does.
    pub ok: bool,
    /// What fails.
    pub problem: Option<String>,
    /// Since its last answer.
    pub seconds_since_answer: Option<f64>,
}

/// What is claimed and not settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct InFlightReport {
    /// How many messages.
    pub messages: u32,
    /// How many bytes of payload.
    pub bytes: u64,
}

/// What was in the outbox when it was last counted. It says nothing about the relay's health.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct BacklogReport {
    /// How long ago that was.
    pub seconds_ago: f64,
    /// What was counted.
    #[serde(flatten)]
    pub stats: OutboxStats,
}
