//! Kafka consumer over the Posthaste inbox: each event handled once, failures retried and then sent to dead-letter
//! topics.
//!
//! ```no_run
//! use posthaste_consumer::{Connection, Consumer, ConsumerConfig, HandlerError, Once, Received};
//! use posthaste_postgres::PostgresStore;
//! use sqlx::PgConnection;
//!
//! #[derive(serde::Deserialize)]
//! struct OrderPaid {
//!     product_id: i64,
//!     quantity: i64,
//! }
//!
//! #[derive(serde::Deserialize)]
//! struct ProductViewed {
//!     product_id: i64,
//! }
//!
//! async fn count_sale(tx: &mut PgConnection, event: Received<OrderPaid>) -> Result<(), HandlerError> {
//!     sqlx::query("update product_statistic set sales_count = sales_count + $2 where product_id = $1")
//!         .bind(event.payload.product_id)
//!         .bind(event.payload.quantity)
//!         .execute(tx)
//!         .await?;
//!     Ok(())
//! }
//!
//! # async fn example(cache: std::sync::Arc<dyn Fn(i64) + Send + Sync>) -> Result<(), Box<dyn std::error::Error>> {
//! let store = PostgresStore::new(sqlx::PgPool::connect("postgres://localhost/shop").await?);
//! let config = ConsumerConfig::new(Connection::to("127.0.0.1:9092"), "statistics", ["order-events", "product-events"]);
//! let shutdown = tokio_util::sync::CancellationToken::new();
//!
//! Consumer::new(config, store.inbox("statistics"))
//!     // An order is counted once, however many events say that it is paid.
//!     .on("acme.order.paid.v1", Once::per_aggregate("SALES_COUNT_INCREASED"), count_sale)
//!     // Every view counts, but only once: the key is of your own making.
//!     .on(
//!         "acme.product.viewed.v1",
//!         Once::by(|event: &Received<ProductViewed>| format!("{}_{}", event.payload.product_id, event.id)),
//!         async |tx: &mut PgConnection, event: Received<ProductViewed>| {
//!             sqlx::query("update product_statistic set view_count = view_count + 1 where product_id = $1")
//!                 .bind(event.payload.product_id)
//!                 .execute(tx)
//!                 .await?;
//!             Ok(())
//!         },
//!     )
//!     // May happen twice without harm, so nothing is recorded. Closures may hold handles that can be cloned.
//!     .on_idempotent(
//!         "acme.stock.depleted.v1",
//!         async move |_tx: &mut PgConnection, event: Received<ProductViewed>| {
//!             cache(event.payload.product_id);
//!             Ok(())
//!         },
//!     )
//!     .run_until(shutdown)
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! # What is promised
//! - The inbox's record, the handler's effect and their commit are one transaction. A handler that fails leaves neither.
//! - Offsets are committed by hand, after each batch, never past an event that is not durably handled or in the dead-letter
//!   topic. After a crash some events come again; the inbox skips those whose effect is there.
//! - Events of a partition are handled in order, one at a time. Partitions work side by side: one that waits for a retry,
//!   a slow handler or its dead-letter topic holds up no other, nor the consumer's place in the group.
//! - A partition that goes to another consumer is given up between two events: the handler in hand may finish, within
//!   limits, and what it did is committed first.
//! - A handler that does not come to an end within `handler_timeout` has failed.
//! - A failed event is tried again in place, and at last sent to `{topic}.dlq`, byte for byte, with the error in its
//!   headers. Its offset moves only when it is there.
//! - A database or a broker that is unavailable costs time, but no attempts and no events.

mod config;
mod consumer;
mod guard;
mod handling;
mod kafka;
mod path;
mod report;
pub mod source;
mod upkeep;

pub use config::{Assignment, ConsumerConfig, InvalidConfig, OffsetReset, Tombstones, TooLarge, Unhandled};
pub use consumer::{Consumer, ConsumerError};
pub use handling::{Handler, HandlerError, Once, Payload, Raw, Received};
pub use kafka::{RetentionGap, retention_gaps};
pub use posthaste_kafka::Connection;
pub use report::ConsumerReport;
pub use upkeep::instrument::{METRICS, describe_metrics};

/// Compiles the examples of the read-me.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
