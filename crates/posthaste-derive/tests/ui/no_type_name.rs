use posthaste_derive::Event;

struct OrderCreated {
    order_id: u64,
}

struct OrderPaid {
    order_id: u64,
}

fn json<T>(_: &T) -> &'static str {
    "{}"
}

#[derive(Event)]
#[event(crate = posthaste_core, aggregate = "Order", id = order_id)]
enum ShopEvent {
    #[event(type = "acme.order.created.v1", payload = json)]
    Created(OrderCreated),
    Paid(OrderPaid),
}

fn main() {}
