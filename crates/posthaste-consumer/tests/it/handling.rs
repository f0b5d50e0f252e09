//! Events are handled, each once.

use posthaste_consumer::{Consumer, HandlerError, Once, Received};
use posthaste_core::Message;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::FutureRecord;
use sqlx::PgConnection;

use crate::support;
use crate::support::{Running, SOLD, Sale, World, logs, until};

/// The handler of most tests: one effect per event, and a failure for negative numbers.
fn counting(world: &World, once: Once<Sale>) -> Consumer<posthaste_postgres::PostgresInbox> {
    let effects = world.clone();
    world.consumer().on(
        SOLD,
        once,
        async move |tx: &mut PgConnection, event: Received<Sale>| -> Result<(), HandlerError> {
            let key = event.aggregate_id.unwrap_or_default();
            effects.effect(tx, &key, event.payload.n).await?;
            if event.payload.n < 0 {
                return Err(HandlerError::retry("out of stock"));
            }
            Ok(())
        },
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_typed_handler_gets_the_event_as_it_was_enqueued() {
    let Some(world) = World::new(1).await else { return };
    let seen = support::shared(Vec::new());
    let sink = std::sync::Arc::clone(&seen);
    let message = world.sale("7", 3).header("traceparent", "00-1-1-01").tenant("acme");
    world.send(&message, None).await;
    let running = Running::start(world.consumer().on(
        SOLD,
        Once::per_event(),
        async move |_: &mut PgConnection, event: Received<Sale>| {
            sink.lock().unwrap().push(event);
            Ok(())
        },
    ));
    until("the event is handled", async || !seen.lock().unwrap().is_empty()).await;
    assert_eq!(running.stop().await.handled, 1);
    let event = seen.lock().unwrap().remove(0);
    assert_eq!(event.id, message.id.to_string());
    assert_eq!((event.event_type.as_str(), event.payload), (SOLD, Sale { n: 3 }));
    assert_eq!(event.aggregate_type.as_deref(), Some("Order"));
    assert_eq!(event.aggregate_id.as_deref(), Some("7"));
    assert_eq!(event.tenant.as_deref(), Some("acme"));
    assert_eq!(event.headers["traceparent"], "00-1-1-01");
    assert_eq!(event.key.as_deref(), Some(&b"7"[..]));
    assert_eq!(
        (event.topic, event.partition, event.offset),
        (world.topic.clone(), 0, 0)
    );
    assert_eq!(event.attempt, 1);
}

/// Three events say that order 7 is paid; it is sold once. The key stands in the inbox.
///
/// Proves pitfall 20.
#[tokio::test(flavor = "multi_thread")]
async fn an_effect_happens_once_per_aggregate_and_action() {
    let Some(world) = World::new(1).await else { return };
    for (key, n) in [("7", 1), ("7", 2), ("8", 3)] {
        world.send(&world.sale(key, n), Some(0)).await;
    }
    let running = Running::start(counting(&world, Once::per_aggregate("SALES_COUNT_INCREASED")));
    world.until_committed(0, 3).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.duplicates), (2, 1));
    assert_eq!(world.effects().await, [("7".to_owned(), 1), ("8".to_owned(), 3)]);
    assert_eq!(
        world.recorded().await,
        ["Order/7/SALES_COUNT_INCREASED", "Order/8/SALES_COUNT_INCREASED"]
    );
}

/// A duplicate is skipped in silence, but for a DEBUG line with type, id and action.
#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_delivery_is_skipped_with_a_line_for_those_who_look() {
    let Some(world) = World::new(1).await else { return };
    let sale = world.sale("7", 1);
    world.send(&sale, Some(0)).await;
    world.send(&sale, Some(0)).await;
    let running = Running::start(counting(&world, Once::per_event()));
    world.until_committed(0, 2).await;
    running.stop().await;
    assert_eq!(world.effects().await, [("7".to_owned(), 1)]);
    let id = sale.id.to_string();
    let lines = logs::with(&["handled before", &id]);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].contains("DEBUG") && lines[0].contains(SOLD) && lines[0].contains("action=\"event\""),
        "{lines:?}"
    );
    assert_eq!(logs::with(&["WARN", &world.topic]), Vec::<String>::new());
}

/// Views of a product count each, deliveries of a view do not.
///
/// Proves C18.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_views_count_and_repeated_deliveries_do_not() {
    let Some(world) = World::new(1).await else { return };
    let (first, second) = (world.sale("7", 7), world.sale("7", 7));
    for view in [&first, &second, &first] {
        world.send(view, Some(0)).await;
    }
    let views = Once::by(|event: &Received<Sale>| format!("{}_{}", event.payload.n, event.id));
    let running = Running::start(counting(&world, views));
    world.until_committed(0, 3).await;
    running.stop().await;
    assert_eq!(world.effects().await.len(), 2);
    let mut keys = [format!("7_{}", first.id), format!("7_{}", second.id)];
    keys.sort();
    assert_eq!(world.recorded().await, keys);
}

/// A handler that failed left neither effect nor record: the retry handles it.
///
/// Proves pitfall 20.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_fails_leaves_neither_effect_nor_record_and_runs_again() {
    let Some(world) = World::new(1).await else { return };
    world.send(&world.sale("7", 1), Some(0)).await;
    let (effects, attempts) = (world.clone(), support::shared(Vec::new()));
    let seen = std::sync::Arc::clone(&attempts);
    let running = Running::start(world.consumer().on(
        SOLD,
        Once::per_aggregate("SOLD"),
        async move |tx: &mut PgConnection, event: Received<Sale>| {
            effects.effect(tx, "7", event.attempt.into()).await?;
            let recorded = effects.recorded().await;
            seen.lock().unwrap().push((event.attempt, recorded));
            if event.attempt < 3 {
                return Err(HandlerError::retry("not yet"));
            }
            Ok(())
        },
    ));
    world.until_committed(0, 1).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.retried, report.dead_letters), (1, 2, 0));
    assert_eq!(world.effects().await, [("7".to_owned(), 3)]);
    // Seen from outside of the handler's transaction, nothing was recorded before it was over.
    assert_eq!(*attempts.lock().unwrap(), [(1, vec![]), (2, vec![]), (3, vec![])]);
    assert_eq!(world.recorded().await, ["Order/7/SOLD"]);
}

/// A handler that is idempotent by nature runs for every delivery, in a transaction, and is not recorded.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_opts_out_runs_again() {
    let Some(world) = World::new(1).await else { return };
    let sale = world.sale("7", 1);
    world.send(&sale, Some(0)).await;
    world.send(&sale, Some(0)).await;
    let effects = world.clone();
    let running = Running::start(
        world
            .consumer()
            .on_idempotent(SOLD, async move |tx: &mut PgConnection, event: Received<Sale>| {
                Ok(effects.effect(tx, "7", event.payload.n).await?)
            }),
    );
    world.until_committed(0, 2).await;
    assert_eq!(running.stop().await.handled, 2);
    assert_eq!(world.effects().await.len(), 2);
    assert_eq!(world.recorded().await, Vec::<String>::new());
}

/// Events that nobody handles are passed over, or dead-lettered where that was asked for.
#[tokio::test(flavor = "multi_thread")]
async fn events_without_a_handler_are_skipped_or_dead_lettered() {
    let Some(world) = World::new(1).await else { return };
    let other = Message::new(&world.topic, "{}")
        .event_type("acme.order.cancelled.v1")
        .key("7");
    world.send(&other, Some(0)).await;
    world.send(&world.sale("7", 1), Some(0)).await;
    let running = Running::start(counting(&world, Once::per_event()));
    world.until_committed(0, 2).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.skipped, report.dead_letters), (1, 1, 0));

    world.send(&other, Some(0)).await;
    let config = world.config().unhandled(posthaste_consumer::Unhandled::DeadLetter);
    let strict = Consumer::new(config, world.inbox())
        .on_idempotent(SOLD, async |_: &mut PgConnection, _: Received<Sale>| Ok(()));
    let running = Running::start(strict);
    world.until_committed(0, 3).await;
    assert_eq!(running.stop().await.dead_letters, 1);
    assert_eq!(world.length(&world.dead_letter_topic()).await, 1);
}

/// Two events about one order in two partitions, handled in the same moment: one waits for the other, and skips.
///
/// Proves pitfall 20.
#[tokio::test(flavor = "multi_thread")]
async fn an_effect_happens_once_when_two_partitions_ask_for_it_at_the_same_time() {
    let Some(world) = World::new(4).await else { return };
    let orders = (0..50).map(|n: i64| n.to_string());
    let sales: Vec<_> = orders
        .flat_map(|order| (0..4).map(move |partition| (order.clone(), partition)))
        .map(|(order, partition)| (world.sale(&order, 1), partition))
        .collect();
    world.send_all(&sales).await;
    let running = Running::start(counting(&world, Once::per_aggregate("SOLD")));
    for partition in 0..4 {
        world.until_committed(partition, 50).await;
    }
    let report = running.stop().await;
    assert_eq!((report.handled, report.duplicates, report.retried), (50, 150, 0));
    let mut orders: Vec<String> = world.effects().await.into_iter().map(|(order, _)| order).collect();
    orders.sort();
    orders.dedup();
    assert_eq!(orders.len(), 50);
}

/// Two services number their events from 1. Both are heard.
#[tokio::test(flavor = "multi_thread")]
async fn equal_ids_of_two_sources_are_two_events() {
    let Some(world) = World::new(1).await else { return };
    let event = async |source: &str, n: i64| {
        let mut headers = OwnedHeaders::new();
        for (key, value) in [
            ("ce_specversion", "1.0"),
            ("ce_id", "1"),
            ("ce_type", SOLD),
            ("ce_source", source),
        ] {
            headers = headers.insert(Header {
                key,
                value: Some(value),
            });
        }
        let payload = format!("{{\"n\":{n}}}");
        let record = FutureRecord::to(&world.topic).key("a").partition(0).headers(headers);
        world.send_record(record.payload(payload.as_bytes())).await;
    };
    for (source, n) in [("shop", 1), ("donations", 2), ("shop", 1)] {
        event(source, n).await;
    }
    let running = Running::start(counting(&world, Once::per_event()));
    world.until_committed(0, 3).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.duplicates), (2, 1));
    let effects: Vec<i64> = world.effects().await.into_iter().map(|(_, n)| n).collect();
    assert_eq!(effects, [1, 2]);
    assert_eq!(world.recorded().await, ["donations#1", "shop#1"]);
}
