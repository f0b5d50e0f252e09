//! Waiting for one's turn: a free place, and the end of a pause that the receiver asked for.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::publisher::{Batch, Delivery, ErrorKind, Outcome, PublishError};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until, timeout};

use crate::pace::Pace;

/// The limits of one publisher, for all of its batches together.
#[derive(Debug)]
pub(crate) struct Turns {
    max_in_flight: usize,
    answer_within: Duration,
    places: Semaphore,
    pace: Arc<Pace>,
}

/// How often it is asked, during a pause, whether the message may still be sent.
const RECHECK_INTERVAL: Duration = Duration::from_millis(200);

impl Turns {
    pub(crate) fn new(max_in_flight: usize, answer_within: Duration) -> Self {
        let max_in_flight = max_in_flight.max(1);
        Self {
            max_in_flight,
            answer_within,
            places: Semaphore::new(max_in_flight),
            pace: Arc::default(),
        }
    }

    pub(crate) fn max_in_flight(&self) -> usize {
        self.max_in_flight
    }

    pub(crate) fn answer_within(&self) -> Duration {
        self.answer_within
    }

    #[cfg(feature = "http")]
    pub(crate) fn pace(&self) -> &Arc<Pace> {
        &self.pace
    }

    /// Takes a place, if one gets free early enough to leave time for an answer.
    pub(crate) async fn take(&self) -> Option<Turn<'_>> {
        let place = timeout(self.answer_within * 2 / 5, self.places.acquire()).await;
        Some(Turn {
            turns: self,
            throttled: None,
            _place: place.ok()?.ok()?,
            // All of it, however long the place took.
            deadline: Instant::now() + self.answer_within,
        })
    }
}

/// A place among those that send.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    deadline: Instant,
    /// What the receiver answered last, if it asked to wait.
    throttled: Option<PublishError>,
    _place: SemaphorePermit<'a>,
}

impl Turn<'_> {
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// What is sent later is likely to have no answer in time.
    fn latest_start(&self) -> Instant {
        self.deadline - self.turns.answer_within / 4
    }

    /// The receiver asked to wait.
    pub(crate) fn throttled(&mut self, error: PublishError) {
        if let ErrorKind::Throttled { retry_after } = error.kind {
            self.turns.pace.pause(retry_after);
        }
        self.throttled = Some(error);
    }

    /// Waits until no pause holds any more, or says what becomes of the message. A pause that is too long is not sat out:
    /// the relay is told of it, and claims nothing more meanwhile.
    pub(crate) async fn comes(&mut self, delivery: &Delivery, batch: &Batch) -> Result<(), Outcome> {
        loop {
            if !batch.may_send(delivery.place) {
                let throttled = self.throttled.take();
                return Err(throttled.map_or(Outcome::NotAttempted, Outcome::Failed));
            }
            let now = Instant::now();
            match self.turns.pace.paused_until() {
                None => {
                    return match self.throttled.take() {
                        Some(error) if now >= self.latest_start() => Err(Outcome::Failed(error)),
                        _ => Ok(()),
                    };
                }
                Some(until) if until >= self.latest_start() => {
                    let told_to_others = || PublishError::throttled(until - now, "the receiver has asked to wait");
                    return Err(Outcome::Failed(self.throttled.take().unwrap_or_else(told_to_others)));
                }
                Some(until) => sleep_until(until.min(now + RECHECK_INTERVAL)).await,
            }
        }
    }
}
