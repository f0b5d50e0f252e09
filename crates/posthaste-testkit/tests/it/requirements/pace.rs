//! How often a relay claims, and what it leaves in the table.

use posthaste_core::lifecycle::State;
use posthaste_core::publisher::ErrorScope;
use posthaste_core::store::ProducerStore;
use posthaste_core::wake::Notifier;
use posthaste_core::{AdminStore, Message, OutboxOptions, Outcome, PublishError};
use posthaste_relay::{Relay, RelayConfig, Retention};
use posthaste_testkit::MemoryTable;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::broker::Broker;
use super::{MINUTE, SECOND, config, enqueue, start, state, store};

#[tokio::test(start_paused = true)]
async fn with_a_fixed_delay_every_claim_is_followed_by_the_same_wait() {
    let store = store(MemoryTable::default());
    let messages = (0..25).map(|n| Message::new("orders", n.to_string())).collect();
    let options = OutboxOptions::default();
    store.enqueue_and_commit(&options, messages).await.unwrap();
    let broker = Broker::willing();
    let fixed = RelayConfig {
        poll_interval: SECOND * 5,
        fixed_delay: true,
        batch_size: 10,
        ..config()
    };
    let relay = Relay::new(store.clone(), broker.clone()).config(fixed);
    let notifier = relay.notifier();
    let shutdown = CancellationToken::new();
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    for expected in [10, 20, 25] {
        sleep(SECOND).await;
        assert_eq!(broker.tried().len(), expected);
        sleep(SECOND * 3).await;
        notifier.notify();
        assert_eq!(
            broker.tried().len(),
            expected,
            "neither a full batch nor a notifier hurries it"
        );
        sleep(SECOND).await;
    }
    sleep(MINUTE + SECOND).await;
    enqueue(&store, ["late"]).await;
    notifier.notify();
    sleep(SECOND * 3).await;
    assert_eq!(broker.attempts_of("late"), []);
    sleep(SECOND * 2).await;
    let [(at, _)] = broker.attempts_of("late")[..] else {
        panic!("an idle outbox is looked at as often");
    };
    assert!((80_000..80_100).contains(&at), "{at}: every five seconds");
    shutdown.cancel();
    assert_eq!(relay.await.unwrap().unwrap().delivered, 26);
}

#[tokio::test(start_paused = true)]
async fn delivered_rows_are_kept_for_ever_where_that_is_asked_for() {
    let hour = MINUTE * 60;
    for (retention, kept) in [(Retention::Off, true), (Retention::For(hour), false)] {
        let store = store(MemoryTable::default());
        let [id] = enqueue(&store, ["1"]).await;
        let keeping = RelayConfig { retention, ..config() };
        let (shutdown, relay) = start(&store, Broker::willing(), keeping);
        sleep(MINUTE).await;
        assert_eq!(state(&store, id).await, State::Delivered);
        sleep(hour * 2).await;
        assert_eq!(store.show(id).await.unwrap().is_some(), kept);
        shutdown.cancel();
        relay.await.unwrap();
    }
}

/// Throttling of one message holds up no other.
#[tokio::test(start_paused = true)]
async fn a_message_that_is_throttled_alone_waits_alone() {
    let store = store(MemoryTable::default());
    enqueue(&store, ["slow"]).await;
    let mut error = PublishError::throttled(MINUTE * 10, "this order is being changed");
    error.scope = ErrorScope::Message;
    let broker = Broker::new(move |payload, _| match payload {
        "slow" => Outcome::Failed(error.clone()),
        _ => Outcome::DELIVERED,
    });
    let (shutdown, relay) = start(&store, broker.clone(), config());
    sleep(SECOND * 5).await;
    assert_eq!(broker.attempts_of("slow").len(), 1);
    enqueue(&store, ["quick"]).await;
    sleep(SECOND * 10).await;
    assert_eq!(broker.attempts_of("quick").len(), 1, "it does not wait for the other");
    sleep(MINUTE * 11).await;
    assert_eq!(broker.attempts_of("slow").len(), 2);
    shutdown.cancel();
    relay.await.unwrap();
}
