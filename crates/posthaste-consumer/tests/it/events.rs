//! Handlers of types that derive `Event`: the producer's type is the consumer's.

use crate::support::{Running, World, logs, until};
use posthaste_consumer::{Connection, Consumer, ConsumerConfig, OffsetReset, Once, Received};
use posthaste_core::{IntoMessage, Message};
use posthaste_derive::Event;
use posthaste_kafka::dead_letter::DeadLetter;
use rdkafka::Message as _;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;

#[derive(Serialize, Deserialize)]
struct OrderPaid {
    order_id: i64,
    amount: i64,
}

#[derive(Serialize, Deserialize)]
struct OrderCancelled {
    order_id: i64,
}

#[derive(Event)]
#[event(crate = posthaste_core, aggregate = "Order", id = order_id)]
enum OrderEvent {
    #[event(type = "acme.order.paid.v1")]
    Paid(OrderPaid),
    #[event(type = "acme.order.cancelled.v1")]
    Cancelled(OrderCancelled),
}

#[derive(Event, Serialize, Deserialize)]
#[event(crate = posthaste_core, type = "acme.product.viewed.v1", aggregate = "Product", id = product_id)]
struct ProductViewed {
    product_id: i64,
}

/// The event, in the test's own topic.
fn message(world: &World, event: impl IntoMessage) -> Message {
    let mut message = event.into_message().unwrap();
    message.topic = world.topic.as_str().into();
    message
}

fn consumer(world: &World) -> Consumer<posthaste_postgres::PostgresInbox> {
    let (orders, views) = (world.clone(), world.clone());
    world
        .consumer()
        .on_event::<OrderEvent>(
            Once::per_aggregate("BOOKED"),
            async move |tx: &mut PgConnection, event: Received<OrderEvent>| {
                let (key, n) = match event.payload {
                    OrderEvent::Paid(paid) => ("paid", paid.amount),
                    OrderEvent::Cancelled(cancelled) => ("cancelled", cancelled.order_id),
                };
                Ok(orders.effect(tx, key, n).await?)
            },
        )
        .on_event::<ProductViewed>(
            Once::per_event(),
            async move |tx: &mut PgConnection, event: Received<ProductViewed>| {
                Ok(views.effect(tx, "viewed", event.payload.product_id).await?)
            },
        )
}

/// Every variant of an enum, and a struct, comes to the handler of its type as what it was when it was enqueued.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_comes_to_the_handler_of_its_type_as_it_was_enqueued() {
    let Some(world) = World::new(1).await else { return };
    let paid = |order_id, amount| OrderEvent::Paid(OrderPaid { order_id, amount });
    let events = [
        message(&world, paid(7, 100)),
        message(&world, OrderEvent::Cancelled(OrderCancelled { order_id: 8 })),
        message(&world, ProductViewed { product_id: 9 }),
        message(&world, paid(7, 100)),
    ];
    let events: Vec<_> = events.into_iter().map(|message| (message, 0)).collect();
    world.send_all(&events).await;
    let running = Running::start(consumer(&world));
    world.until_committed(0, 4).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.duplicates, report.dead_letters), (3, 1, 0));
    let named = |name: &str, n| (name.to_owned(), n);
    assert_eq!(
        world.effects().await,
        [named("paid", 100), named("cancelled", 8), named("viewed", 9)]
    );
}

/// What does not have the form of its type goes to the dead-letter topic without a second attempt, and the reason says
/// which type, which type name, and what is wrong.
#[tokio::test(flavor = "multi_thread")]
async fn a_payload_of_another_form_is_a_dead_letter_with_the_reason() {
    let Some(world) = World::new(1).await else { return };
    let broken = Message::new(&world.topic, r#"{"order_id": 7}"#)
        .event_type("acme.order.paid.v1")
        .content_type("application/json")
        .aggregate("Order", "7")
        .key("7");
    let sound = message(&world, ProductViewed { product_id: 9 });
    world.send_all(&[(broken, 0), (sound, 0)]).await;
    let running = Running::start(consumer(&world));
    world.until_committed(0, 2).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.retried, report.dead_letters), (1, 0, 1));
    let dead = world.read(&world.dead_letter_topic(), 1).await.remove(0);
    assert_eq!(dead.payload(), Some(&br#"{"order_id": 7}"#[..]));
    let letter = DeadLetter::read(dead.headers().unwrap()).unwrap();
    assert_eq!(letter.attempts, 1);
    assert_eq!(
        letter.error,
        "the payload (application/json) cannot be decoded: no OrderEvent of the type acme.order.paid.v1: missing field \
         `amount` at line 1 column 15"
    );
}

/// A consumer without topics of its own reads those of its events; one with others is warned.
#[tokio::test(flavor = "multi_thread")]
async fn the_topics_of_the_events_are_read_unless_others_are_named() {
    const TOPIC: &str = "posthaste-test-invoices";
    #[derive(Event, Serialize, Deserialize)]
    #[event(crate = posthaste_core, type = "acme.invoice.sent.v1", aggregate = "Invoice", id = number)]
    #[event(topic = "posthaste-test-invoices")]
    struct InvoiceSent {
        number: String,
    }
    let Some(world) = World::new(1).await else { return };
    world.ensure_topic(TOPIC).await;
    // The topic is that of all runs of this test.
    let number = world.group.clone();
    let sent = InvoiceSent { number: number.clone() };
    world.send(&sent.into_message().unwrap(), Some(0)).await;
    let consumer = |config: ConsumerConfig| {
        let effects = world.clone();
        Consumer::new(config, world.inbox()).on_event::<InvoiceSent>(
            Once::per_event(),
            async move |tx: &mut PgConnection, event: Received<InvoiceSent>| {
                Ok(effects.effect(tx, &event.payload.number, 1).await?)
            },
        )
    };
    let none: [&str; 0] = [];
    let config = ConsumerConfig::new(Connection::to(&world.bootstrap), &world.group, none)
        .auto_offset_reset(OffsetReset::Earliest);
    let running = Running::start(consumer(config.clone()));
    until("the event of this run comes", async || {
        world.effects().await.contains(&(number.clone(), 1))
    })
    .await;
    running.stop().await;

    let running = Running::start(consumer(config.topics([&world.topic])));
    until("a warning names the topic that is not read", async || {
        !logs::with(&["WARN", "does not read", TOPIC, &world.topic]).is_empty()
    })
    .await;
    running.stop().await;
}
