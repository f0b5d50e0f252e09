//! What the polling thread and the worker of a lane know of each other.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::signal::Signal;
use crate::source::Lane;

/// One assignment of one lane. A lane that leaves and comes back is another one.
#[derive(Debug)]
pub(crate) struct LaneState {
    pub(crate) lane: Lane,
    /// Take no more events.
    pub(crate) stop: CancellationToken,
    /// Drop the event in hand, too.
    pub(crate) abandon: CancellationToken,
    next: AtomicI64,
    /// Bytes of records that were read and are not settled.
    queued_bytes: AtomicUsize,
    /// Since when the worker has a record in hand.
    in_hand: Mutex<Option<Instant>>,
    batch_over: AtomicBool,
    finished: AtomicBool,
    signal: Arc<Signal>,
}

const NO_POSITION: i64 = -1;

impl LaneState {
    pub(crate) fn new(lane: Lane, signal: Arc<Signal>) -> Self {
        Self {
            lane,
            stop: CancellationToken::new(),
            abandon: CancellationToken::new(),
            next: AtomicI64::new(NO_POSITION),
            queued_bytes: AtomicUsize::new(0),
            in_hand: Mutex::default(),
            batch_over: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            signal,
        }
    }

    /// A record of so many bytes was read.
    pub(crate) fn add_queued_bytes(&self, bytes: usize) {
        self.queued_bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes.load(Ordering::Acquire)
    }

    /// The worker takes a record in hand.
    pub(crate) fn begin(&self) {
        *self.in_hand() = Some(Instant::now());
    }

    /// How long the worker has had a record in hand; nothing if it has none.
    pub(crate) fn in_hand_for(&self) -> Option<Duration> {
        let since = *self.in_hand();
        since.map(|since| since.elapsed())
    }

    fn in_hand(&self) -> MutexGuard<'_, Option<Instant>> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.in_hand.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything up to this offset, whose record had so many bytes, is durable. Called in order, by the one worker.
    pub(crate) fn settled(&self, offset: i64, bytes: usize) {
        *self.in_hand() = None;
        self.next.store(offset + 1, Ordering::Release);
        self.queued_bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// The offset to commit: that of the first event that is not settled. Nothing if none was.
    pub(crate) fn next(&self) -> Option<i64> {
        Some(self.next.load(Ordering::Acquire)).filter(|next| *next != NO_POSITION)
    }

    pub(crate) fn batch_is_over(&self) {
        self.batch_over.store(true, Ordering::Release);
        self.signal.notify();
    }

    /// Whether a batch has ended since the last time.
    pub(crate) fn take_batch_over(&self) -> bool {
        self.batch_over.swap(false, Ordering::AcqRel)
    }

    /// The queue has room again.
    pub(crate) fn notify_room(&self) {
        self.signal.notify();
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }
}

/// Held by the worker; however that ends, also with its runtime, the polling thread learns of it.
pub(crate) struct RunningWorker(pub(crate) Arc<LaneState>);

impl Drop for RunningWorker {
    fn drop(&mut self) {
        self.0.finished.store(true, Ordering::Release);
        self.0.signal.notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_in_hand_until_it_is_settled() {
        let state = LaneState::new(Lane::new("orders", 0), Arc::default());
        assert_eq!(state.in_hand_for(), None);
        state.begin();
        assert!(state.in_hand_for().is_some());
        state.settled(0, 0);
        assert_eq!(state.in_hand_for(), None);
    }
}
