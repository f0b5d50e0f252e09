//! An application on sea-orm whose events are enqueued in its own transactions.

mod outbox;
mod shop;

pub use outbox::SeaOrm;
pub use shop::{PlaceOrderError, Shop};
