//! What probes and operators are told of the relay.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use posthaste_core::breaker::CircuitState;
use posthaste_relay::{BacklogReport, Health, HealthReport, Leadership, Phase};
use serde::Serialize;

/// What the probes look at.
#[derive(Clone, Debug, Default)]
pub struct Probes(Arc<OnceLock<Health>>);

impl Probes {
    /// The database was reached, and this relay begins.
    pub fn watch(&self, relay: Health) {
        // There is one relay in a process.
        let _ = self.0.set(relay);
    }

    /// Everything that is known. Before it begins a relay is starting.
    pub fn report(&self) -> HealthReport {
        self.0.get().map_or_else(|| Health::default().report(), Health::report)
    }

    /// 503 if a restart helps: a task is dead or stands still. A database that is unavailable is waited for.
    pub(super) fn alive(&self) -> Response {
        let report = self.report();
        let problem = self.0.get().and_then(Health::standstill);
        answer(
            report.alive,
            &Liveness {
                alive: report.alive,
                relay: report.relay,
                problem,
            },
        )
    }

    /// 503 if the relay does not do its work. One that stands by is ready to.
    pub(super) fn ready(&self) -> Response {
        let report = self.report();
        answer(
            report.ready,
            &Readiness {
                ready: report.ready,
                relay: report.relay,
                problem: report.problem,
                leadership: report.leadership,
                leader: report.leader,
                circuit: report.circuit,
                circuit_reason: report.circuit_reason,
                unavailable: report.unavailable,
                notices: report.notices,
                backlog: report.backlog,
            },
        )
    }

    /// Everything, always with 200: it is the probes that judge.
    pub(super) fn status(&self) -> Response {
        let status = Status {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            report: self.report(),
        };
        Json(status).into_response()
    }
}

fn answer(good: bool, body: &impl Serialize) -> Response {
    let status = if good {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(body)).into_response()
}

#[derive(Debug, Serialize)]
struct Liveness {
    alive: bool,
    relay: Phase,
    /// Why it is not.
    problem: Option<String>,
}

#[derive(Debug, Serialize)]
struct Readiness {
    ready: bool,
    relay: Phase,
    /// Why it is not ready.
    problem: Option<String>,
    leadership: Option<Leadership>,
    /// The relay that leads instead.
    leader: Option<String>,
    circuit: Option<CircuitState>,
    circuit_reason: Option<String>,
    /// The destinations that are unavailable while others are not, each with the reason.
    unavailable: BTreeMap<String, String>,
    /// What keeps messages waiting and only an operator can mend. For information, as is the backlog.
    notices: Vec<String>,
    /// For information: it makes no relay unready.
    backlog: Option<BacklogReport>,
}

#[derive(Debug, Serialize)]
struct Status {
    version: &'static str,
    pid: u32,
    #[serde(flatten)]
    report: HealthReport,
}
