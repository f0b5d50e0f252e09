//! Collects what became of the messages of one claim, on its way to be settled.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posthaste_core::lifecycle::Verdict;
use tokio::sync::mpsc;

use crate::guard::in_flight::InFlight;
use crate::net::Net;
use crate::reported::Reported;

/// Where verdicts go to be settled, those that belong together in one piece.
pub(crate) type Outcomes = mpsc::UnboundedSender<Vec<Reported>>;

/// Takes what became of messages.
pub(crate) trait Sink: Send + Sync {
    fn take(&self, reported: Reported);
}

pub(crate) struct OutcomeCollector {
    state: Mutex<State>,
    /// How many messages the claim has.
    messages: usize,
    /// Whether verdicts are passed on only when all of them are there.
    together: bool,
    outcomes: Outcomes,
    in_flight: Arc<InFlight>,
    net: Arc<Net>,
}

#[derive(Default)]
struct State {
    held: Vec<Reported>,
    given_back: usize,
}

impl OutcomeCollector {
    pub(crate) fn new(
        messages: usize,
        together: bool,
        outcomes: Outcomes,
        in_flight: &Arc<InFlight>,
        net: &Arc<Net>,
    ) -> Self {
        Self {
            state: Mutex::default(),
            messages,
            together,
            outcomes,
            in_flight: Arc::clone(in_flight),
            net: Arc::clone(net),
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

impl Sink for OutcomeCollector {
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
        if self.net.is_there() {
            for reported in &complete {
                self.net.died(reported);
            }
        }
        self.in_flight.answered(complete.len());
        // The settler outlives every publication; if it is gone the relay is being dropped.
        let _ = self.outcomes.send(complete);
    }
}
