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
//! Messages go one way, which is `path`: `claim` takes them from the store, `dispatch` verifies them and hands them to
//! the publisher, what became of them turns into verdicts, and `settle` writes those back. `guard` is what may stop
//! them there. A circuit breaker stands between `dispatch` and the publisher: while the broker is unavailable nothing
//! is claimed, and no attempt is used up. Destinations that are unavailable while the broker is not hold back their own
//! messages only. `upkeep` runs beside that road: a keeper renews leases and a janitor sweeps, purges, counts and takes
//! back what crashed workers held.

mod config;
mod engine;
mod error;
mod guard;
mod net;
#[cfg(test)]
mod observed;
mod path;
mod relay;
mod report;
mod reported;
mod send_trace;
mod upkeep;

pub use config::{InvalidConfig, OrderingConfig, RelayConfig, Retention};
pub use error::RelayError;
pub use net::{AlertPolicy, Contents, Letter, Line, Mark, Open, SafetyNet, Spool, SpoolConfig, SpoolError, Unreadable};
pub use relay::Relay;
pub use report::RelayReport;
pub use upkeep::health::{BacklogReport, DatabaseReport, Health, HealthReport, InFlightReport, Leadership, Phase};
pub use upkeep::instrument::{METRICS, describe_metrics};
pub use upkeep::pulse::{TaskReport, TaskState};
pub use upkeep::wake::LocalNotifier;

/// Compiles the examples of the read-me.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadMe;
