#![doc = include_str!("../README.md")]
//! # Where to start in this crate
//! - [`Message`], or [`Event`] and its derive macro: what is enqueued.
//! - [`Outbox`]: what your code is written against. Each store has one, and `testing` has one in memory.
//! - [`Inbox`]: how a consumer handles each event once.
//! - `postgres::PostgresStore`, `mysql::MySqlStore`, `sqlite::SqliteStore`: where it is kept. `relay::Relay` delivers.
//!
//! ```
//! use posthaste::testing::{MemoryStore, deliver_all};
//! use posthaste::{EnqueueError, Message, Outbox, OutboxOptions};
//!
//! /// Works with the outbox of any store.
//! async fn place_order(outbox: &impl Outbox, order: u32) -> Result<(), EnqueueError> {
//!     let mut tx = outbox.begin().await?;
//!     // … your own writes, on the same transaction …
//!     outbox.enqueue(&mut tx, Message::new("order-events", "{}").key(order.to_string())).await?;
//!     outbox.commit(tx).await?;
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), EnqueueError> {
//! let store = MemoryStore::new();
//! place_order(&store.outbox(OutboxOptions::default()), 42).await?;
//! assert_eq!(deliver_all(&store).await[0].lane(), Some(("order-events", "42")));
//! # Ok(())
//! # }
//! ```

/// The vocabulary: messages, lifecycle and the traits of stores and publishers.
pub use posthaste_core as core;
pub use posthaste_core::message::Headers;
pub use posthaste_core::{
    EnqueueError, Enqueued, Event, Handled, Inbox, InboxError, IntoMessage, InvalidMessage, Message, MessageId, Outbox,
    OutboxOptions, PublishError, Publisher, StoreError,
};

#[cfg(feature = "derive")]
pub use posthaste_derive::Event;

/// A Kafka consumer that handles each event once.
#[cfg(feature = "consumer")]
pub use posthaste_consumer as consumer;

/// What both ends of Kafka share: connection, record format, topics and dead-letter topics.
#[cfg(any(feature = "consumer", feature = "kafka"))]
pub use posthaste_kafka as kafka;

/// The MySQL and MariaDB store.
#[cfg(feature = "mysql")]
pub use posthaste_mysql as mysql;

/// The PostgreSQL store.
#[cfg(feature = "postgres")]
pub use posthaste_postgres as postgres;

/// Ways out of the outbox.
#[cfg(feature = "publishers")]
pub use posthaste_publishers as publishers;

/// The engine that delivers.
#[cfg(feature = "relay")]
pub use posthaste_relay as relay;

/// The SQLite store.
#[cfg(feature = "sqlite")]
pub use posthaste_sqlite as sqlite;

#[cfg(feature = "testing")]
pub mod testing;

/// Table maps and what else the stores share.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub use posthaste_sql as sql;

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub use posthaste_sql::TableMap;
