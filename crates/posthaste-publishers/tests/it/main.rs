//! Each publisher, against what it publishes to.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

mod adapters;
#[cfg(all(feature = "callback", feature = "http"))]
mod blame;
#[cfg(feature = "callback")]
mod callback;
mod each;
#[cfg(feature = "file")]
mod file;
#[cfg(feature = "http")]
mod http_cloudevents;
#[cfg(feature = "http")]
mod http_connections;
#[cfg(feature = "http")]
mod http_discord;
#[cfg(feature = "http")]
mod http_relay;
#[cfg(feature = "kafka")]
mod kafka;
#[cfg(feature = "kafka")]
mod kafka_cluster;
#[cfg(feature = "kafka")]
mod kafka_light;
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
#[cfg(feature = "callback")]
mod outage;
mod rounds;
mod routed;
#[cfg(feature = "stdout")]
mod stdout;
mod suite;
