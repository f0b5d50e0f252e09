//! Ways out of the outbox, one module and one feature each.
//!
//! All of them keep the contract of [`Publisher`](posthaste_core::Publisher). To write one for a transport that takes a
//! message at a time, implement [`PublishOne`] and wrap it in [`EachMessage`]; for one that takes many in a request,
//! [`PublishRound`] and [`InRounds`].

pub mod adapters;
#[cfg(feature = "callback")]
pub mod callback;
pub mod config;
pub mod each;
#[cfg(feature = "file")]
pub mod file;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "kafka")]
pub mod kafka;
mod lanes;
#[cfg(any(feature = "file", feature = "stdout"))]
mod lines;
#[cfg(feature = "log")]
pub mod log;
pub mod options;
pub mod pace;
pub mod rounds;
pub mod routed;
pub mod routing;
#[cfg(feature = "stdout")]
pub mod stdout;
#[cfg(feature = "http")]
mod template;
mod turn;

pub use adapters::PublisherExt;
#[cfg(feature = "callback")]
pub use callback::Callback;
pub use config::PublisherConfig;
pub use each::{EachMessage, PublishOne};
#[cfg(feature = "file")]
pub use file::{FileError, FileOptions, FilePublisher};
#[cfg(feature = "http")]
pub use http::{HttpFormat, HttpOptions, HttpPublisher, HttpUrl};
#[cfg(feature = "kafka")]
pub use kafka::{KafkaOptions, KafkaPublisher};
#[cfg(feature = "log")]
pub use log::{LogLevel, LogOptions, LogPublisher};
pub use options::{InvalidOption, PublisherContext, PublisherOptions};
pub use pace::Pace;
pub use rounds::{InRounds, PublishRound};
pub use routed::{Routed, Routes};
pub use routing::Route;
#[cfg(feature = "stdout")]
pub use stdout::Stdout;

/// Compiles the examples of the read-me.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
