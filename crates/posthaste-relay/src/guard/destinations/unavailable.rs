//! Which destinations are unavailable, for an operator to see.

use std::collections::BTreeMap;

use posthaste_core::breaker::CircuitState;
use tokio::time::Instant;

use super::Destinations;

impl Destinations {
    /// The destinations whose messages wait, with the reason. One that failed stays until a message gets through to it.
    pub(crate) fn unavailable(&self) -> BTreeMap<String, String> {
        let now = Instant::now();
        let state = self.state();
        let waiting = state.places.iter().filter(|(_, destination)| {
            destination.breaker.state() != CircuitState::Closed
                || destination.paused_until.is_some_and(|until| until > now)
        });
        waiting
            .map(|(place, destination)| (place.to_string(), destination.reason.clone()))
            .collect()
    }
}
