//! Each publisher, against what it publishes to.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

#[cfg(feature = "callback")]
mod callback;
mod each;
#[cfg(feature = "file")]
mod file;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "kafka")]
mod kafka_cluster;
#[cfg(feature = "kafka")]
mod kafka_limits;
#[cfg(feature = "kafka")]
mod kafka_mock;
#[cfg(feature = "kafka")]
mod kafka_partitions;
#[cfg(feature = "kafka")]
mod kafka_relay;
#[cfg(feature = "kafka")]
mod kafka_stops;
#[cfg(feature = "log")]
mod log;
#[cfg(feature = "stdout")]
mod stdout;
#[cfg(feature = "webhook")]
mod webhook;
#[cfg(feature = "webhook")]
mod webhook_relay;
