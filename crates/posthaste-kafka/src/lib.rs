//! What both ends of Kafka share: connection, record format, failures, topics and dead-letter topics.

mod cluster;
pub mod connection;
pub mod dead_letter;
pub mod dlq;
pub mod error;
pub mod event;
pub mod topics;

pub use connection::{Connection, InvalidConnection};

/// Compiles the examples of the read-me.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
