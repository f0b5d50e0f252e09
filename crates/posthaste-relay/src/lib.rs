//! The Posthaste relay engine: every committed message reaches the broker, at least once and in order per key.
//!
//! ```no_run
//! use posthaste_relay::{Relay, RelayConfig};
//! use tokio_util::sync::CancellationToken;
//! # async fn example(
//! #     store: impl posthaste_core::RelayStore, publisher: impl posthaste_core::Publisher,
//! # ) -> Result<(), posthaste_relay::RelayError> {
//! let shutdown = CancellationToken::new();
//! Relay::new(store, publisher)
//!     .config(RelayConfig { batch_size: 1_000, ..RelayConfig::default() })
//!     .run_until(shutdown)
//!     .await?;
//! # Ok(())
//! # }
//! ```
//!
//! Messages go one way: `claim` takes them from the store, `dispatch` verifies them and hands them to the
//! publisher, what became of them turns into verdicts, and `settle` writes those back. Beside that road a keeper renews
//! leases and a janitor sweeps, purges, counts and takes back what vanished workers held. A circuit breaker
//! stands between `dispatch` and the publisher: while the broker is away nothing is claimed, and no attempt is used up.
//! Destinations that are away while the broker is not hold back their own messages only.

mod announce;
mod bypass;
mod circuit;
mod claim;
mod clock;
mod config;
mod depth;
mod desk;
mod destinations;
mod dispatch;
mod engine;
mod failpoint;
mod gate;
mod health;
mod in_flight;
mod in_place;
mod instrument;
mod janitor;
mod lead;
mod lease;
#[cfg(test)]
mod observed;
mod outage;
mod publication;
mod refusals;
mod relay;
mod settle;
mod supervisor;
mod timed;
mod unclaimable;
mod undelivered;
mod waiting;
mod wake;

pub use config::{InvalidConfig, OrderingConfig, RelayConfig};
pub use health::Health;
pub use instrument::describe_metrics;
pub use relay::{Relay, RelayError, RelayReport};
pub use wake::LocalDoorbell;

/// Compiles the examples of the read-me.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
