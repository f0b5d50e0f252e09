//! An order service's outbox: no lease, no count of attempts.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use posthaste_core::lifecycle::State;
use posthaste_core::publisher::{Batch, Outcome, Publisher, Report};
use posthaste_core::store::{Filter, PurgeRequest};
use posthaste_core::{AdminStore, Message, PublishError, RelayStore};
use posthaste_relay::{Relay, RelayConfig, Retention};
use posthaste_testkit::{FaultyPublisher, RecordingPublisher};
use tokio_util::sync::CancellationToken;

use super::place::{Place, eventually};

/// What the application writes itself, oldest first.
async fn orders(place: &Place, count: u32) {
    place
        .run(&format!(
            "insert into outbox (id, aggregate_type, aggregate_id, event_type, payload, status, created_at)
             select gen_random_uuid(), 'Order', gen_random_uuid(), 'OrderCreated', '{{\"n\": ' || n || '}}', 'NEW',
                (now() at time zone 'UTC') - interval '1 hour' + n * interval '1 second'
             from generate_series(1, {count}) n"
        ))
        .await;
}

/// Proves A1, A3.
#[tokio::test(flavor = "multi_thread")]
async fn ten_at_a_time_oldest_first_every_five_seconds() {
    let place = Place::builtin("order-service", 3).await;
    orders(&place, 12).await;
    let config = place.policy();
    assert_eq!((config.batch_size, config.poll_interval), (10, Duration::from_secs(5)));
    let (broker, shutdown) = (RecordingPublisher::new(), CancellationToken::new());
    let relay = tokio::spawn(
        Relay::new(place.store.clone(), broker.clone())
            .config(config)
            .run_until(shutdown.clone()),
    );
    broker.wait_for(10).await;
    let start = Instant::now();
    assert_eq!(broker.ids().len(), 10, "no more than ten");
    broker.wait_for(12).await;
    assert!(
        start.elapsed() > Duration::from_secs(4),
        "a fixed delay lies between: {:?}",
        start.elapsed()
    );
    shutdown.cancel();
    relay.await.unwrap().unwrap();

    let payloads: Vec<_> = broker.deliveries().into_iter().map(|d| d.message.payload).collect();
    let expected: Vec<_> = (1..=12).map(|n| format!("{{\"n\": {n}}}")).collect();
    assert_eq!(payloads, expected, "oldest first");
    let delivery = &broker.deliveries()[0].message;
    assert_eq!(delivery.topic, "order-events");
    assert_eq!(delivery.ordering_key, delivery.aggregate_id);
    let sent = "select count(*)::text from outbox where status = 'SENT' and sent_at between
        (now() at time zone 'UTC') - interval '1 minute' and now() at time zone 'UTC'";
    assert_eq!(place.text(sent).await, "12");
    place.dispose().await;
}

/// Fails every message of one payload, and remembers when.
#[derive(Clone, Default)]
struct Refusing(Arc<Mutex<Vec<(Instant, u32)>>>);

#[async_trait]
impl Publisher for Refusing {
    async fn publish(&self, batch: Batch, report: Report) {
        for delivery in &batch.deliveries {
            let bad = delivery.message.payload.as_ref() == b"{\"n\": 2}";
            if bad {
                let mut attempts = self.0.lock().unwrap();
                attempts.push((Instant::now(), delivery.attempt));
            }
            let outcome = if bad {
                Outcome::Failed(PublishError::transient(format!("try {}", delivery.attempt)))
            } else {
                Outcome::DELIVERED
            };
            report.outcome(delivery.message.id, outcome);
        }
    }

    fn name(&self) -> &'static str {
        "refusing"
    }
}

/// Proves A6.
#[tokio::test(flavor = "multi_thread")]
async fn five_attempts_with_growing_waits_and_then_it_has_failed() {
    let place = Place::builtin("order-service", 2).await;
    orders(&place, 3).await;
    let broker = Refusing::default();
    let report = Relay::new(place.store.clone(), broker.clone())
        .config(place.policy())
        .drain()
        .await;
    let report = report.unwrap();
    assert_eq!((report.delivered, report.died), (2, 1));
    let attempts = broker.0.lock().unwrap().clone();
    assert_eq!(
        attempts.iter().map(|(_, attempt)| *attempt).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5]
    );
    for (pair, wait) in attempts.windows(2).zip([100, 200, 400, 800]) {
        let waited = pair[1].0 - pair[0].0;
        assert!(
            waited >= Duration::from_millis(wait),
            "{waited:?} is less than {wait} ms"
        );
    }
    let failed = "select status || ': ' || error_message from outbox where payload = '{\"n\": 2}'";
    let failed = place.text(failed).await;
    assert!(failed.starts_with("FAILED: ") && failed.contains("try 5"), "{failed}");
    let report = Relay::new(place.store.clone(), broker.clone())
        .config(place.policy())
        .drain()
        .await;
    assert_eq!(
        report.unwrap(),
        posthaste_relay::RelayReport::default(),
        "nothing is retried forever"
    );
    place.dispose().await;
}

/// Proves A7.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_makes_failed_rows_new_again() {
    let place = Place::builtin("order-service", 2).await;
    orders(&place, 4).await;
    place
        .run("update outbox set status = 'FAILED', error_message = 'x'")
        .await;
    let dead = Filter {
        state: Some(State::Dead),
        ..Filter::default()
    };
    let rows = place.store.list(&dead, None, 10).await.unwrap();
    assert_eq!(rows.len(), 4);
    let one = Filter {
        ids: vec![rows[2].message.id],
        ..Filter::default()
    };
    assert_eq!(place.store.replay(&one, 10).await.unwrap(), one.ids);
    assert_eq!(place.store.replay(&one, 10).await.unwrap(), [], "once");
    assert_eq!(
        place.text("select payload from outbox where status = 'NEW'").await,
        "{\"n\": 3}"
    );
    let key = Filter {
        ordering_key: rows[0].message.ordering_key.as_deref().map(str::to_owned),
        ..Filter::default()
    };
    assert_eq!(
        place.store.replay(&key, 10).await.unwrap(),
        [rows[0].message.id],
        "by filter"
    );
    assert_eq!(
        place.store.replay(&Filter::default(), 10).await.unwrap().len(),
        2,
        "or all"
    );
    assert_eq!(place.store.stats("any").await.unwrap().pending, 4);
    place.dispose().await;
}

/// Proves A8.
#[tokio::test(flavor = "multi_thread")]
async fn sent_rows_are_kept_and_only_old_ones_are_removed_if_that_is_wished() {
    let place = Place::builtin("order-service", 3).await;
    orders(&place, 4).await;
    place
        .run(
            "update outbox set created_at = created_at - interval '90 days';
             update outbox set status = 'SENT', sent_at = (now() at time zone 'UTC') - interval '31 days'
                where payload = '{\"n\": 1}';
             update outbox set status = 'SENT', sent_at = (now() at time zone 'UTC') - interval '29 days'
                where payload = '{\"n\": 2}';
             update outbox set status = 'FAILED' where payload = '{\"n\": 3}'",
        )
        .await;
    assert_eq!(place.policy().retention, Retention::Off, "not unless it is wished");
    let shutdown = CancellationToken::new();
    let broker = FaultyPublisher::new(RecordingPublisher::new());
    broker.hang(); // the fourth row stays unsent
    let config = RelayConfig {
        retention: Retention::ON,
        janitor_interval: Duration::from_millis(20),
        publish_timeout: Duration::from_mins(2),
        shutdown_grace: Duration::from_millis(10),
        ..place.policy()
    };
    let relay = tokio::spawn(
        Relay::new(place.store.clone(), broker)
            .config(config)
            .run_until(shutdown.clone()),
    );
    let rows = "select payload from outbox order by created_at";
    eventually("the old row to go", async || place.texts(rows).await.len() == 3).await;
    shutdown.cancel();
    relay.await.unwrap().unwrap();
    let left: Vec<_> = place.texts(rows).await.into_iter().flatten().collect();
    assert_eq!(left, ["{\"n\": 2}", "{\"n\": 3}", "{\"n\": 4}"]);
    assert_eq!(
        place
            .store
            .purge(&PurgeRequest::older_than(Duration::ZERO, 100))
            .await
            .unwrap()
            .rows(),
        1,
        "never an unsent row"
    );
    assert_eq!(place.texts(rows).await.len(), 2);
    place.dispose().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_library_writes_what_the_table_has() {
    let place = Place::builtin("order-service", 2).await;
    let id = uuid::Uuid::new_v4().to_string();
    let message = Message::new("order-events", "{}")
        .aggregate("Order", &id)
        .event_type("OrderCreated");
    place.enqueue(vec![message.clone()]).await.unwrap();
    let row = "select concat_ws(' ', id, aggregate_type, aggregate_id, event_type, payload, status, sent_at,
        created_at between (now() at time zone 'UTC') - interval '1 minute' and now() at time zone 'UTC') from outbox";
    assert_eq!(
        place.text(row).await,
        format!("{} Order {id} OrderCreated {{}} NEW t", message.id)
    );
    let error = place
        .enqueue(vec![message.header("a", "b")])
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("headers") && error.contains("column"), "{error}");
    place.dispose().await;
}
