//! Whether a relay can do its work.

mod report;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use metrics::gauge;
use posthaste_core::breaker::CircuitState;
use posthaste_core::store::Reading;
use tokio::time::Instant;

pub use report::{BacklogReport, DatabaseReport, HealthReport, InFlightReport, Leadership, Phase};

use crate::guard::calls::Calls;
use crate::guard::circuit::Circuit;
use crate::guard::destinations::Destinations;
use crate::guard::in_flight::{InFlight, Load};
use crate::guard::lead::Lead;
use crate::upkeep::pulse::{Pulses, TaskState};
use crate::upkeep::supervisor::Supervisor;

/// Whether a relay can do its work: for health checks. Clones share it.
///
/// It is *alive* while all its tasks give signs of life; one that is not is helped by a restart. It is *ready* if its
/// database answers as well. A broker that is unavailable makes no relay unready: it is unavailable for every relay alike.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<State>);

#[derive(Debug, Default)]
struct State {
    problems: Mutex<BTreeMap<&'static str, String>>,
    relay: OnceLock<Running>,
    stopping: OnceLock<()>,
    reading: Mutex<Reading>,
}

/// What there is to look at once a relay runs.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) since: Instant,
    pub(crate) worker: String,
    pub(crate) namespace: String,
    pub(crate) publisher: String,
    pub(crate) calls: Arc<Calls>,
    pub(crate) circuit: Arc<Circuit>,
    pub(crate) destinations: Arc<Destinations>,
    pub(crate) lead: Arc<Lead>,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) pulses: Arc<Pulses>,
    pub(crate) supervisor: Supervisor,
}

impl Health {
    /// What keeps the relay from its work; `None` while all is well.
    pub fn problem(&self) -> Option<String> {
        joined(self.standstills().into_iter().chain(self.database_problems()))
    }

    /// Whether all is well.
    pub fn is_healthy(&self) -> bool {
        self.problem().is_none()
    }

    /// Which tasks are dead or stand still, so that a restart helps; `None` while all give signs of life.
    pub fn standstill(&self) -> Option<String> {
        joined(self.standstills())
    }

    /// Where the circuit stands, and why it is not closed; `None` until the relay runs.
    pub fn circuit(&self) -> Option<(CircuitState, Option<String>)> {
        let view = self.0.relay.get()?.circuit.view();
        Some((view.state, view.reason))
    }

    /// The destinations that are unavailable, each with the reason; the circuit is closed while there are others.
    pub fn unavailable(&self) -> BTreeMap<String, String> {
        let relay = self.0.relay.get();
        relay.map(|relay| relay.destinations.unavailable()).unwrap_or_default()
    }

    /// The relay has found its database, and its loops begin.
    pub(crate) fn started(&self, relay: Running) {
        // A relay starts once.
        let _ = self.0.relay.set(relay);
        self.show();
    }

    /// The relay takes no more work.
    pub(crate) fn stopping(&self) {
        let _ = self.0.stopping.set(());
    }

    /// What the store knows of how it reads.
    pub(crate) fn noticed(&self, reading: Reading) {
        *self.0.reading.lock().unwrap_or_else(PoisonError::into_inner) = reading;
    }

    pub(crate) fn failed(&self, doing: &'static str, error: String) {
        self.problems().insert(doing, error);
        self.show();
    }

    pub(crate) fn works(&self, doing: &'static str) {
        self.problems().remove(doing);
        self.show();
    }

    /// Shows in figures whether the database does what messages need.
    pub(crate) fn show(&self) {
        if let Some(relay) = self.0.relay.get() {
            let healthy = self.database_problems().is_empty();
            gauge!("outbox_healthy", "namespace" => relay.namespace.clone()).set(if healthy { 1.0 } else { 0.0 });
        }
    }

    /// Whose outbox it is, for figures.
    pub(crate) fn namespace(&self) -> &str {
        self.0.relay.get().map_or("", |relay| &relay.namespace)
    }

    /// How long ago the database answered a claim, or the relay started.
    pub(crate) fn since_claim(&self) -> Duration {
        let relay = self.0.relay.get();
        relay.map_or(Duration::ZERO, |relay| {
            relay.calls.since_claim().unwrap_or_else(|| relay.since.elapsed())
        })
    }

    /// Everything that is known.
    pub fn report(&self) -> HealthReport {
        let relay = self.0.relay.get();
        let database = self.database_problems();
        let standstills = self.standstills();
        let phase = match relay {
            None => Phase::Starting,
            Some(_) if self.0.stopping.get().is_some() => Phase::Stopping,
            Some(_) => Phase::Running,
        };
        let waits = match phase {
            Phase::Starting => Some("the relay has not started: it waits for its database, and the log says why"),
            Phase::Stopping => Some("the relay stops"),
            Phase::Running => None,
        };
        let alive = standstills.is_empty();
        let problem = joined(
            waits
                .map(str::to_owned)
                .into_iter()
                .chain(standstills)
                .chain(database.iter().cloned()),
        );
        let circuit = relay.map(|relay| relay.circuit.view());
        let lead = relay.map(|relay| &relay.lead);
        let Reading { shards, notices, .. } = self.0.reading.lock().unwrap_or_else(PoisonError::into_inner).clone();
        HealthReport {
            relay: phase,
            alive,
            ready: problem.is_none(),
            problem,
            id: relay.map(|relay| relay.worker.clone()),
            namespace: relay.map(|relay| relay.namespace.clone()),
            publisher: relay.map(|relay| relay.publisher.clone()),
            uptime_seconds: relay.map(|relay| relay.since.elapsed().as_secs_f64()),
            leadership: lead.map(|lead| match (lead.lease, lead.is_leader()) {
                (None, _) => Leadership::Shared,
                (Some(_), true) => Leadership::Leader,
                (Some(_), false) => Leadership::Standby,
            }),
            leader: lead.and_then(|lead| lead.other()),
            circuit: circuit.as_ref().map(|view| view.state),
            circuit_reason: circuit.and_then(|view| view.reason),
            unavailable: self.unavailable(),
            notices,
            shards,
            database: DatabaseReport {
                ok: relay.is_some() && database.is_empty(),
                problem: joined(database),
                seconds_since_answer: relay
                    .and_then(|relay| relay.calls.since_answer())
                    .map(|since| since.as_secs_f64()),
            },
            tasks: relay.map(|relay| relay.pulses.report()).unwrap_or_default(),
            in_flight: relay.map_or_else(InFlightReport::default, |relay| {
                let Load { messages, bytes } = relay.in_flight.load();
                InFlightReport { messages, bytes }
            }),
            seconds_since_claim: relay
                .and_then(|relay| relay.calls.since_claim())
                .map(|since| since.as_secs_f64()),
            backlog: relay
                .and_then(|relay| relay.calls.backlog())
                .map(|(ago, stats)| BacklogReport {
                    seconds_ago: ago.as_secs_f64(),
                    stats,
                }),
        }
    }

    fn standstills(&self) -> Vec<String> {
        let Some(relay) = self.0.relay.get() else {
            return Vec::new();
        };
        let died = relay.supervisor.culprit();
        let died = died.map(|task| format!("the task of {task} has panicked, and the relay ends"));
        let stalled = relay.pulses.report().into_iter().filter_map(|report| {
            (report.state == TaskState::Stalled).then(|| {
                format!(
                    "{} stands still: no sign of life for {:.0}s",
                    report.task, report.seconds
                )
            })
        });
        died.into_iter().chain(stalled).collect()
    }

    /// First what the loops say, which know what they were doing.
    fn database_problems(&self) -> Vec<String> {
        let failing: Vec<_> = self
            .problems()
            .iter()
            .map(|(doing, error)| format!("{doing} fails: {error}"))
            .collect();
        if !failing.is_empty() {
            return failing;
        }
        let relay = self.0.relay.get();
        relay.and_then(|relay| relay.calls.problem()).into_iter().collect()
    }

    fn problems(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.0.problems.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn joined(problems: impl IntoIterator<Item = String>) -> Option<String> {
    problems.into_iter().reduce(|all, one| format!("{all}; {one}"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;
    use crate::config::RelayConfig;
    use crate::guard::timed::Limits;

    fn running(pulses: Pulses, supervisor: &Supervisor) -> Health {
        let config = RelayConfig::default();
        let health = Health::default();
        health.started(Running {
            since: Instant::now(),
            worker: "1".to_owned(),
            namespace: "default".to_owned(),
            publisher: "testing".to_owned(),
            calls: Arc::default(),
            circuit: Arc::new(Circuit::new(config.breaker.clone(), "default")),
            destinations: Arc::new(Destinations::new(
                config.breaker.clone(),
                config.retry.clone(),
                1,
                "default",
            )),
            lead: Arc::new(Lead::new(&config)),
            in_flight: Arc::default(),
            pulses: Arc::new(pulses),
            supervisor: supervisor.clone(),
        });
        health
    }

    fn pulses() -> Pulses {
        Pulses::new(&Limits::new(Duration::from_secs(1)))
    }

    #[tokio::test]
    async fn a_relay_whose_task_has_died_is_not_alive() {
        let supervisor = Supervisor::default();
        let health = running(pulses(), &supervisor);
        assert!(health.report().alive && health.report().ready);
        let dies = supervisor.clone().watch("settling", async { panic!("as scripted") });
        tokio::spawn(dies).await.unwrap_err();
        let report = health.report();
        assert!(!report.alive && !report.ready);
        assert!(report.problem.unwrap().contains("the task of settling has panicked"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_database_that_fails_makes_a_relay_unready_and_a_standstill_makes_it_dead() {
        let health = running(pulses(), &Supervisor::default());
        health.failed("claiming", "gone".to_owned());
        let report = health.report();
        assert!(report.alive && !report.ready && !report.database.ok);
        assert_eq!(report.problem.as_deref(), Some("claiming fails: gone"));
        health.works("claiming");
        assert!(health.is_healthy());
        let relay = health.0.relay.get().unwrap();
        let _running = relay.pulses.claiming.begin();
        advance(Duration::from_secs(7)).await;
        let report = health.report();
        assert!(!report.alive && !report.ready && report.database.ok);
        assert_eq!(
            health.standstill().as_deref(),
            Some("claiming stands still: no sign of life for 7s")
        );
    }

    #[test]
    fn a_relay_that_has_not_begun_or_ends_is_alive_and_not_ready() {
        let starting = Health::default().report();
        assert!(starting.alive && !starting.ready && starting.relay == Phase::Starting);
    }
}
