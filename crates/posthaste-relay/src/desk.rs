//! Where what became of the messages of one claim is handed in, on its way to be settled.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posthaste_core::lifecycle::Verdict;

use crate::engine::{Engine, Outcomes, Reported};
use crate::publication::Sink;

pub(crate) struct Desk {
    state: Mutex<State>,
    /// How many messages the claim has.
    messages: usize,
    /// Whether verdicts are passed on only when all of them are there.
    together: bool,
    outcomes: Outcomes,
    engine: Arc<Engine>,
}

#[derive(Default)]
struct State {
    held: Vec<Reported>,
    given_back: usize,
}

impl Desk {
    pub(crate) fn new(engine: &Arc<Engine>, messages: usize, outcomes: Outcomes) -> Self {
        Self {
            state: Mutex::default(),
            messages,
            together: engine.terms.settle_together,
            outcomes,
            engine: Arc::clone(engine),
        }
    }

    /// How many messages were given back without having been tried.
    pub(crate) fn given_back(&self) -> usize {
        self.state().given_back
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for Desk {
    /// To be called once for every message of the claim.
    fn take(&self, reported: Reported) {
        let mut state = self.state();
        state.given_back += usize::from(reported.verdict == Verdict::Released);
        let complete = if self.together {
            state.held.push(reported);
            if state.held.len() < self.messages {
                return;
            }
            std::mem::take(&mut state.held)
        } else {
            vec![reported]
        };
        drop(state);
        self.engine.in_flight.answered(complete.len());
        // The settler outlives every publication; if it is gone the relay is being dropped.
        let _ = self.outcomes.send(complete);
    }
}
