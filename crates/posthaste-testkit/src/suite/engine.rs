//! The engine at work on a store, for the cases of `relay` and `running`.

use std::time::Duration;

use posthaste_core::{Backoff, Publisher, RetryPolicy};
use posthaste_relay::{Relay, RelayConfig, RelayReport};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::steps::{MINUTE, SECOND};
use crate::backend::Backend;
use crate::{FaultyPublisher, RecordingPublisher};

/// A relay that gives up after three attempts, one second apart.
pub(super) fn config() -> RelayConfig {
    let backoff = Backoff::Schedule { delays: vec![SECOND] };
    RelayConfig {
        retry: RetryPolicy {
            max_attempts: 3,
            backoff,
        },
        ..RelayConfig::default()
    }
}

pub(super) fn broker() -> FaultyPublisher<RecordingPublisher> {
    FaultyPublisher::new(RecordingPublisher::new())
}

pub(super) async fn drain<B: Backend>(b: &B, publisher: impl Publisher, config: RelayConfig) -> RelayReport {
    let relay = Relay::new(b.store().clone(), publisher).config(config);
    timeout(MINUTE, relay.drain())
        .await
        .expect("the drain ends")
        .expect("the relay runs")
}

/// Starts a relay that runs until the token fires.
pub(super) fn start<B: Backend>(
    b: &B,
    publisher: impl Publisher,
    config: RelayConfig,
) -> (CancellationToken, JoinHandle<RelayReport>) {
    let shutdown = CancellationToken::new();
    let running = Relay::new(b.store().clone(), publisher)
        .config(config)
        .run_until(shutdown.clone());
    (shutdown, tokio::spawn(async { running.await.expect("the relay runs") }))
}

pub(super) async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let wait = async {
        while !condition().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SECOND * 30, wait)
        .await
        .unwrap_or_else(|_| panic!("waited in vain for {what}"));
}
