//! Where destinations stand, for the machine that watches. Only changes are told.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::gauge;
use posthaste_core::breaker::CircuitState;

use super::known::Known;
use crate::guard::circuit::level;

/// So many destinations have figures of their own; the names of others are known to the log and the probes.
const MAX_LABELS: usize = 100;

/// All others together: where the worst of them stands.
const OTHER: &str = "other";

#[derive(Debug)]
pub(super) struct Figures {
    namespace: String,
    labels: Mutex<HashSet<Arc<str>>>,
}

impl Figures {
    pub(super) fn new(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            labels: Mutex::default(),
        }
    }

    /// Destinations that are known beforehand have their figures from the start.
    pub(super) fn show_all_closed(&self, places: &[Arc<str>]) {
        for place in places {
            if self.has_label(place) {
                self.set(place, level(CircuitState::Closed));
            }
        }
    }

    /// Shows where a destination stands, if that has changed.
    pub(super) fn show(&self, known: &mut Known, place: &Arc<str>) {
        let Some(destination) = known.places.get_mut(place) else {
            return;
        };
        let state = destination.breaker.state();
        if destination.shown.replace(state) == Some(state) {
            return;
        }
        if self.has_label(place) {
            self.set(place, level(state));
        } else {
            let others = known.places.iter().filter(|(place, _)| !self.labels().contains(*place));
            let worst = others
                .map(|(_, other)| level(other.breaker.state()))
                .fold(0.0, f64::max);
            self.set(OTHER, worst);
        }
        self.count(known);
    }

    #[expect(clippy::cast_precision_loss, reason = "gauges are floats")]
    fn count(&self, known: &Known) {
        let unavailable = known
            .places
            .values()
            .filter(|place| place.breaker.state() != CircuitState::Closed);
        gauge!("outbox_destinations_unavailable", "namespace" => self.namespace.clone())
            .set(unavailable.count() as f64);
    }

    fn set(&self, destination: &str, level: f64) {
        let (namespace, destination) = (self.namespace.clone(), destination.to_owned());
        gauge!("outbox_destination_circuit_state", "namespace" => namespace, "destination" => destination).set(level);
    }

    /// Whether a destination has figures of its own: the first ones that come by.
    fn has_label(&self, place: &Arc<str>) -> bool {
        let mut labels = self.labels();
        labels.contains(place) || (labels.len() < MAX_LABELS && labels.insert(Arc::clone(place)))
    }

    fn labels(&self) -> MutexGuard<'_, HashSet<Arc<str>>> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.labels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
