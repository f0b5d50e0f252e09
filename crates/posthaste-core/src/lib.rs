//! Vocabulary and rules of the Posthaste transactional outbox.
//!
//! Nothing here knows a database or a broker, opens a socket or reads a clock. Stores and publishers
//! implement the traits of [`store`] and [`publisher`]; what happens to a message is decided here, in
//! [`lifecycle`], once for all of them.

pub mod alert;
pub mod breaker;
pub mod enqueue;
pub mod envelope;
pub mod event;
pub mod inbox;
pub mod integrity;
pub mod lifecycle;
pub mod message;
pub mod metric;
pub mod outbox;
pub mod publisher;
pub mod readable;
pub mod reclaim;
pub mod retry;
pub mod store;
pub mod trace;
pub mod type_name;
pub mod validate;
pub mod wake;

pub use breaker::BreakerConfig;
pub use enqueue::{EnqueueError, Enqueued, OutboxOptions};
pub use event::{Event, IntoMessage};
pub use inbox::{Handled, Inbox, InboxError, InboxStore, Mark};
pub use message::{Message, MessageId, Text};
pub use outbox::{Outbox, StoreOutbox};
pub use publisher::{Batch, Capabilities, ErrorScope, Outcome, PublishError, Publisher, Receipt, Report};
pub use retry::{Backoff, RetryPolicy};
pub use store::{AdminStore, RelayStore, StoreError};
pub use validate::InvalidMessage;

/// Compiles the examples of the read-me.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
