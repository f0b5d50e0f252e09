//! Tests of your application without a database or a broker: an outbox in memory, assertions, publishers.
//!
//! Take the crate twice, so that only tests have the feature:
//!
//! ```toml
//! [dependencies]
//! posthaste = { version = "0.1", features = ["postgres"] }
//!
//! [dev-dependencies]
//! posthaste = { version = "0.1", features = ["testing"] }
//! ```
//!
//! # What was enqueued
//! Code that takes any [`Outbox`](crate::Outbox) can be given that of a [`MemoryStore`]. Its transactions are real: what is
//! rolled back was never enqueued.
//!
//! ```
//! use posthaste::testing::{MemoryStore, assert_event, assert_not_enqueued};
//! use posthaste::{EnqueueError, Event, Outbox, OutboxOptions};
//! use serde::Serialize;
//!
//! #[derive(Serialize)]
//! struct OrderPlaced {
//!     order_id: u32,
//!     cents: u64,
//! }
//!
//! #[derive(Event)]
//! enum ShopEvent {
//!     #[event(type = "acme.order.placed.v1", aggregate = "Order", id = order_id)]
//!     OrderPlaced(OrderPlaced),
//! }
//!
//! async fn place_order<O: Outbox>(outbox: &O, order_id: u32, cents: u64) -> Result<(), EnqueueError> {
//!     let mut tx = outbox.begin().await?;
//!     outbox.enqueue(&mut tx, ShopEvent::from(OrderPlaced { order_id, cents })).await?;
//!     if cents == 0 {
//!         outbox.rollback(tx).await?;
//!     } else {
//!         outbox.commit(tx).await?;
//!     }
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), EnqueueError> {
//! let store = MemoryStore::new();
//! let outbox = store.outbox(OutboxOptions::default());
//!
//! place_order(&outbox, 42, 995).await?;
//! place_order(&outbox, 43, 0).await?;
//!
//! assert_event(&store, "acme.order.placed.v1", |order| order["cents"] == 995).await;
//! assert_not_enqueued(&store, |message| message.ordering_key.as_deref() == Some("43")).await;
//! # Ok(())
//! # }
//! ```
//!
//! An assertion that does not hold lists what is there:
//!
//! ```text
//! no event of the type `acme.order.cancelled.v1` is enqueued; the outbox has 1 pending:
//!   019a7d5e-… topic "order-events" key Some("42") type Some("acme.order.placed.v1") payload {"order_id":42,"cents":995}
//! ```
//!
//! The assertions take any store, so that the same test can be run on your database: give it
//! a `PostgresStore` and its outbox.
//!
//! # What is delivered
//! [`deliver_all`] runs a relay until nothing is due, and returns what a broker would have got. [`drain`] takes the publisher:
//! a [`RecordingPublisher`], or a [`FaultyPublisher`] that fails as scripted. Time stands still until the store's
//! [`TestClock`] is advanced.
//!
//! ```
//! use std::time::Duration;
//!
//! use posthaste::testing::{FaultyPublisher, MemoryStore, RecordingPublisher, deliver_all, drain};
//! use posthaste::{Message, Outbox, OutboxOptions};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), posthaste::EnqueueError> {
//! let store = MemoryStore::new();
//! let outbox = store.outbox(OutboxOptions::default());
//! let mut tx = outbox.begin().await?;
//! for payload in ["1", "2", "3"] {
//!     outbox.enqueue(&mut tx, Message::new("order-events", payload).key("42")).await?;
//! }
//! outbox.commit(tx).await?;
//!
//! let broker = FaultyPublisher::new(RecordingPublisher::new());
//! broker.down();
//! drain(store.clone(), broker.clone()).await;
//! assert_eq!(broker.inner().ids(), []);
//!
//! store.clock().advance(Duration::from_secs(3600));
//! let delivered = deliver_all(&store).await;
//! let payloads: Vec<_> = delivered.iter().map(|message| &message.payload[..]).collect();
//! assert_eq!(payloads, [b"1", b"2", b"3"]);
//! # Ok(())
//! # }
//! ```
//!
//! # What a handler does
//! [`MemoryStore::inbox`] is the inbox of one consumer. A delivery that comes again finds its record:
//!
//! ```
//! use posthaste::testing::MemoryStore;
//! use posthaste::{Handled, Inbox};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new();
//! let inbox = store.inbox("statistics");
//! for expected in [Handled::Applied(()), Handled::Duplicate] {
//!     let mut tx = store.begin();
//!     let handled = inbox.once(&mut tx, "Order/42/SOLD", async |tx| {
//!         tx.write_business_row("one more");
//!         Ok::<_, std::io::Error>(())
//!     });
//!     assert_eq!(handled.await?, expected);
//!     tx.commit();
//! }
//! assert_eq!(store.business_rows(), ["one more"]);
//! # Ok(())
//! # }
//! ```

pub use posthaste_testing::*;
