//! Ways out of the outbox, one module and one feature each.
//!
//! All of them keep the contract of [`Publisher`](posthaste_core::Publisher). To write one for a transport that sends a
//! message at a time, implement [`PublishOne`] and wrap it in [`EachMessage`].

#[cfg(feature = "callback")]
pub mod callback;
pub mod each;
#[cfg(feature = "file")]
pub mod file;
#[cfg(feature = "kafka")]
pub mod kafka;
mod lanes;
#[cfg(any(feature = "file", feature = "stdout"))]
mod lines;
#[cfg(feature = "log")]
pub mod log;
#[cfg(feature = "stdout")]
pub mod stdout;
#[cfg(feature = "webhook")]
pub mod webhook;

#[cfg(feature = "callback")]
pub use callback::Callback;
pub use each::{EachMessage, PublishOne};
#[cfg(feature = "file")]
pub use file::{FileError, FileOptions, FilePublisher};
#[cfg(feature = "kafka")]
pub use kafka::{KafkaOptions, KafkaPublisher};
#[cfg(feature = "log")]
pub use log::{LogLevel, LogOptions, LogPublisher};
#[cfg(feature = "stdout")]
pub use stdout::Stdout;
#[cfg(feature = "webhook")]
pub use webhook::{WebhookOptions, WebhookPublisher, WebhookUrl};

/// Compiles the examples of the read-me.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
