//! What is removed, and what an operator sees.

use std::time::Duration;

use posthaste_core::RelayStore;
use posthaste_core::lifecycle::State;
use posthaste_core::store::{AdminStore, Filter, PurgeRequest};
use posthaste_postgres::{LogLayoutOptions, PostgresLogStore};
use posthaste_relay::{Relay, RelayConfig};
use posthaste_testkit::RecordingPublisher;
use tokio_util::sync::CancellationToken;

use crate::support::log::{Log, Work, dead, request, retry};

/// Proves C16.
#[tokio::test(flavor = "multi_thread")]
async fn old_cursor_rows_are_removed_in_batches_but_never_the_newest() {
    let log = Log::fresh(2).await;
    log.run(
        "insert into outbox_cursor (last_processed_id, created_at)
         select n, now() - interval '30 days' + n * interval '1 minute' from generate_series(1, 2500) n",
    )
    .await;
    log.run("delete from outbox_cursor where last_processed_id = 0").await;
    let store = log.store();
    let keep = Duration::from_hours(7 * 24);
    assert_eq!(
        store
            .purge(&PurgeRequest::older_than(keep, 1_000))
            .await
            .unwrap()
            .rows(),
        1_000
    );
    assert_eq!(
        store
            .purge(&PurgeRequest::older_than(keep, 1_000))
            .await
            .unwrap()
            .rows(),
        1_000
    );
    assert_eq!(
        store
            .purge(&PurgeRequest::older_than(keep, 1_000))
            .await
            .unwrap()
            .rows(),
        499,
        "all are old, and the newest is kept"
    );
    assert_eq!(log.cursor().await, 2_500);
    log.run("insert into outbox_cursor (last_processed_id, created_at) values (2501, now() - interval '6 days')")
        .await;
    assert_eq!(
        store
            .purge(&PurgeRequest::older_than(keep, 1_000))
            .await
            .unwrap()
            .rows(),
        1,
        "young rows stay"
    );
    assert_eq!(log.number("select count(*) from outbox_cursor").await, 1);
    assert_eq!(log.number("select count(*) from outbox").await, 0);
}

/// The relay that reads does so by itself, after seven days, and touches nothing else.
///
/// Proves C16.
#[tokio::test(flavor = "multi_thread")]
async fn the_relay_that_reads_removes_old_cursor_rows_and_the_others_do_not() {
    let log = Log::fresh(6).await;
    log.append(&log.pool, "1").await;
    log.run(
        "insert into outbox_cursor (last_processed_id, created_at)
         select 0, now() - interval '8 days' + n * interval '1 second' from generate_series(1, 2500) n;
         insert into outbox_cursor (last_processed_id, created_at) values (0, now() - interval '6 days')",
    )
    .await;
    let config = RelayConfig {
        janitor_interval: Duration::from_millis(20),
        ..log.config()
    };
    let start = || {
        let (broker, shutdown) = (RecordingPublisher::new(), CancellationToken::new());
        let relay = Relay::new(log.store(), broker.clone()).config(config.clone());
        (broker, shutdown.clone(), tokio::spawn(relay.run_until(shutdown)))
    };
    let relays = [start(), start()];
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    let old = "select count(*) from outbox_cursor where created_at < now() - interval '7 days'";
    while log.number(old).await > 0 || relays.iter().all(|(broker, ..)| broker.ids().is_empty()) {
        assert!(std::time::Instant::now() < deadline, "waited in vain");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for (_, shutdown, relay) in relays {
        shutdown.cancel();
        relay.await.unwrap().unwrap();
    }
    let young = "select count(*) from outbox_cursor where created_at < now() - interval '5 days'";
    assert_eq!(log.number(young).await, 1, "what is six days old stays");
    assert_eq!(
        log.number("select count(*) from outbox").await,
        1,
        "the log is its owner's"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn settled_rows_of_the_log_are_removed_only_where_that_is_asked_for() {
    let log = Log::fresh(4).await;
    for order in 0..5 {
        log.append(&log.pool, &order.to_string()).await;
    }
    let relay = Relay::new(log.store(), RecordingPublisher::new()).config(log.config());
    relay.drain().await.unwrap();
    log.append(&log.pool, "unread").await;
    log.run("update outbox set created_at = now() - interval '8 days'")
        .await;
    let keep = Duration::from_hours(7 * 24);
    log.store().purge(&PurgeRequest::older_than(keep, 100)).await.unwrap();
    assert_eq!(
        log.number("select count(*) from outbox").await,
        6,
        "the log is its owner's"
    );
    let options = LogLayoutOptions::of(&log.map).purge_log(true);
    let purging = PostgresLogStore::with_options(log.pool.clone(), log.map.clone(), options).unwrap();
    purging.purge(&PurgeRequest::older_than(keep, 100)).await.unwrap();
    assert_eq!(log.texts("select aggregate_id from outbox").await, ["unread"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_sees_what_waits_and_what_was_given_up() {
    let log = Log::fresh(4).await;
    for order in 0..6 {
        log.append(&log.pool, &order.to_string()).await;
    }
    let store = log.store();
    let work = Work::claim(&store, &request(3)).await;
    work.settle(&store, &[(0, dead()), (1, retry(60))]).await;
    let stats = store.stats("default").await.unwrap();
    assert_eq!(
        (stats.pending, stats.waiting, stats.processing, stats.dead),
        (4, 1, 0, 1)
    );
    let keys = async |filter: Filter, after, limit| {
        let listed = store.list(&filter, after, limit).await.unwrap();
        listed
            .into_iter()
            .map(|record| record.message.ordering_key.unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(Filter::default(), None, 10).await, ["0", "1", "3", "4", "5"]);
    let page = store.list(&Filter::default(), None, 1).await.unwrap();
    assert_eq!(keys(Filter::default(), Some(page[0].message.id), 2).await, ["1", "3"]);
    let third = store.list(&Filter::default(), None, 3).await.unwrap().pop().unwrap();
    assert_eq!(third.state, State::Pending);
    assert_eq!(keys(Filter::default(), Some(third.message.id), 9).await, ["4", "5"]);
    let dead_only = Filter {
        state: Some(State::Dead),
        ..Filter::default()
    };
    assert_eq!(keys(dead_only.clone(), None, 9).await, ["0"]);
    let topic = Filter {
        topic: Some("payment-events".to_owned()),
        ..Filter::default()
    };
    assert!(keys(topic.clone(), None, 9).await.is_empty());
    assert_eq!(store.show(3.into()).await.unwrap().unwrap().state, State::Delivered);
    assert!(store.show(99.into()).await.unwrap().is_none());
    assert!(store.discard(&topic, 9).await.unwrap().is_empty());
    assert_eq!(store.discard(&dead_only, 9).await.unwrap(), [page[0].message.id]);
    assert_eq!(log.failed().await, 1);
}

/// Whoever knows the number of a row is told what became of its event, also where that is another row.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_the_log_is_shown_as_it_stands() {
    let log = Log::fresh(2).await;
    for aggregate in ["delivered", "failed", "dead", "in flight"] {
        log.append(&log.pool, aggregate).await;
    }
    let store = log.store();
    let work = Work::claim(&store, &request(3)).await;
    assert_eq!(work.settle(&store, &[(1, retry(60)), (2, dead())]).await, []);
    let last = Work::claim(&store, &request(1)).await;
    let mut states = Vec::new();
    for id in [work.id(0), work.id(1), work.id(2), last.id(0)] {
        states.push(store.show(id).await.unwrap().unwrap().state);
    }
    let expected = [State::Delivered, State::Pending, State::Dead, State::Processing];
    assert_eq!(states, expected);
}
