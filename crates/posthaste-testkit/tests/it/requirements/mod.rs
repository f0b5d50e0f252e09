//! The engine on tables that have less than Posthaste's own, on a clock that does not have to be waited for.

mod broker;
mod bypass;
mod in_place;
mod limits;
mod locked;
mod pace;
mod random;
mod recovery;
mod refused;
mod together;

use std::time::Duration;

use posthaste_core::lifecycle::State;
use posthaste_core::store::ProducerStore;
use posthaste_core::{AdminStore, Backoff, Message, MessageId, OutboxOptions, Publisher, RetryPolicy};
use posthaste_relay::{Relay, RelayConfig, RelayReport};
use posthaste_testkit::{MemoryStore, MemoryTable, TestClock};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const LEASE: Duration = Duration::from_secs(30);

fn store(table: MemoryTable) -> MemoryStore {
    MemoryStore::with_clock(TestClock::ticking()).imitating(table)
}

/// Enqueues messages; a payload such as `a1` has the key `a`, and `1` has none.
async fn enqueue<const N: usize>(store: &MemoryStore, payloads: [&str; N]) -> [MessageId; N] {
    let messages = payloads.map(|payload| {
        let key = payload.trim_end_matches(char::is_numeric);
        let message = Message::new("orders", payload.to_owned());
        if key.is_empty() { message } else { message.key(key) }
    });
    let ids = messages.each_ref().map(|message| message.id);
    let options = OutboxOptions::default();
    store.enqueue_and_commit(&options, messages.to_vec()).await.unwrap();
    ids
}

/// Five attempts, 100, 200, 400 and 800 ms apart.
fn config() -> RelayConfig {
    RelayConfig {
        retry: RetryPolicy {
            max_attempts: 5,
            backoff: Backoff::Schedule {
                delays: [100, 200, 400, 800, 1_600].map(Duration::from_millis).to_vec(),
            },
        },
        ..RelayConfig::default()
    }
}

async fn drain(store: &MemoryStore, publisher: impl Publisher, config: RelayConfig) -> RelayReport {
    let relay = Relay::new(store.clone(), publisher).config(config);
    let drained = timeout(MINUTE * 10, relay.drain()).await;
    drained.expect("the drain ends").unwrap()
}

fn start(
    store: &MemoryStore,
    publisher: impl Publisher,
    config: RelayConfig,
) -> (CancellationToken, JoinHandle<RelayReport>) {
    let shutdown = CancellationToken::new();
    let relay = Relay::new(store.clone(), publisher).config(config);
    let running = relay.run_until(shutdown.clone());
    (shutdown, tokio::spawn(async { running.await.unwrap() }))
}

async fn state(store: &MemoryStore, id: MessageId) -> State {
    store.show(id).await.unwrap().unwrap().state
}

async fn states<const N: usize>(store: &MemoryStore, ids: [MessageId; N]) -> Vec<State> {
    let mut states = Vec::new();
    for id in ids {
        states.push(state(store, id).await);
    }
    states
}
