use posthaste_derive::Event;

#[derive(Event)]
#[event(crate = posthaste_core, aggregate = "Order", id = order_id)]
enum ShopEvent {
    #[event(type = "acme.order.created.v1")]
    Created,
    #[event(type = "acme.order.paid.v1")]
    Paid(u64, u64),
    #[event(type = "acme.order.sent.v1")]
    Sent { order_id: u64 },
}

#[derive(Event)]
enum Nothing {}

#[derive(Event)]
union Either {
    a: u8,
    b: u8,
}

fn main() {}
