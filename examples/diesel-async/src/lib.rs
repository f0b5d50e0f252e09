//! An application on diesel-async whose events are enqueued in its own transactions.

mod outbox;
mod shop;

pub use outbox::Diesel;
pub use shop::{PlaceOrderError, Shop};
