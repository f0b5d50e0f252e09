//! Tables that say when a row was claimed, and not for how long.

use posthaste_core::lifecycle::{LeaseToken, State};
use posthaste_core::store::{ClaimRequest, DeadHead, KeyOrdering, RecoverRequest, Scope, WorkerId};
use posthaste_core::{AdminStore, Outcome, RelayStore};
use posthaste_relay::RelayConfig;
use posthaste_testkit::{MemoryLease, MemoryStore, MemoryTable};
use tokio::time::sleep;

use super::broker::Broker;
use super::{LEASE, MINUTE, SECOND, config, drain, enqueue, start, state, states, store};

const LOCKED_AT: MemoryTable = MemoryTable::new().lease(MemoryLease::Since);

/// A worker that claims everything and is never heard of again.
async fn vanish(store: &MemoryStore) {
    let request = ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit: 100,
        max_bytes: 1 << 20,
        scan_limit: None,
        lease: LEASE,
        max_attempts: 5,
        ordering: KeyOrdering::PerKey {
            dead_head: DeadHead::Skip,
            except: Vec::new(),
        },
        scope: Scope::default(),
        left_out: Vec::new(),
        pipelined: false,
    };
    let claim = store.claim(&request).await.unwrap();
    assert!(!claim.messages.is_empty());
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_vanished_worker_are_taken_back_in_time_and_delivered() {
    let store = store(LOCKED_AT);
    let ids = enqueue(&store, ["a1", "a2", "1"]).await;
    vanish(&store).await;
    let broker = Broker::willing();
    let (shutdown, relay) = start(&store, broker.clone(), config());
    sleep(MINUTE * 5).await;
    assert_eq!(
        states(&store, ids).await,
        [State::Processing; 3],
        "not before five minutes are over"
    );
    // Looked for every five minutes: at worst they wait for ten.
    sleep(MINUTE * 5 + SECOND).await;
    shutdown.cancel();
    let report = relay.await.unwrap();
    assert_eq!((report.recovered, report.delivered, report.died), (3, 3, 0));
    assert_eq!(broker.tried().len(), 3);
    assert_eq!(broker.attempts_of("a1")[0].1, 2, "the vanished worker's attempt counts");
}

#[tokio::test(start_paused = true)]
async fn whoever_drains_takes_back_what_is_stalled_first() {
    let store = store(LOCKED_AT);
    enqueue(&store, ["1"]).await;
    vanish(&store).await;
    sleep(MINUTE * 4).await;
    let report = drain(&store, Broker::willing(), config()).await;
    assert_eq!((report.recovered, report.delivered), (0, 0));
    sleep(MINUTE + SECOND).await;
    let report = drain(&store, Broker::willing(), config()).await;
    assert_eq!((report.recovered, report.delivered), (1, 1));
}

/// Proves pitfall 8.
#[tokio::test(start_paused = true)]
async fn a_message_that_kills_its_worker_on_the_last_attempt_ends_dead() {
    let store = store(LOCKED_AT);
    let [id] = enqueue(&store, ["1"]).await;
    for attempt in 1..=5 {
        vanish(&store).await;
        sleep(MINUTE * 5 + SECOND).await;
        let row = store.show(id).await.unwrap().unwrap();
        assert_eq!((row.state, row.attempts), (State::Processing, attempt));
        if attempt < 5 {
            let recovered = store
                .recover(&RecoverRequest {
                    scope: Scope::default(),
                    max_attempts: 5,
                    stalled_after: MINUTE * 5,
                })
                .await
                .unwrap();
            assert_eq!(recovered.pending, [id]);
        }
    }
    let report = drain(&store, Broker::willing(), config()).await;
    assert_eq!((report.recovered, report.died, report.delivered), (0, 1, 0));
    let row = store.show(id).await.unwrap().unwrap();
    assert_eq!(row.state, State::Dead);
    assert!(row.last_error.unwrap().contains("vanished"));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_from_a_worker_that_is_only_slow() {
    let store = store(LOCKED_AT);
    let [id] = enqueue(&store, ["1"]).await;
    let slow = Broker::slow(|_, _| (MINUTE * 25, Outcome::DELIVERED));
    // Renewed every ten minutes, and so never stalled in less than half an hour, though `stalled_after` says five minutes.
    let patient = RelayConfig {
        lease: MINUTE * 30,
        publish_timeout: MINUTE * 30,
        ..config()
    };
    let (shutdown, relay) = start(&store, slow, patient.clone());
    sleep(SECOND).await;
    let (others_shutdown, other) = start(&store, Broker::willing(), patient);
    sleep(MINUTE * 26).await;
    assert_eq!(state(&store, id).await, State::Delivered);
    others_shutdown.cancel();
    let report = other.await.unwrap();
    assert_eq!((report.recovered, report.delivered), (0, 0));
    shutdown.cancel();
    assert_eq!(relay.await.unwrap().delivered, 1);
}

#[tokio::test(start_paused = true)]
async fn a_relay_takes_back_only_what_it_serves() {
    let store = store(LOCKED_AT);
    let [id] = enqueue(&store, ["1"]).await;
    vanish(&store).await;
    sleep(MINUTE * 6).await;
    let mut elsewhere = config();
    elsewhere.scope.topics = vec!["payments".to_owned()];
    assert_eq!(drain(&store, Broker::willing(), elsewhere).await.recovered, 0);
    assert_eq!(state(&store, id).await, State::Processing);
}
