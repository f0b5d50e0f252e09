//! Work beside the message road: renewing leases, giving up, cleaning up, counting, taking back.

use std::collections::HashSet;
use std::sync::Arc;

use posthaste_core::store::{OutboxStats, RecoverRequest, Recovered};
use posthaste_core::{MessageId, StoreError};
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::upkeep::instrument;
use crate::upkeep::retry_logger::RetryLogger;
use crate::upkeep::undelivered::Cause;

/// Rows removed by one statement; small enough not to hold locks for long.
const PURGE_BATCH: u32 = 1_000;

/// More rows that cannot be taken back are not remembered, and are told again.
const MAX_TOLD: usize = 10_000;

/// Renews the leases of what is in flight, three times within their length.
pub(crate) async fn keep_leases(engine: Arc<Engine>, stop: CancellationToken) {
    let mut retry_logger = RetryLogger::new("renewing leases", &engine.health);
    let third = engine.config.lease / 3;
    // Not at once: what is claimed in the first moment is young.
    let mut ticks = interval_at(Instant::now() + third, third);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        match renew_once(&engine).await {
            Ok(()) => retry_logger.recovered(),
            // The next tick is soon enough; meanwhile the leases count down on their own.
            Err(error) => drop(retry_logger.failed(&error)),
        }
    }
}

/// Renews every lease that it can; returns the last error.
async fn renew_once(engine: &Engine) -> Result<(), StoreError> {
    let mut renewed = Ok(());
    for lease in engine.in_flight.leases() {
        // One that fails must not cost the others theirs.
        if let Err(error) = lease.renew(&*engine.store, engine.config.lease).await {
            renewed = Err(error);
        }
    }
    renewed
}

/// What one round of cleaning did.
#[derive(Debug)]
struct Round {
    swept: usize,
    purged: u64,
    stats: OutboxStats,
}

/// Sweeps, purges and counts at an interval.
pub(crate) async fn clean(engine: Arc<Engine>, stop: CancellationToken) {
    let mut retry_logger = RetryLogger::aside("cleaning up");
    let mut ticks = interval(engine.config.janitor_interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        match stop.run_until_cancelled(clean_once(&engine)).await {
            Some(Ok(round)) => {
                retry_logger.recovered();
                tracing::debug!(round.swept, round.purged, ?round.stats, "cleaned up");
            }
            Some(Err(error)) => drop(retry_logger.failed(&error)),
            None => return,
        }
    }
}

/// Gives up what has used all its attempts; returns how many that were.
pub(crate) async fn sweep_once(engine: &Engine) -> Result<usize, StoreError> {
    let config = &engine.config;
    let died = engine.store.sweep(&config.scope, config.retry.max_attempts).await;
    let died = died.inspect_err(|error| engine.net.sweep_failed(error))?;
    instrument::swept(&died);
    engine.net.swept(&died);
    engine.totals.swept(&died);
    Ok(died.len())
}

async fn clean_once(engine: &Engine) -> Result<Round, StoreError> {
    let config = &engine.config;
    // A death that the table refuses is no reason not to count and purge.
    let swept = sweep_once(engine).await;
    // Before the purge, which may take long when there is much to remove.
    let stats = engine.store.stats(&config.scope.namespace).await;
    if let Ok(stats) = &stats {
        instrument::counted(&config.scope.namespace, stats);
    }
    // Even if they could not be counted: it may be the rows to be removed that make counting slow.
    let purged = if config.purge { purge(engine).await? } else { 0 };
    Ok(Round {
        swept: swept?,
        purged,
        stats: stats?,
    })
}

/// Removes until nothing is left to remove: so many rows per round would fall behind a busy producer forever. But after an
/// interval it is time to sweep and count again.
async fn purge(engine: &Engine) -> Result<u64, StoreError> {
    let (mut purged, start) = (0, Instant::now());
    loop {
        let removed = engine.store.purge(engine.config.retention, PURGE_BATCH).await?;
        instrument::purged(removed);
        purged += removed;
        if removed < u64::from(PURGE_BATCH) || start.elapsed() > engine.config.janitor_interval {
            return Ok(purged);
        }
    }
}

/// Takes back what crashed workers held, at an interval, where claims cannot.
pub(crate) async fn recover(engine: Arc<Engine>, stop: CancellationToken) {
    let mut retry_logger = RetryLogger::aside("recovering stalled messages");
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
    instrument::swept(&died);
    engine.net.swept(&died);
    engine.totals.swept(&died);
    Ok(())
}
