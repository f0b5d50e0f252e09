//! Delivering what is due, in a test.

use posthaste_core::{Publisher, RelayStore};
use posthaste_relay::{Relay, RelayReport};

/// Runs a relay with default settings until nothing is due any more. Messages that wait for a retry stay behind; let
/// time pass and drain again.
///
/// # Panics
/// If the relay cannot run.
pub async fn drain(store: impl RelayStore, publisher: impl Publisher) -> RelayReport {
    let report = Relay::new(store, publisher).drain().await;
    report.unwrap_or_else(|error| panic!("the outbox could not be drained: {error}"))
}
