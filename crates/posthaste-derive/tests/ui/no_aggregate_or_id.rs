use posthaste_derive::Event;

struct OrderCreated {
    order_id: u64,
}

#[derive(Event)]
#[event(crate = posthaste_core)]
enum ShopEvent {
    #[event(type = "acme.order.created.v1", id = order_id)]
    Created(OrderCreated),
    #[event(type = "acme.order.paid.v1", aggregate = "Order")]
    Paid(OrderCreated),
}

#[derive(Event)]
#[event(crate = posthaste_core, aggregate = "Order", id = order_id)]
struct OrderSent {
    order_id: u64,
}

fn main() {}
