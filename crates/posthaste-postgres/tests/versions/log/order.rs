//! The order within an aggregate, and what stops it.

use std::time::Duration;

use posthaste_core::RelayStore;
use posthaste_core::lifecycle::Verdict;
use posthaste_core::store::{AdminStore, ClaimRequest, DeadHead, Filter, KeyOrdering};
use posthaste_postgres::{LogLayoutOptions, PostgresLogStore};
use posthaste_relay::Relay;
use posthaste_testkit::{FaultyPublisher, RecordingPublisher};
use tokio_util::sync::CancellationToken;

use super::{events, eventually};

use crate::support::log::{Log, Work, dead, request, retry};

/// Proves C10.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_failure_later_events_of_the_aggregate_wait_and_others_do_not() {
    let log = Log::fresh(4).await;
    let mut appended = Vec::new();
    for n in 0..30 {
        appended.push(log.append(&log.pool, ["a", "b", "c"][n % 3]).await);
    }
    let store = log.store();
    let work = Work::claim(&store, &request(6)).await;
    assert_eq!(work.keys(), ["a", "b", "c", "a", "b", "c"]);
    // The publisher stops the lane of what failed.
    work.settle(&store, &[(0, retry(60)), (3, Verdict::Released)]).await;
    let rest = Work::claim(&store, &request(100)).await;
    assert_eq!(rest.keys(), ["b", "c"].repeat(8), "nothing of a");
    rest.settle(&store, &[]).await;
    let parked = log.texts("select event_id from outbox_failed order by id").await;
    let of_a: Vec<String> = appended.iter().step_by(3).cloned().collect();
    assert_eq!(parked, of_a, "in order, each once");
    log.append(&log.pool, "a").await;
    assert!(Work::claim(&store, &request(100)).await.events().is_empty());
    assert_eq!(log.failed().await, 11);
    log.make_due().await;
    let head = Work::claim(&store, &request(100)).await;
    assert_eq!(head.events(), of_a[..1], "what failed goes alone");
    assert!(
        Work::claim(&store, &request(100)).await.events().is_empty(),
        "its followers wait for it"
    );
    head.settle(&store, &[]).await;
    let followers = Work::claim(&store, &request(100)).await;
    assert_eq!(
        followers.events()[..9],
        of_a[1..],
        "then the run of those that only waited"
    );
    followers.settle(&store, &[]).await;
    store.close().await.unwrap();
    assert_eq!((log.cursor().await, log.failed().await), (31, 0));
    let event = log.append(&log.pool, "a").await;
    let again = log.store();
    assert_eq!(
        Work::claim(&again, &request(100)).await.events(),
        [event],
        "the aggregate is free"
    );
}

/// Proves C10.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_whose_broker_fails_now_and_then_keeps_the_order_of_every_aggregate() {
    let log = Log::fresh(4).await;
    let mut appended = Vec::new();
    for n in 0..400 {
        appended.push(log.append(&log.pool, &(n % 7).to_string()).await);
    }
    let broker = FaultyPublisher::new(RecordingPublisher::new());
    broker.fail_while(|_| rand::random_bool(0.05));
    let mut config = log.config();
    config.retry.max_attempts = 1_000;
    config.retry.backoff = posthaste_core::Backoff::Schedule {
        delays: vec![Duration::from_millis(5)],
    };
    let options = LogLayoutOptions::of(&log.map)
        .retry_interval(Duration::ZERO)
        .max_retries(999);
    let store = PostgresLogStore::with_options(log.pool.clone(), log.map.clone(), options).unwrap();
    let stop = CancellationToken::new();
    let running = tokio::spawn(Relay::new(store, broker.clone()).config(config).run_until(stop.clone()));
    eventually("all are delivered", async || broker.inner().deliveries().len() >= 400).await;
    stop.cancel();
    running.await.unwrap().unwrap();
    let delivered = events(broker.inner());
    for key in 0..7 {
        let in_order: Vec<_> = appended.iter().skip(key).step_by(7).collect();
        let as_delivered: Vec<_> = delivered.iter().filter(|event| in_order.contains(event)).collect();
        assert_eq!(as_delivered, in_order, "aggregate {key}");
    }
    assert_eq!(log.failed().await, 0);
}

/// Proves C10.
#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_was_given_up_is_skipped_or_blocks_by_policy() {
    let log = Log::fresh(4).await;
    for _ in 0..3 {
        log.append(&log.pool, "a").await;
    }
    let store = log.store();
    let work = Work::claim(&store, &request(10)).await;
    work.settle(&store, &[(0, dead()), (1, Verdict::Released), (2, Verdict::Released)])
        .await;
    let blocking = ClaimRequest {
        ordering: KeyOrdering::PerKey {
            dead_head: DeadHead::Block,
            except: Vec::new(),
        },
        ..request(10)
    };
    assert!(Work::claim(&store, &blocking).await.events().is_empty());
    assert_eq!(log.failed().await, 3, "parked behind the dead one");
    let excepted = ClaimRequest {
        ordering: KeyOrdering::PerKey {
            dead_head: DeadHead::Block,
            except: vec!["order-events".to_owned()],
        },
        ..request(10)
    };
    let passed = Work::claim(&store, &excepted).await;
    assert_eq!(passed.keys().len(), 2, "this topic has the other policy");
    passed
        .settle(&store, &[(0, Verdict::Released), (1, Verdict::Released)])
        .await;
    let dead_row = log
        .texts("select event_id from outbox_failed where retry_count >= 10")
        .await;
    let filter = Filter {
        ids: vec![dead_row[0].parse().unwrap()],
        ..Filter::default()
    };
    assert_eq!(store.replay(&filter, 10).await.unwrap().len(), 1);
    assert!(
        store.replay(&filter, 10).await.unwrap().is_empty(),
        "of two operators one gets it"
    );
    let head = Work::claim(&store, &blocking).await;
    assert_eq!(head.events(), dead_row);
    head.settle(&store, &[]).await;
    assert_eq!(Work::claim(&store, &blocking).await.keys().len(), 2);
}

/// A type name that gives no topic cannot be published; it must not hold up the log.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_without_a_topic_is_given_up_and_the_rest_goes_on() {
    let log = Log::fresh(4).await;
    log.append(&log.pool, "1").await;
    log.run("update outbox set event_type = 'OrderCreated'").await;
    log.append(&log.pool, "2").await;
    let broker = RecordingPublisher::new();
    Relay::new(log.store(), broker.clone())
        .config(log.config())
        .drain()
        .await
        .unwrap();
    assert_eq!(broker.deliveries().len(), 1);
    let error = log
        .texts("select last_error from outbox_failed where retry_count = 10")
        .await;
    assert!(error[0].contains("OrderCreated"), "{error:?}");
    assert_eq!(log.cursor().await, 2);
}
