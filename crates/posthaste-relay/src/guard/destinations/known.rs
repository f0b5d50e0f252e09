//! The destinations that are known, and the streams that go there.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::breaker::CircuitState;
use tokio::time::Instant;

use super::destination::Destination;

/// Destinations that have been well for this long are forgotten, once there are many.
const FORGET_AFTER: Duration = Duration::from_mins(1);
pub(super) const MAX_DESTINATIONS: usize = 1_000;
pub(super) const MAX_STREAMS: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Known {
    /// Where each stream goes, by its last failure.
    pub(super) streams: HashMap<u64, Arc<str>>,
    pub(super) places: HashMap<Arc<str>, Destination>,
}

impl Known {
    pub(super) fn forget_the_well(&mut self, now: Instant) {
        self.places.retain(|_, place| {
            place.breaker.state() != CircuitState::Closed
                || place.outstanding > 0
                || place.paused_until.is_some_and(|until| until > now)
                || now.duration_since(place.failed_at) < FORGET_AFTER
        });
        let places = &self.places;
        self.streams.retain(|_, place| places.contains_key(place));
        if self.streams.len() >= MAX_STREAMS {
            // One failure of each teaches it again; to look through ever more of them at every failure would cost more.
            self.streams.clear();
        }
    }
}
