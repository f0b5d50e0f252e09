use posthaste_derive::Event;

struct OrderCreated {
    order_id: u64,
}

#[derive(Event)]
#[event(crate = posthaste_core, aggregate = "Order", id = order_id)]
enum ShopEvent {
    #[event(type = "acme.order.created.v1")]
    Created(OrderCreated),
    #[event(type = "acme.order.created.v1")]
    Paid(OrderCreated),
}

fn main() {}
