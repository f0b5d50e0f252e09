//! What is told, and how often.

use std::collections::BTreeSet;
use std::time::Duration;

use posthaste_core::alert::{AlertKind, AlertMessage};

/// What is told, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertPolicy {
    /// What alerts are sent about. Defaults to dead letters that no place takes, and broken hashes.
    pub on: BTreeSet<AlertKind>,
    /// The same cause is not told again within this time; what came meanwhile is told after it as a summary. Defaults to
    /// 15 minutes.
    pub min_interval: Duration,
    /// At most so many alerts in any minute. Defaults to 10.
    pub max_per_minute: u32,
}

impl Default for AlertPolicy {
    fn default() -> Self {
        Self {
            on: [AlertKind::Net, AlertKind::Integrity].into(),
            min_interval: Duration::from_mins(15),
            max_per_minute: 10,
        }
    }
}

/// Something to be told.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) kind: AlertKind,
    pub(crate) topic: Option<String>,
    pub(crate) cause: String,
    pub(crate) count: u64,
    pub(crate) messages: Vec<AlertMessage>,
}
