use posthaste_derive::Event;

struct OrderCreated {
    order_id: u64,
}

#[derive(Event)]
#[event(crate = posthaste_core, aggregate = "Order", id = order_id)]
enum ShopEvent {
    #[event(typ = "acme.order.created.v1")]
    Unknown(OrderCreated),
    #[event(type = "acme.order.paid.v1", id = order_id, id_with = id)]
    Twice(OrderCreated),
    #[event(type = "acme.order.sent.v1", id = "order_id")]
    Quoted(OrderCreated),
    #[event(type = "acme.order.packed.v1", topic = "")]
    Empty(OrderCreated),
    #[event(type = "acme.order.lost.v1", crate = posthaste_core)]
    Misplaced(OrderCreated),
}

#[derive(Event)]
#[event(type = "acme.order.created.v1")]
enum OtherEvent {
    Created(OrderCreated),
}

fn main() {}
