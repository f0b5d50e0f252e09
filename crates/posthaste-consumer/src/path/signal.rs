//! Wakes the polling thread, which waits outside of any runtime.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Says that there is something to look at. Signals that come while no thread waits are kept, as one.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    given: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    pub(crate) fn notify(&self) {
        *self.given.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits for a signal, or until the time is over.
    pub(crate) fn wait(&self, longest: Duration) {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(given, longest, |given| !*given);
        let (mut given, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *given = false;
    }
}
