//! The way of a message: claimed, dispatched, published, settled.

mod bypass;
mod claim;
mod dispatch;
mod drain;
mod failpoint;
mod in_place;
mod outcome_collector;
mod pace;
mod poll;
mod publication;
mod scan_budget;
pub(crate) mod send_span;
pub(crate) mod settle;
mod slab;
mod turn;

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::claim::Claimer;
pub(crate) use self::drain::DrainError;
use crate::engine::Engine;
use crate::path::outcome_collector::Outcomes;

/// When claiming ends.
pub(crate) enum Until {
    /// When the token fires.
    Cancelled(CancellationToken),
    /// When nothing is due and nothing is in flight; a store that fails or a circuit that opens ends it too.
    Idle,
}

/// Claims until the end and returns the publications that are still running.
///
/// The loop is stopped only where it waits, never in the middle of a claim: rows that were leased and then forgotten
/// would have to wait for their lease to run out.
pub(crate) async fn deliver(
    engine: &Arc<Engine>,
    outcomes: Outcomes,
    until: Until,
) -> (JoinSet<()>, Option<DrainError>) {
    let mut claimer = Claimer::new(engine, outcomes);
    let drain_error = match until {
        Until::Idle => drain::run(&mut claimer).await.err(),
        Until::Cancelled(shutdown) => {
            poll::run(&mut claimer, shutdown).await;
            None
        }
    };
    (claimer.publications, drain_error)
}
