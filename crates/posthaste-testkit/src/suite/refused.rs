//! A verdict that the database refuses to write: its neighbours go on, and its message is not published again and again.

use posthaste_core::lifecycle::State;
use posthaste_core::{Message, MessageId};
use posthaste_relay::{Relay, RelayConfig, RelayError};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::engine::{SHORT_LEASE_AND_MORE, broker, config, eventually, short};
use super::steps::{LEASE_AND_MORE, MINUTE, enqueue_new, keyed, plain, state};
use crate::backend::Backend;
use crate::{Fault, FaultyStore, RecordingPublisher, Rule};

fn many(count: usize) -> Vec<Message> {
    (0..count).map(|n| plain(&n.to_string())).collect()
}

fn start<B: Backend>(
    store: &FaultyStore<B::Store>,
    publisher: impl posthaste_core::Publisher,
    config: RelayConfig,
) -> (CancellationToken, JoinHandle<posthaste_relay::RelayReport>) {
    let shutdown = CancellationToken::new();
    let running = Relay::new(store.clone(), publisher)
        .config(config)
        .run_until(shutdown.clone());
    (shutdown, tokio::spawn(async { running.await.expect("the relay runs") }))
}

async fn until_delivered<B: Backend>(b: &B, ids: &[MessageId]) {
    eventually("the deliveries to be written", async || {
        for id in ids {
            if state(b, *id).await != State::Delivered {
                return false;
            }
        }
        true
    })
    .await;
}

/// Proves pitfall 19.
pub async fn a_refused_verdict_stops_no_other_and_its_message_is_published_once<B: Backend>(b: &B) {
    let ids = enqueue_new(b, many(100)).await;
    let store = FaultyStore::new(b.store().clone());
    store.refuse([ids[37]]);
    let broker = RecordingPublisher::new();
    let (shutdown, relay) = start::<B>(&store, broker.clone(), short());
    let others: Vec<_> = ids.iter().copied().filter(|id| *id != ids[37]).collect();
    until_delivered(b, &others).await;
    let later = enqueue_new(b, many(50)).await;
    until_delivered(b, &later).await;
    // Its lease would be over by now.
    sleep(SHORT_LEASE_AND_MORE).await;
    assert_ne!(state(b, ids[37]).await, State::Delivered);
    store.allow_all();
    until_delivered(b, &ids[37..=37]).await;
    shutdown.cancel();
    let report = relay.await.expect("the relay does not panic");
    assert_eq!((report.delivered, report.refused, report.lease_lost), (150, 0, 0));
    let all: Vec<_> = ids.into_iter().chain(later).collect();
    broker.assert_delivered_once(&all);
}

/// The database took the verdict on nothing, so it is not told that anything was delivered; but nothing is repeated
/// either.
pub async fn a_drain_ends_with_an_error_if_a_verdict_is_refused<B: Backend>(b: &B) {
    let ids = enqueue_new(b, many(20)).await;
    let store = FaultyStore::new(b.store().clone());
    store.refuse([ids[3]]);
    let broker = RecordingPublisher::new();
    let relay = Relay::new(store.clone(), broker.clone()).config(config());
    let drained = timeout(MINUTE, relay.drain()).await.expect("the drain ends");
    let Err(RelayError::Unsettled { report }) = drained else {
        panic!("{drained:?}")
    };
    assert_eq!((report.delivered, report.refused, report.undelivered), (19, 1, 1));
    broker.assert_delivered_once(&ids);

    store.allow_all();
    b.pass_time(LEASE_AND_MORE).await;
    let relay = Relay::new(store, broker.clone()).config(config());
    let report = timeout(MINUTE, relay.drain()).await.expect("the drain ends");
    assert_eq!(report.expect("all is well").undelivered, 0);
    let times = broker.ids().iter().filter(|id| **id == ids[3]).count();
    assert_eq!((times, state(b, ids[3]).await), (2, State::Delivered));
}

/// Proves pitfall 5.
pub async fn a_failure_whose_verdict_is_refused_is_not_overtaken<B: Backend>(b: &B) {
    let messages = [keyed("k", "1"), keyed("k", "2"), keyed("other", "3")];
    let ids = enqueue_new(b, messages.clone()).await;
    let store = FaultyStore::new(b.store().clone());
    store.refuse([ids[0]]);
    let broker = broker();
    broker.inject(Rule::new(Fault::transient()).on([ids[0]]).times(1));
    let (shutdown, relay) = start::<B>(&store, broker.clone(), short());
    until_delivered(b, &ids[2..]).await;
    sleep(SHORT_LEASE_AND_MORE).await;
    assert_eq!(broker.inner().ids(), ids[2..], "its key waits");
    store.allow_all();
    until_delivered(b, &ids).await;
    shutdown.cancel();
    relay.await.expect("the relay does not panic");
    broker.inner().assert_delivered_once(&ids);
    broker.inner().assert_order_per_key(&messages);
}

/// If nothing can be written, what is published is published for nothing, and will be published again by the next relay.
pub async fn while_every_verdict_is_refused_little_is_published<B: Backend>(b: &B) {
    let ids = enqueue_new(b, many(200)).await;
    let store = FaultyStore::new(b.store().clone());
    store.refuse_all();
    let broker = RecordingPublisher::new();
    let bounded = RelayConfig {
        batch_size: 10,
        max_in_flight: 20,
        ..short()
    };
    let (shutdown, relay) = start::<B>(&store, broker.clone(), bounded);
    eventually("the first refusals", async || store.refusals() > 0).await;
    sleep(SHORT_LEASE_AND_MORE).await;
    let published = broker.ids().len();
    // What was in flight when the first was refused, a batch that was being claimed, and one for each wait.
    assert!(published <= 40, "{published} were published");
    store.allow_all();
    until_delivered(b, &ids).await;
    shutdown.cancel();
    let report = relay.await.expect("the relay does not panic");
    assert_eq!(report.refused, 0);
    broker.assert_delivered_once(&ids);
}
