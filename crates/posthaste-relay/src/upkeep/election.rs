//! Asks the store for the lead, where only one relay is active.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::StoreError;
use posthaste_core::store::{LeadRequest, LeaderRole};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::guard::clock::Moment;
use crate::upkeep::retry_logger::RetryLogger;

/// Asks for the lead, and again in time, until the end.
pub(crate) async fn keep(engine: Arc<Engine>, lease: Duration, stop: CancellationToken) {
    let mut retry_logger = RetryLogger::new("asking for the lead", &engine.health);
    let pulse = &engine.pulses.electing;
    let _running = pulse.begin();
    loop {
        pulse.works();
        // Not cut short by the end: a lead that is granted after the deregistration would keep the others waiting.
        let wait = match elect_once(&engine, lease).await {
            Ok(wait) => {
                retry_logger.recovered();
                wait
            }
            // Meanwhile the lead counts down on its own.
            Err(error) => retry_logger.failed(&error),
        };
        pulse.rests(wait);
        if stop.run_until_cancelled(sleep(wait)).await.is_none() {
            return;
        }
    }
}

/// Asks once; returns when to ask again.
pub(crate) async fn elect_once(engine: &Engine, lease: Duration) -> Result<Duration, StoreError> {
    let request = LeadRequest {
        role: LeaderRole::Relay,
        namespace: engine.config.scope.namespace.clone(),
        worker: engine.worker,
        lease,
    };
    // The lead counts from before the request leaves: the database's count can only start later.
    let sent = Moment::now();
    let registry = engine.store.registry().ok_or_else(StoreError::no_registry)?;
    let answer = registry.elect_leader(&request).await?;
    Ok(engine
        .lead
        .answered(sent, lease, answer, engine.config.max_poll_interval))
}
