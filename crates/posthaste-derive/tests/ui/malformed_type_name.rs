use posthaste_derive::Event;

struct OrderCreated {
    order_id: u64,
}

#[derive(Event)]
#[event(crate = posthaste_core, aggregate = "Order", id = order_id)]
enum ShopEvent {
    #[event(type = "OrderCreated")]
    Created(OrderCreated),
    #[event(type = "acme.order.paid.1")]
    Paid(OrderCreated),
    #[event(type = "acme.Order.sent.v1")]
    Sent(OrderCreated),
}

fn main() {}
