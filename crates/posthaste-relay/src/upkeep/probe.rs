//! Asks the database for a sign of life while nothing else does, such as on standby or while the circuit is open.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::guard::calls::Calls;

/// So long without an answer is worth a question.
const INTERVAL: Duration = Duration::from_secs(2);

/// Asks until the end. What comes of it is noted with every other call.
pub(crate) async fn run(engine: Arc<Engine>, calls: Arc<Calls>, stop: CancellationToken) {
    while stop.run_until_cancelled(sleep(INTERVAL)).await.is_some() {
        if calls.is_quiet(INTERVAL) {
            let asked = stop.run_until_cancelled(engine.store.ping()).await;
            if let Some(Err(error)) = asked {
                tracing::debug!(%error, "the database does not answer");
            }
        }
    }
}
