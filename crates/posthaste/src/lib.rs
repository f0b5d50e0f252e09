#![doc = include_str!("../../../README.md")]

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
