//! Collects what became of the messages of one claim, on its way to be settled.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posthaste_core::lifecycle::Verdict;
use tokio::sync::mpsc;

use crate::engine::Engine;
use crate::path::slab::Slab;
use crate::reported::Reported;

/// What is to be settled.
#[derive(Debug)]
pub(crate) enum Piece {
    /// Verdicts that belong together.
    Reported(Vec<Reported>),
    /// Messages of this call were delivered.
    Delivered(Arc<Slab>),
}

impl Piece {
    /// How many verdicts there are by now.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Reported(reported) => reported.len(),
            Self::Delivered(slab) => slab.len() - slab.owed() as usize,
        }
    }
}

/// Where verdicts go to be settled.
pub(crate) type Outcomes = mpsc::UnboundedSender<Piece>;

/// Takes what became of messages.
pub(crate) trait Sink: Send + Sync {
    fn take(&self, reported: Reported);

    /// Whether deliveries are settled by their places in a call of the publisher. Else each is taken as it comes.
    fn is_by_place(&self) -> bool {
        false
    }

    /// Messages of this call were delivered.
    fn delivered(&self, _: &Arc<Slab>) {}
}

pub(crate) struct OutcomeCollector {
    state: Mutex<State>,
    /// How many messages the claim has.
    messages: usize,
    outcomes: Outcomes,
    engine: Arc<Engine>,
}

#[derive(Default)]
struct State {
    held: Vec<Reported>,
    given_back: usize,
}

impl OutcomeCollector {
    pub(crate) fn new(messages: usize, outcomes: Outcomes, engine: &Arc<Engine>) -> Self {
        Self {
            state: Mutex::default(),
            messages,
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

impl Sink for OutcomeCollector {
    /// To be called once for every message of the claim, but for those that are settled by their places.
    fn take(&self, reported: Reported) {
        let engine = &self.engine;
        if reported.verdict != Verdict::Delivered {
            engine.lanes.stop(&reported.message);
        }
        let mut state = self.state();
        state.given_back += usize::from(reported.verdict == Verdict::Released);
        // Where a claim is settled as a whole, verdicts are passed on only when all of them are there.
        let complete = if engine.requirements.batch_settlement {
            state.held.push(reported);
            if state.held.len() < self.messages {
                return;
            }
            std::mem::take(&mut state.held)
        } else {
            vec![reported]
        };
        drop(state);
        if engine.net.is_there() {
            for reported in &complete {
                engine.net.died(reported);
            }
        }
        engine.in_flight.answered(complete.len());
        // The settler outlives every publication; if it is gone the relay is being dropped.
        let _ = self.outcomes.send(Piece::Reported(complete));
    }

    fn is_by_place(&self) -> bool {
        !self.engine.requirements.batch_settlement
    }

    fn delivered(&self, slab: &Arc<Slab>) {
        let _ = self.outcomes.send(Piece::Delivered(Arc::clone(slab)));
    }
}
