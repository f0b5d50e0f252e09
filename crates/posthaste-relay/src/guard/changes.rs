//! A count of all that may keep messages from being sent.
//!
//! Whether a message may go is asked right before it goes, and nearly always the answer is the one that its neighbour got. So an
//! answer holds for a moment for the whole batch, unless something changes meanwhile: a circuit, the lead, a lease, a lane
//! that stops, a destination that is watched from now on. There is one count for the whole process: what changes for one relay
//! has others look again, and no more.

use std::sync::atomic::{AtomicU64, Ordering};

static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Something has changed that may keep messages from being sent. To be told after the change.
pub(crate) fn note() {
    CHANGES.fetch_add(1, Ordering::SeqCst);
}

/// How many changes there were. To be read before the look at what may have changed.
pub(crate) fn count() -> u64 {
    CHANGES.load(Ordering::SeqCst)
}
