//! What rows of a log are beyond their messages.

use posthaste_core::Message;
use posthaste_sql::log::{Lane, Ranges};

/// Within what a message keeps its order.
pub(super) fn lane(message: &Message) -> Option<Lane> {
    let key = message.ordering_key.as_ref()?;
    Some((message.topic.clone(), key.clone()))
}

/// Ranges as statements take them.
pub(super) fn pairs(ranges: &Ranges) -> Vec<(i64, i64)> {
    ranges.iter().map(|range| (*range.start(), *range.end())).collect()
}
