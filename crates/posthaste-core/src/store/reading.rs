//! How a relay reads a log.

use std::time::Duration;

/// What a relay knows of how it reads a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The shards that it reads.
    pub shards: Vec<i32>,
    /// Other relays read the log too, so that shards may change hands.
    pub has_company: bool,
    /// How long the newest shards have waited for those before to be read to their end.
    pub waiting: Duration,
    /// What the relay cannot mend, and an operator can.
    pub notices: Vec<String>,
}
