//! Kafka consumer over the Posthaste inbox: each event handled once, failures retried and then sent to dead-letter
//! topics.

mod assignments;
mod attempt;
mod config;
mod consumer;
mod context;
mod dead_letters;
mod delivery;
mod engine;
mod failpoint;
mod handler;
mod instrument;
mod janitor;
mod once;
mod outage;
mod partition;
mod poll;
mod received;
mod retention;
mod route;
mod signal;
mod worker;

pub use config::{Assignment, ConsumerConfig, InvalidConfig, OffsetReset, Unhandled};
pub use consumer::{Consumer, ConsumerError};
pub use engine::ConsumerReport;
pub use handler::{Handler, HandlerError};
pub use instrument::describe_metrics;
pub use once::Once;
pub use posthaste_kafka::Connection;
pub use received::{Payload, Raw, Received};
pub use retention::{RetentionGap, retention_gaps};
