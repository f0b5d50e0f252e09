//! The lane of fresh rows and that of failed ones.

use std::time::Duration;

use posthaste_core::lifecycle::{State, Verdict};
use posthaste_core::store::{AdminStore, Filter};
use posthaste_core::{PublishError, RelayStore};
use posthaste_postgres::{LogLayoutOptions, PostgresLogStore};
use posthaste_relay::{Relay, RelayConfig};
use posthaste_testkit::{Fault, FaultyPublisher, RecordingPublisher, Rule};
use sqlx::Row;
use tokio_util::sync::CancellationToken;

use super::{events, eventually};

use crate::support::log::{Log, Work, dead, request, retry};

/// Proves C4.
#[tokio::test(flavor = "multi_thread")]
async fn the_relay_runs_on_the_tables_as_they_stand_and_leaves_the_log_as_it_was() {
    let log = Log::fresh(4).await;
    let mut appended = Vec::new();
    for order in 0..250 {
        appended.push(log.append(&log.pool, &format!("{}", order % 10)).await);
    }
    let content =
        "select coalesce(string_agg(o::text || o.xmin::text || o.ctid::text, ',' order by id), '') from outbox o";
    let before = log.texts(content).await;
    let broker = RecordingPublisher::new();
    let report = Relay::new(log.store(), broker.clone())
        .config(log.config())
        .drain()
        .await
        .unwrap();
    assert_eq!(report.delivered, 250);
    assert_eq!(events(&broker), appended, "each once, in order");
    assert_eq!(log.cursor().await, 250, "newest wins");
    let moves = log.number("select count(*) from outbox_cursor").await;
    assert!((2..=20).contains(&moves), "appended, and not for every row: {moves}");
    assert_eq!(log.failed().await, 0);
    assert_eq!(log.texts(content).await, before, "rows of the log are never changed");
    let delivery = broker.deliveries().swap_remove(42);
    let message = &delivery.message;
    assert_eq!(
        (message.topic.as_str(), message.ordering_key.as_deref()),
        ("order-events", Some("2"))
    );
    assert_eq!(message.event_type.as_deref(), Some("loopers.order.created.v1"));
    assert_eq!(message.source.as_deref(), Some("commerce-api"));
    assert_eq!(
        (message.aggregate_type.as_deref(), message.aggregate_id.as_deref()),
        (Some("Order"), Some("2"))
    );
    assert_eq!(&message.payload[..], br#"{"orderId": "2"}"#);
    assert_eq!(message.id.number(), Some(43));
    let created: chrono::DateTime<chrono::Utc> = sqlx::query_scalar("select created_at from outbox where id = 43")
        .fetch_one(&log.pool)
        .await
        .unwrap();
    assert_eq!(delivery.created_at, created);
}

/// Proves C5.
#[tokio::test(flavor = "multi_thread")]
async fn the_main_lane_takes_a_hundred_and_failures_go_to_their_table_while_the_cursor_moves_on() {
    let log = Log::fresh(4).await;
    let policy: RelayConfig = serde_json::from_value(log.map.policy().clone().into()).unwrap();
    assert_eq!(
        (policy.poll_interval, policy.batch_size),
        (Duration::from_millis(500), 100)
    );
    assert_eq!(policy.publish_timeout, Duration::from_secs(30));
    for order in 0..150 {
        log.append(&log.pool, &order.to_string()).await;
    }
    let store = log.store();
    let first = Work::claim(&store, &request(100)).await;
    assert_eq!(first.claim.messages.len(), 100);
    let second = Work::claim(&store, &request(100)).await;
    assert_eq!(
        second.claim.messages.len(),
        50,
        "what is in flight is not claimed twice"
    );
    assert_eq!(first.settle(&store, &[(7, retry(1)), (8, dead())]).await, []);
    assert_eq!(second.settle(&store, &[]).await, []);
    store.close().await.unwrap();
    assert_eq!(log.cursor().await, 150);
    let failed =
        log.texts("select aggregate_id || ' ' || retry_count || ' ' || last_error from outbox_failed order by id");
    assert_eq!(failed.await, ["7 0 the broker said no", "8 10 too large"]);
    let copied =
        "select count(*) from outbox_failed f join outbox o using (event_id, event_type, source, aggregate_type,
        aggregate_id, payload)";
    assert_eq!(log.number(copied).await, 2, "all that a retry needs");
}

/// Proves C5.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_attempted_is_not_skipped() {
    let log = Log::fresh(4).await;
    for order in 0..20 {
        log.append(&log.pool, &order.to_string()).await;
    }
    let store = log.store();
    let work = Work::claim(&store, &request(20)).await;
    let postponed = Verdict::Postponed {
        delay: Duration::from_millis(200),
        error: "away".to_owned(),
    };
    let mut but = vec![(10, postponed)];
    but.extend((11..20).map(|place| (place, Verdict::Released)));
    assert_eq!(work.settle(&store, &but).await, []);
    let again = Work::claim(&store, &request(20)).await;
    assert_eq!(again.claim.messages.len(), 9, "all but the one that waits, and at once");
    again.settle(&store, &[]).await;
    store.close().await.unwrap();
    assert_eq!(
        log.cursor().await,
        10,
        "the cursor stands before what was not attempted"
    );
    assert_eq!(log.failed().await, 0, "and no attempt was used up");
    drop(store);
    let successor = log.store();
    eventually("a successor begins there", async || {
        !Work::claim(&successor, &request(1)).await.claim.messages.is_empty()
    })
    .await;
}

/// Proves C5.
#[tokio::test(flavor = "multi_thread")]
async fn a_circuit_that_opens_in_the_middle_of_a_batch_costs_nothing_but_time() {
    let log = Log::fresh(4).await;
    let mut appended = Vec::new();
    for order in 0..40 {
        appended.push(log.append(&log.pool, &order.to_string()).await);
    }
    let broker = FaultyPublisher::new(RecordingPublisher::new());
    broker.inject(
        Rule::new(Fault::transport())
            .when(|message| message.id.number().is_some_and(|id| id > 20))
            .times(12),
    );
    let mut config = log.config();
    config.breaker.open_for = Duration::from_millis(100);
    config.retry.backoff = posthaste_core::Backoff::Schedule {
        delays: vec![Duration::from_millis(50)],
    };
    let stop = CancellationToken::new();
    let relay = Relay::new(log.store(), broker.clone()).config(config);
    let running = tokio::spawn(relay.run_until(stop.clone()));
    eventually("all are delivered", async || {
        broker.inner().first_deliveries().len() >= 40
    })
    .await;
    stop.cancel();
    running.await.unwrap().unwrap();
    let mut delivered = events(broker.inner());
    delivered.sort();
    delivered.dedup();
    appended.sort();
    assert_eq!(delivered, appended);
    assert_eq!((log.cursor().await, log.failed().await), (40, 0));
}

/// Proves C7.
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_row_is_retried_with_growing_waits_until_it_is_left_to_an_operator() {
    let log = Log::fresh(4).await;
    let event = log.append(&log.pool, "1").await;
    let policy: RelayConfig = serde_json::from_value(log.map.policy().clone().into()).unwrap();
    let store = log.store();
    let mut waits = Vec::new();
    for attempt in 1..=11_u32 {
        let work = Work::claim(&store, &request(10)).await;
        assert_eq!(work.events(), std::slice::from_ref(&event), "attempt {attempt}");
        assert_eq!(work.claim.messages[0].attempts, attempt);
        let failure = posthaste_core::Outcome::Failed(PublishError::transient("no"));
        let verdict = posthaste_core::lifecycle::decide(failure, attempt, &policy.retry, None, 0.5);
        work.settle(&store, &[(0, verdict)]).await;
        let row = sqlx::query(
            "select retry_count, round(extract(epoch from next_retry_at - now()))::bigint as wait from outbox_failed",
        );
        let row = row.fetch_one(&log.pool).await.unwrap();
        waits.push(row.get::<i64, _>("wait"));
        assert_eq!(row.get::<i32, _>("retry_count"), i32::try_from(attempt - 1).unwrap());
        // A shorter wait may be over before a slow machine has looked.
        if attempt > 5 {
            let early = Work::claim(&store, &request(10)).await;
            assert!(early.events().is_empty(), "not before its time");
        }
        log.make_due().await;
    }
    for (wait, expected) in waits.into_iter().zip([1, 2, 4, 8, 16, 32, 64, 128, 256, 300]) {
        assert!((expected - 10..=expected).contains(&wait), "{wait} of {expected} s");
    }
    assert!(
        Work::claim(&store, &request(10)).await.events().is_empty(),
        "at ten it stays"
    );
    let filter = Filter {
        state: Some(State::Dead),
        ..Filter::default()
    };
    let listed = store.list(&filter, None, 10).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].attempts, listed[0].message.effective_event_id().into_owned()),
        (11, event)
    );
    assert!(
        listed[0]
            .last_error
            .as_deref()
            .is_some_and(|error| error.contains("gave up after 11 attempts"))
    );
}

/// Proves C7.
#[tokio::test(flavor = "multi_thread")]
async fn the_retry_lane_takes_fifty_every_five_seconds_and_deletes_what_succeeds() {
    let log = Log::fresh(4).await;
    let options = LogLayoutOptions::of(&log.map);
    assert_eq!(
        (options.retry_interval, options.retry_batch, options.max_retries),
        (Duration::from_secs(5), 50, 10)
    );
    for order in 0..120 {
        log.append(&log.pool, &order.to_string()).await;
    }
    let store = PostgresLogStore::new(log.pool.clone(), log.map.clone()).unwrap();
    let work = Work::claim(&store, &request(200)).await;
    let all: Vec<_> = (0..120).map(|place| (place, retry(0))).collect();
    work.settle(&store, &all).await;
    assert!(
        Work::claim(&store, &request(200)).await.events().is_empty(),
        "looked at when the log was claimed"
    );
    store.close().await.unwrap();
    let store = log.store();
    let work = Work::claim(&store, &request(200)).await;
    assert_eq!(work.events().len(), 50);
    work.settle(&store, &[(0, retry(60)), (1, Verdict::Released)]).await;
    assert_eq!(log.failed().await, 72, "48 of 120 were delivered");
    assert_eq!(Work::claim(&store, &request(200)).await.events().len(), 50);
}
