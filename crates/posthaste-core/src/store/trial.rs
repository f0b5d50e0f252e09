//! Trying every verdict before the first publication.
//!
//! A verdict that the database refuses is found out about when its message has been published, and then nothing can
//! take that back. So [`RelayStore::check`](super::RelayStore::check) writes every verdict once, to rows that are there or
//! to one that it inserts, in a transaction that it rolls back: rights that are missing, constraints that do not know
//! a state's label, triggers that object and columns that are too short are said before anything is published.

use std::time::Duration;

use super::{StoreError, StoreErrorKind};
use crate::lifecycle::Verdict;

/// How long the error of a tried verdict is. Brokers say much when they refuse something.
const ERROR_LENGTH: usize = 1_000;

impl Verdict {
    /// One of each kind, as they are tried.
    pub fn trials() -> [Self; 5] {
        let error = || {
            let text = "Posthaste tries whether the table takes its verdicts, and undoes it. ";
            text.chars().cycle().take(ERROR_LENGTH).collect::<String>()
        };
        let delay = Duration::from_secs(1);
        [
            Self::Delivered,
            Self::Retry { delay, error: error() },
            Self::Postponed { delay, error: error() },
            Self::Released,
            // Last: a relay with a net for dead letters can do without the table's.
            Self::Dead { error: error() },
        ]
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Retry { .. } => "retry",
            Self::Dead { .. } => "dead",
            Self::Postponed { .. } => "postponed",
            Self::Released => "released",
        }
    }
}

impl StoreError {
    /// What was tried was refused for some rows and taken for another: those that are not refused can be served.
    #[must_use]
    pub fn of_some_rows(self) -> Self {
        Self {
            kind: StoreErrorKind::SomeRows,
            message: format!("{}; it takes it for other rows", self.message),
            remedy: Some(
                "fix the rows, or let the table's constraints, triggers and unique indexes accept them; all others are served",
            ),
            ..self
        }
    }

    /// The database refused this verdict when it was tried, and none before it.
    #[must_use]
    pub fn of_verdict(self, verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Dead { .. } => self.of_deaths(),
            _ => self,
        }
    }

    /// The database refused dead messages when they were tried, and nothing before them.
    #[must_use]
    pub fn of_deaths(self) -> Self {
        match self.kind {
            StoreErrorKind::Other | StoreErrorKind::Access | StoreErrorKind::SchemaMissing => Self {
                kind: StoreErrorKind::DeathsRefused,
                ..self
            },
            _ => self,
        }
    }

    /// The database refused a step that was tried: a verdict's name, or what else a relay writes.
    #[must_use]
    pub fn in_trial(self, step: &str, remedy: &'static str) -> Self {
        Self {
            message: format!(
                "the table refuses the verdict `{step}` (tried and rolled back): {}",
                self.message
            ),
            remedy: Some(remedy),
            ..self
        }
    }
}
