//! The derive macro as an application meets it: through this crate and without naming another.
#![cfg(feature = "derive")]

use posthaste::{Event, IntoMessage};
use serde::Serialize;

#[derive(Serialize)]
struct OrderCreated {
    order_id: u32,
}

#[derive(Event)]
enum ShopEvent {
    #[event(type = "acme.order.created.v1", aggregate = "Order", id = order_id)]
    OrderCreated(OrderCreated),
}

/// Proves C1, C3.
#[test]
fn a_derived_event_is_ready_to_be_enqueued() {
    let event = ShopEvent::from(OrderCreated { order_id: 42 });
    assert_eq!(event.type_name(), "acme.order.created.v1");
    let message = event.into_message().unwrap();
    assert_eq!(message.topic, "order-events");
    assert_eq!(message.lane(), Some(("order-events", "42")));
    assert_eq!(message.payload, r#"{"order_id":42}"#);
}
