//! Giving up what has used all its attempts.

use posthaste_core::StoreError;

use crate::engine::Engine;
use crate::upkeep::instrument;

/// Gives up what has used all its attempts; returns how many that were.
pub(crate) async fn sweep_once(engine: &Engine) -> Result<usize, StoreError> {
    let config = &engine.config;
    let died = engine.store.sweep(&config.scope, config.retry.max_attempts).await;
    let died = died.inspect_err(|error| engine.net.sweep_failed(error))?;
    instrument::swept(&config.scope.namespace, &died);
    engine.net.swept(&died);
    engine.totals.swept(&died);
    Ok(died.len())
}
