//! Why a relay did not run.

use posthaste_core::StoreError;
use thiserror::Error;

use crate::config::InvalidConfig;
use crate::report::RelayReport;

/// Why a relay did not run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RelayError {
    /// A setting cannot work.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    /// The store is not usable, and waiting will not help.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The broker was found to be unavailable while draining.
    #[error(
        "the broker is unavailable: {reason}; {} messages were delivered, the others stay in the outbox; drain again when \
         it is back",
        .report.delivered
    )]
    BrokerUnavailable {
        /// What the broker, or the way to it, had to say.
        reason: String,
        /// What was done before.
        report: Box<RelayReport>,
    },
    /// What became of some messages could not be written down, though they may have been published.
    #[error(
        "the database refused {} outcomes and gave no answer for {}, {} rows were locked by other transactions, and {} \
         outcomes came too late to be written; {} messages were delivered; {}; drain again when the cause is gone",
        .report.refused, .report.unsettled, .report.busy, .report.lease_lost, .report.delivered,
        .report.first_failure.as_deref().unwrap_or("the log has the cause")
    )]
    Unsettled {
        /// What was done.
        report: Box<RelayReport>,
    },
    /// A task of the relay panicked, which is a bug. What was in flight is delivered again after its lease.
    #[error("{task} panicked, which is a bug; start the relay again, and report what the log says of the panic")]
    Panicked {
        /// What the task was doing.
        task: &'static str,
    },
    /// Another relay is the active one, and this one was to drain.
    #[error(
        "relay {leader} leads this namespace, and only one may be active; let it deliver, or stop it before you drain"
    )]
    StandingBy {
        /// The active relay.
        leader: String,
    },
}
