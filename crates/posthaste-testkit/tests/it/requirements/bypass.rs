//! Rows at the head of a table that has no place to say that they wait.

use posthaste_core::lifecycle::State;
use posthaste_core::store::ProducerStore;
use posthaste_core::{Message, MessageId, OutboxOptions, Outcome, PublishError};
use posthaste_relay::{Relay, RelayConfig, RelayError};
use posthaste_testkit::{FaultyStore, MemoryLease, MemoryStore, MemoryTable};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::broker::Broker;
use super::{MINUTE, SECOND, config, enqueue, start, state, store};

const LOCKED: MemoryTable = MemoryTable::new().lease(MemoryLease::RowLocks).without_attempts(true);

fn small_batches() -> RelayConfig {
    RelayConfig {
        batch_size: 3,
        max_in_flight: 3,
        ..config()
    }
}

async fn enqueue_to(store: &MemoryStore, topic: &str, count: usize) -> Vec<MessageId> {
    let messages: Vec<_> = (0..count).map(|n| Message::new(topic, format!("{topic}{n}"))).collect();
    let ids = messages.iter().map(|message| message.id).collect();
    let options = OutboxOptions::default();
    store.enqueue_and_commit(&options, messages).await.unwrap();
    ids
}

async fn all_delivered(store: &MemoryStore, ids: &[MessageId]) -> bool {
    for id in ids {
        if state(store, *id).await != State::Delivered {
            return false;
        }
    }
    true
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_behind_refused_verdicts() {
    for culprits in [1, 3, 20] {
        let memory = store(LOCKED);
        let refused = enqueue_to(&memory, "refused", culprits).await;
        let refusing = FaultyStore::new(memory.clone());
        refusing.refuse(refused.clone());
        let (broker, shutdown) = (Broker::willing(), CancellationToken::new());
        let relay = Relay::new(refusing.clone(), broker.clone()).config(small_batches());
        let relay = tokio::spawn(relay.run_until(shutdown.clone()));
        // By now each of them was published once, one by one.
        sleep(MINUTE * 30).await;
        let behind = enqueue_to(&memory, "behind", 10).await;
        sleep(SECOND * 20).await;
        assert!(all_delivered(&memory, &behind).await, "{culprits}");
        for n in 0..culprits {
            assert_eq!(broker.attempts_of(&format!("refused{n}")).len(), 1);
        }
        refusing.allow_all();
        sleep(MINUTE * 3).await;
        assert!(all_delivered(&memory, &refused).await);
        assert_eq!(broker.tried().len(), culprits + 10, "each once");
        shutdown.cancel();
        relay.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_goes_past_refused_verdicts() {
    let memory = store(LOCKED);
    let refused = enqueue_to(&memory, "refused", 3).await;
    let first = enqueue(&memory, ["1", "2", "3", "4"]).await;
    let refusing = FaultyStore::new(memory.clone());
    refusing.refuse(refused[1..].to_vec());
    let broker = Broker::willing();
    let relay = Relay::new(refusing.clone(), broker.clone()).config(small_batches());
    let drained = timeout(MINUTE, relay.drain()).await.expect("the drain ends");
    let Err(RelayError::Unsettled { report }) = drained else {
        panic!("{drained:?}")
    };
    assert_eq!((report.delivered, report.refused), (5, 2));
    assert!(all_delivered(&memory, &first).await);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_behind_a_destination_that_is_unavailable() {
    let memory = store(LOCKED);
    let held = enqueue_to(&memory, "away", 20).await;
    let broker = Broker::new(|payload, _| match payload.strip_prefix("away") {
        Some(_) => Outcome::Failed(PublishError::transport("no such topic").at("away")),
        None => Outcome::DELIVERED,
    });
    let (shutdown, relay) = start(&memory, broker.clone(), small_batches());
    sleep(SECOND * 20).await;
    let behind = enqueue_to(&memory, "behind", 10).await;
    sleep(MINUTE).await;
    assert!(all_delivered(&memory, &behind).await);
    for id in &held {
        assert_eq!(state(&memory, *id).await, State::Pending, "an outage kills nobody");
    }
    assert!(broker.tried().len() < 200, "{}", broker.tried().len());
    shutdown.cancel();
    relay.await.unwrap();
}
