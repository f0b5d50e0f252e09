//! The clock that all processes of the machine share.

use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds of the system's clock.
pub(crate) fn now_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or_default()
}
