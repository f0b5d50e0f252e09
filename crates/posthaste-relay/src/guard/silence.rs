//! Destinations that have fallen silent: they keep what they were given, and get no more than their share of what may be in
//! flight, so that the others go on.
//!
//! Only for publishers that say beforehand where a message goes. A destination that answers, however it does, is a matter of
//! [`destinations`](super::destinations).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::destinations::Held;

/// A destination that has as much as its share is silent after this time: it is waited for rather than given more.
const SHORT_SILENCE: Duration = Duration::from_millis(50);

/// After this time it is silent whatever it has.
const LONG_SILENCE: Duration = Duration::from_secs(1);

/// How long the messages of a silent destination wait before they are claimed again.
const NEXT_LOOK: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Silence {
    /// Most messages of a destination that does not answer.
    share: u32,
    unanswered: Mutex<HashMap<Arc<str>, Unanswered>>,
}

#[derive(Debug)]
struct Unanswered {
    messages: u32,
    /// When it answered last, or was first given something.
    since: Instant,
}

impl Silence {
    pub(crate) fn new(max_in_flight: u32) -> Self {
        Self {
            share: (max_in_flight / 2).max(1),
            unanswered: Mutex::default(),
        }
    }

    /// Takes note of a message that the publisher is given.
    pub(crate) fn handed_over(&self, destination: &Arc<str>) {
        let mut unanswered = self.unanswered();
        let of_destination = unanswered.entry(Arc::clone(destination)).or_insert_with(|| Unanswered {
            messages: 0,
            since: Instant::now(),
        });
        of_destination.messages += 1;
    }

    /// Takes note of an answer, whatever it says.
    pub(crate) fn answered(&self, destination: &Arc<str>) {
        let mut unanswered = self.unanswered();
        if let Some(of_destination) = unanswered.get_mut(destination) {
            of_destination.messages = of_destination.messages.saturating_sub(1);
            of_destination.since = Instant::now();
            if of_destination.messages == 0 {
                unanswered.remove(destination);
            }
        }
    }

    /// Whether a message has to wait, if so many of its batch go there already.
    pub(crate) fn held(&self, destination: &Arc<str>, of_batch: u32) -> Option<Held> {
        let unanswered = self.unanswered();
        let of_destination = unanswered.get(destination)?;
        let silent = of_destination.since.elapsed();
        let full = of_destination.messages + of_batch >= self.share;
        (silent >= LONG_SILENCE || full && silent >= SHORT_SILENCE).then(|| Held {
            wait: NEXT_LOOK,
            reason: format!(
                "{destination} has not answered for {silent:.1?}; {} messages are with it",
                of_destination.messages
            ),
        })
    }

    fn unanswered(&self) -> MutexGuard<'_, HashMap<Arc<str>, Unanswered>> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn a_silent_destination_is_given_no_more_and_the_others_are() {
        let silence = Silence::new(10);
        let (silent, fine): (Arc<str>, Arc<str>) = ("silent".into(), "fine".into());
        for _ in 0..3 {
            silence.handed_over(&silent);
        }
        advance(999 * MILLISECOND).await;
        assert_eq!(silence.held(&silent, 0), None, "it may only be slow");
        silence.handed_over(&fine);
        advance(MILLISECOND).await;
        let held = silence.held(&silent, 0).unwrap();
        assert_eq!(held.reason, "silent has not answered for 1.0s; 3 messages are with it");
        assert_eq!(silence.held(&fine, 0), None);
        silence.answered(&silent);
        assert_eq!(silence.held(&silent, 0), None, "it answers again");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_above_its_share_waits_for_an_answer_already_after_a_moment() {
        let silence = Silence::new(10);
        let hot: Arc<str> = "hot".into();
        for _ in 0..4 {
            silence.handed_over(&hot);
        }
        assert_eq!(silence.held(&hot, 6), None, "it had no time to answer");
        advance(SHORT_SILENCE).await;
        assert_eq!(silence.held(&hot, 0), None, "it has less than its share");
        assert!(silence.held(&hot, 1).is_some());
        for _ in 0..4 {
            silence.answered(&hot);
        }
        assert_eq!(silence.held(&hot, 1), None);
    }
}
