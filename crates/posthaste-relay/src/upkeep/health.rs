//! Whether a relay can do its work.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use metrics::gauge;
use posthaste_core::breaker::CircuitState;

use crate::guard::circuit::Circuit;
use crate::guard::destinations::Destinations;

/// Whether a relay can do its work, as far as its database goes: for health checks. Clones share it.
///
/// A broker that is unavailable makes no relay unhealthy: to restart it would not help.
#[derive(Clone, Debug, Default)]
pub struct Health {
    namespace: Arc<OnceLock<String>>,
    problems: Arc<Mutex<BTreeMap<&'static str, String>>>,
    circuit: Arc<OnceLock<Arc<Circuit>>>,
    destinations: Arc<OnceLock<Arc<Destinations>>>,
}

impl Health {
    /// What keeps the relay from its work; `None` while all is well.
    pub fn problem(&self) -> Option<String> {
        let problems = self.problems();
        let problem = |(doing, error): (&&str, &String)| format!("{doing} fails: {error}");
        (!problems.is_empty()).then(|| problems.iter().map(problem).collect::<Vec<_>>().join("; "))
    }

    /// Where the circuit stands, and why it is not closed; `None` until the relay runs.
    pub fn circuit(&self) -> Option<(CircuitState, Option<String>)> {
        let view = self.circuit.get()?.view();
        Some((view.state, view.reason))
    }

    /// The destinations that are unavailable, each with the reason; the circuit is closed while there are others.
    pub fn unavailable(&self) -> BTreeMap<String, String> {
        let destinations = self.destinations.get();
        destinations.map(|all| all.unavailable()).unwrap_or_default()
    }

    /// The relay has found its database, and its loops begin.
    pub(crate) fn started(&self, namespace: &str, circuit: &Arc<Circuit>, destinations: &Arc<Destinations>) {
        // A relay starts once.
        let _ = self.namespace.set(namespace.to_owned());
        let _ = self.circuit.set(Arc::clone(circuit));
        let _ = self.destinations.set(Arc::clone(destinations));
    }

    /// Whether all is well.
    pub fn is_healthy(&self) -> bool {
        self.problems().is_empty()
    }

    pub(crate) fn failed(&self, doing: &'static str, error: String) {
        let mut problems = self.problems();
        problems.insert(doing, error);
        self.show(0.0);
    }

    pub(crate) fn works(&self, doing: &'static str) {
        let mut problems = self.problems();
        problems.remove(doing);
        self.show(if problems.is_empty() { 1.0 } else { 0.0 });
    }

    fn show(&self, healthy: f64) {
        gauge!("outbox_healthy", "namespace" => self.namespace().to_owned()).set(healthy);
    }

    /// Whose outbox it is, for figures.
    pub(crate) fn namespace(&self) -> &str {
        self.namespace.get().map(String::as_str).unwrap_or_default()
    }

    fn problems(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.problems.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
