//! Tells the store that this relay is there, and where its circuit stands, for `posthaste status`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use posthaste_core::StoreError;
use posthaste_core::store::RelayHeartbeat;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use crate::guard::circuit::View;
use crate::upkeep::retry_logger::RetryLogger;

/// How often at least, unless the circuit changes.
const INTERVAL: Duration = Duration::from_secs(5);

/// Timeout for taking a relay that stops off the list. Without it the list forgets the relay, and its lead expires.
const DEREGISTER_TIMEOUT: Duration = Duration::from_secs(2);

/// Says so until the end. A store that does not take it is no reason to stop delivering.
pub(crate) async fn run(engine: Arc<Engine>, stop: CancellationToken) {
    let host = hostname::get().map_or_else(|_| "unknown".to_owned(), |name| name.to_string_lossy().into_owned());
    let mut retry_logger = RetryLogger::aside("announcing this relay", &engine.health);
    let interval = interval(engine.config.lease);
    loop {
        // Registered before the look, so that no change in between is missed.
        let changed = engine.circuit.changed();
        // Not cut short by the end: a heartbeat after the deregistration would list a relay that is gone.
        match announce(&engine, &host).await {
            Ok(()) => retry_logger.recovered(),
            // The next heartbeat is soon enough.
            Err(error) => drop(retry_logger.failed(&error)),
        }
        let due = async {
            tokio::select! {
                () = changed => {}
                () = sleep(interval) => {}
            }
        };
        if stop.run_until_cancelled(due).await.is_none() {
            return;
        }
    }
}

/// Often enough for what a store keeps for this relay for a lease, such as the seats of a log: with an open circuit nothing else
/// renews them, and whoever takes over takes this relay for dead.
fn interval(lease: Duration) -> Duration {
    INTERVAL.min(lease / 3)
}

/// Takes this relay off the list, once nothing renews it any more, and lets another one lead.
pub(crate) async fn deregister(engine: &Engine, mut presence: JoinSet<()>) {
    let deregistration = async {
        while presence.join_next().await.is_some() {}
        let left = match engine.store.registry() {
            Some(registry) => registry.deregister(engine.worker).await,
            None => engine.store.resign_janitor(engine.worker).await,
        };
        engine.store.close().await.and(left)
    };
    let left = timeout(DEREGISTER_TIMEOUT, deregistration).await;
    if !matches!(left, Ok(Ok(()))) {
        tracing::debug!("stopped without deregistering; the list of relays will forget this one");
    }
}

/// Gives back what a store keeps for a relay that was on no list, such as that of a drain.
pub(crate) async fn close_store(engine: &Engine) {
    if !matches!(timeout(DEREGISTER_TIMEOUT, engine.store.close()).await, Ok(Ok(()))) {
        tracing::debug!("stopped without giving back what the store kept for it");
    }
}

/// Lets the store hear that this relay lives. One that another leads has nothing to claim: what the store keeps for it, such as
/// shards of a log, it gives back, or nobody would read them.
pub(crate) async fn say_alive(engine: &Engine) -> Result<(), StoreError> {
    let stands_by = engine.lead.other().is_some();
    if stands_by && engine.in_flight.leases().is_empty() {
        engine.store.close().await
    } else {
        engine.store.keep_alive().await
    }
}

async fn announce(engine: &Engine, host: &str) -> Result<(), StoreError> {
    say_alive(engine).await?;
    match engine.store.registry() {
        Some(registry) => registry.heartbeat(&heartbeat(engine, host)).await,
        None => Ok(()),
    }
}

fn heartbeat(engine: &Engine, host: &str) -> RelayHeartbeat {
    let View { state, lasted, reason } = engine.circuit.view();
    RelayHeartbeat {
        worker: engine.worker,
        namespace: engine.config.scope.namespace.clone(),
        publisher: engine.publisher.name().to_owned(),
        host: host.to_owned(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        circuit: state,
        circuit_lasted: lasted,
        circuit_reason: reason.or_else(|| trouble(&engine.destinations.unavailable(), engine.refusals.count())),
    }
}

/// What keeps messages waiting while the circuit is closed.
fn trouble(unavailable: &BTreeMap<String, String>, refused: usize) -> Option<String> {
    let mut found = Vec::new();
    if !unavailable.is_empty() {
        let places: Vec<_> = unavailable
            .iter()
            .map(|(place, reason)| format!("{place}: {reason}"))
            .collect();
        found.push(format!("unavailable: {}", places.join("; ")));
    }
    if refused > 0 {
        found.push(format!(
            "the database refuses to write what became of messages ({refused}), and this relay's log says why"
        ));
    }
    (!found.is_empty()).then(|| found.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two heartbeats may be lost.
    #[test]
    fn a_relay_is_heard_of_three_times_in_a_lease_however_short_that_is() {
        for (lease, expected) in [(1_500, 500), (6_000, 2_000), (30_000, 5_000), (600_000, 5_000)] {
            let every = interval(Duration::from_millis(lease));
            assert_eq!(every, Duration::from_millis(expected), "a lease of {lease} ms");
        }
    }

    #[test]
    fn a_closed_circuit_says_what_waits_all_the_same() {
        let down = BTreeMap::from([("partner".to_owned(), "connection refused".to_owned())]);
        assert_eq!(trouble(&BTreeMap::new(), 0), None);
        assert_eq!(trouble(&down, 0).unwrap(), "unavailable: partner: connection refused");
        let both = trouble(&down, 7).unwrap();
        assert!(
            both.starts_with("unavailable: partner: connection refused; the database refuses to write")
                && both.contains("(7)"),
            "{both}"
        );
    }
}
