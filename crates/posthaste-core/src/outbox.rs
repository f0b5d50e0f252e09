//! The application's side of every store: what an outbox accepts, and whom it tells.

use std::fmt;
use std::sync::Arc;

use crate::enqueue::OutboxOptions;
use crate::retry::MAX_DURATION;
use crate::wake::Doorbell;

/// What the outboxes of all stores have in common beside their store. Cheap to clone.
#[derive(Clone)]
pub struct Front {
    options: Arc<OutboxOptions>,
    doorbell: Option<Arc<dyn Doorbell>>,
}

impl Front {
    /// An outbox that accepts messages by these options and rings no doorbell.
    pub fn new(mut options: OutboxOptions) -> Self {
        // Databases cannot add any duration to the present.
        options.dedupe_window = options.dedupe_window.min(MAX_DURATION);
        Self {
            options: Arc::new(options),
            doorbell: None,
        }
    }

    /// Rings this doorbell after commits.
    pub fn set_doorbell(&mut self, doorbell: impl Doorbell) {
        self.doorbell = Some(Arc::new(doorbell));
    }

    /// How messages are accepted.
    pub fn options(&self) -> &OutboxOptions {
        &self.options
    }

    /// Tells relays that there may be work. To be called after a commit.
    pub fn ring(&self) {
        if let Some(doorbell) = &self.doorbell {
            doorbell.ring();
        }
    }
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
