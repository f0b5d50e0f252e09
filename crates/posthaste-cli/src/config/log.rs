//! How Posthaste's own log is divided.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::Deserialize;

const MAX_READERS: NonZeroU32 = NonZeroU32::MIN.saturating_add(15);

/// Segments and readers of the log, as `[database.log]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// See `LogLayoutOptions::segment_age`. Defaults to 1 h.
    #[serde(with = "humantime_serde")]
    pub segment_age: Duration,
    /// See `LogLayoutOptions::segment_rows`. Defaults to 5,000,000.
    pub segment_rows: u64,
    /// See `LogLayoutOptions::max_readers`. Defaults to 16.
    pub max_readers: NonZeroU32,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self {
            segment_age: Duration::from_hours(1),
            segment_rows: 5_000_000,
            max_readers: MAX_READERS,
        }
    }
}
