//! How and where figures were made.

use serde::Serialize;

/// How and where the figures were made.
#[derive(Debug, Serialize)]
pub(crate) struct Setting {
    /// Whether the run was a short one, which shows that the benchmarks work and not how fast anything is.
    pub(crate) quick: bool,
    pub(crate) rounds: u32,
    pub(crate) machine: String,
    pub(crate) postgres: String,
    pub(crate) build: &'static str,
}
