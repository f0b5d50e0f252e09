//! Work beside the message road: renewing leases, giving up, cleaning up, counting, taking back.

mod clean;
mod owner;
mod sweep;
mod topics;

use std::collections::HashSet;
use std::sync::Arc;

use posthaste_core::store::{RecoverRequest, Recovered};
use posthaste_core::{MessageId, StoreError};
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at};
use tokio_util::sync::CancellationToken;

pub(crate) use clean::clean;
pub(crate) use sweep::sweep_once;

use crate::engine::Engine;
use crate::upkeep::announce;
use crate::upkeep::instrument;
use crate::upkeep::retry_logger::RetryLogger;
use crate::upkeep::undelivered::Cause;

/// More rows that cannot be taken back are not remembered, and are told again.
const MAX_TOLD: usize = 10_000;

/// Renews the leases of what is in flight, three times within their length. A store that keeps something for the relay is
/// heard of as often, also while nothing is in flight, as behind an open circuit.
pub(crate) async fn keep_leases(engine: Arc<Engine>, stop: CancellationToken) {
    let mut retry_logger = RetryLogger::new("renewing leases", &engine.health);
    let third = engine.config.lease / 3;
    // Not at once: what is claimed in the first moment is young.
    let mut ticks = interval_at(Instant::now() + third, third);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let pulse = &engine.pulses.renewing;
    let _running = pulse.begin();
    pulse.rests(third);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        match renew_once(&engine).await {
            Ok(()) => retry_logger.recovered(),
            // The next tick is soon enough; meanwhile the leases count down on their own.
            Err(error) => drop(retry_logger.failed(&error)),
        }
        pulse.rests(third);
    }
}

/// Renews every lease that it can; returns the last error.
async fn renew_once(engine: &Engine) -> Result<(), StoreError> {
    let leases = engine.in_flight.leases();
    if leases.is_empty() {
        // Announcing the relay does the same, too rarely for a short lease, and says what is wrong.
        drop(announce::say_alive(engine).await);
        return Ok(());
    }
    let mut renewed = Ok(());
    for lease in leases {
        engine.pulses.renewing.works();
        // One that fails must not cost the others theirs.
        if let Err(error) = lease.renew(&*engine.store, engine.config.lease).await {
            renewed = Err(error);
        }
    }
    renewed
}

/// Takes back what crashed workers held, at an interval, where claims cannot.
pub(crate) async fn recover(engine: Arc<Engine>, stop: CancellationToken) {
    let mut retry_logger = RetryLogger::aside("recovering stalled messages", &engine.health);
    let mut refused = HashSet::new();
    let mut ticks = interval(engine.config.recover_interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        match recover_once(&engine, &mut refused).await {
            Ok(()) => retry_logger.recovered(),
            Err(error) => drop(retry_logger.failed(&error)),
        }
    }
}

/// `refused` are the rows that the database refused to have taken back before, which were told then: a round that does not get
/// through all of them may find others the next time.
pub(crate) async fn recover_once(engine: &Engine, refused: &mut HashSet<MessageId>) -> Result<(), StoreError> {
    let config = &engine.config;
    // A live worker renews within its lease, so that nothing may be taken from it earlier.
    let stalled_after = config.stalled_after.max(config.lease);
    let recovered = engine
        .store
        .recover(&RecoverRequest {
            scope: config.scope.clone(),
            max_attempts: config.retry.max_attempts,
            stalled_after,
        })
        .await?;
    let Recovered {
        pending,
        died,
        refused: still,
    } = recovered;
    let first: Vec<_> = still.iter().filter(|row| !refused.contains(&row.id)).collect();
    instrument::unrecoverable(&config.scope.namespace, &first);
    for id in pending.iter().chain(&died) {
        refused.remove(id);
    }
    if refused.len() > MAX_TOLD {
        refused.clear();
    }
    for row in &still {
        refused.insert(row.id);
        engine.totals.undelivered(row.id, Cause::Failed(&row.error));
    }
    instrument::recovered(&config.scope.namespace, &pending, stalled_after);
    engine.totals.recovered(pending.len());
    instrument::swept(&config.scope.namespace, &died);
    engine.net.swept(&died);
    engine.totals.swept(&died);
    Ok(())
}
