//! One consumer with everything that it is for.

use std::sync::Arc;

use posthaste_consumer::{Consumer, HandlerError, Once, Received};
use posthaste_core::Message;
use posthaste_kafka::dead_letter::DeadLetter;
use rdkafka::Message as _;
use sqlx::PgConnection;

use crate::support;
use crate::support::{Running, SOLD, Sale, World, logs};

const LIKED: &str = "acme.like.created.v1";

/// - Order 7 is paid by two events and delivered thrice: sold once, the others skipped with a DEBUG line.
/// - Order 8 fails twice before it works: what its failed attempts wrote is gone, and so is their record.
/// - Order 9 always fails: after three attempts it lies in the dead-letter topic with the error in its headers, unrecorded.
/// - A like is idempotent by nature: it runs for every delivery and is not recorded.
/// - While any of it is handled, no offset past it is committed; afterwards all of them are, by hand.
///
/// Proves C14.
#[tokio::test(flavor = "multi_thread")]
async fn events_take_effect_once_per_aggregate_and_action_and_failures_are_dead_lettered() {
    let Some(world) = World::new(1).await else { return };
    let like = Message::json(&world.topic, &Sale { n: 50 })
        .unwrap()
        .event_type(LIKED)
        .key("x");
    let (seven, again) = (world.sale("7", 1), world.sale("7", 2));
    let records = [
        &seven,
        &again,
        &seven,
        &world.sale("8", 3),
        &world.sale("9", -1),
        &like,
        &like,
    ];
    let records: Vec<_> = records.into_iter().map(|message| (message.clone(), 0)).collect();
    world.send_all(&records).await;

    let config = world.config().max_poll_records(3);
    let offsets = support::shared(Vec::new());
    let (effects, sink) = (world.clone(), Arc::clone(&offsets));
    let sold = async move |tx: &mut PgConnection, event: Received<Sale>| {
        let committed = effects.committed(0).await.unwrap_or_default();
        sink.lock().unwrap().push((event.offset, committed));
        let order = event.aggregate_id.unwrap_or_default();
        effects.effect(tx, &order, event.payload.n).await?;
        match (order.as_str(), event.attempt) {
            ("9", _) | ("8", 1 | 2) => Err(HandlerError::retry("out of stock")),
            _ => Ok(()),
        }
    };
    let effects = world.clone();
    let liked = async move |tx: &mut PgConnection, event: Received<Sale>| {
        Ok(effects.effect(tx, "like", event.payload.n).await?)
    };
    let running = Running::start(
        Consumer::new(config, world.inbox())
            .on(SOLD, Once::per_aggregate("SALES_COUNT_INCREASED"), sold)
            .on_idempotent(LIKED, liked),
    );
    world.until_committed(0, 7).await;
    let report = running.stop().await;

    let named = |name: &str, n| (name.to_owned(), n);
    assert_eq!(
        world.effects().await,
        [named("7", 1), named("8", 3), named("like", 50), named("like", 50)]
    );
    assert_eq!(
        world.recorded().await,
        ["Order/7/SALES_COUNT_INCREASED", "Order/8/SALES_COUNT_INCREASED"]
    );
    assert_eq!((report.handled, report.duplicates, report.dead_letters), (4, 2, 1));
    let skipped = |id: &str| logs::with(&["DEBUG", "handled before", id, SOLD, "SALES_COUNT_INCREASED"]).len();
    assert_eq!((skipped(&seven.id.to_string()), skipped(&again.id.to_string())), (1, 1));
    let dead = world.read(&world.dead_letter_topic(), 1).await.remove(0);
    let letter = DeadLetter::read(dead.headers().unwrap()).unwrap();
    assert_eq!(
        (letter.error.as_str(), letter.attempts, letter.offset),
        ("out of stock", 3, 4)
    );
    assert_eq!(dead.payload(), Some(&b"{\"n\":-1}"[..]));
    let offsets = offsets.lock().unwrap();
    assert!(
        offsets.iter().all(|(offset, committed)| committed <= offset),
        "{offsets:?}"
    );
}
