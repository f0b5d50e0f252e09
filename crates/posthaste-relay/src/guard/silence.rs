//! Destinations that have fallen silent: they keep what they were given, and get no more than their share of what may be in
//! flight, so that the others go on.
//!
//! Only for publishers that say beforehand where a message goes. A destination that answers, however it does, is a matter of
//! [`destinations`](super::destinations).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::destinations::{Held, spread};
use super::in_flight::Load;

/// A destination that has as much as its share is silent after this time: it is waited for rather than given more.
const SHORT_SILENCE: Duration = Duration::from_millis(50);

/// After this time it is silent whatever it has.
const LONG_SILENCE: Duration = Duration::from_secs(1);

/// How long the messages of a silent destination wait before they are claimed again.
const NEXT_LOOK: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Silence {
    /// Most of a destination that does not answer.
    share: Load,
    unanswered: Mutex<HashMap<Arc<str>, Unanswered>>,
}

#[derive(Debug)]
struct Unanswered {
    load: Load,
    /// When it answered last, or was first given something.
    since: Instant,
    /// How many messages wait since then.
    held: u32,
}

impl Silence {
    pub(crate) fn new(max_in_flight: u32, max_in_flight_bytes: u64) -> Self {
        Self {
            share: Load {
                messages: (max_in_flight / 2).max(1),
                bytes: (max_in_flight_bytes / 2).max(1),
            },
            unanswered: Mutex::default(),
        }
    }

    /// Takes note of messages that the publisher is given.
    pub(crate) fn handed_over(&self, destination: &Arc<str>, load: Load) {
        let mut unanswered = self.unanswered();
        let of_destination = unanswered.entry(Arc::clone(destination)).or_insert_with(|| Unanswered {
            load: Load::default(),
            since: Instant::now(),
            held: 0,
        });
        of_destination.load.messages += load.messages;
        of_destination.load.bytes += load.bytes;
    }

    /// Takes note of answers, whatever they say.
    pub(crate) fn answered(&self, destination: &Arc<str>, answered: Load) {
        let mut unanswered = self.unanswered();
        if let Some(of_destination) = unanswered.get_mut(destination) {
            let load = &mut of_destination.load;
            load.messages = load.messages.saturating_sub(answered.messages);
            load.bytes = load.bytes.saturating_sub(answered.bytes);
            of_destination.since = Instant::now();
            of_destination.held = 0;
            if of_destination.load.messages == 0 {
                unanswered.remove(destination);
            }
        }
    }

    /// Whether a message has to wait, if so much of its batch goes there already.
    pub(crate) fn held(&self, destination: &Arc<str>, of_batch: Load) -> Option<Held> {
        let mut unanswered = self.unanswered();
        let of_destination = unanswered.get_mut(destination)?;
        let silent = of_destination.since.elapsed();
        let full = self.is_full(of_destination.load, of_batch);
        if silent < SHORT_SILENCE || !full && silent < LONG_SILENCE {
            return None;
        }
        of_destination.held = of_destination.held.saturating_add(1);
        Some(Held {
            wait: NEXT_LOOK + spread(of_destination.held),
            reason: format!(
                "{destination} has not answered for {silent:.1?}; {} messages are with it",
                of_destination.load.messages
            ),
        })
    }

    /// Until when it is better to claim nothing, because a destination has its share and may answer in the next moment: what
    /// is claimed may go to the same one, and leave no room for others.
    pub(crate) fn crowded_until(&self) -> Option<Instant> {
        let unanswered = self.unanswered();
        let full = unanswered
            .values()
            .filter(|of_destination| self.is_full(of_destination.load, Load::default()));
        let until = full.map(|of_destination| of_destination.since + SHORT_SILENCE).max()?;
        (until > Instant::now()).then_some(until)
    }

    fn is_full(&self, load: Load, more: Load) -> bool {
        load.messages + more.messages >= self.share.messages || load.bytes + more.bytes >= self.share.bytes
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

    fn one(bytes: u64) -> Load {
        Load { messages: 1, bytes }
    }

    fn messages(messages: u32) -> Load {
        Load { messages, bytes: 0 }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_destination_is_given_no_more_and_the_others_are() {
        let silence = Silence::new(10, 1_000);
        let (silent, fine): (Arc<str>, Arc<str>) = ("silent".into(), "fine".into());
        for _ in 0..3 {
            silence.handed_over(&silent, one(1));
        }
        advance(999 * MILLISECOND).await;
        assert_eq!(silence.held(&silent, messages(0)), None, "it may only be slow");
        silence.handed_over(&fine, one(1));
        advance(MILLISECOND).await;
        let held = silence.held(&silent, messages(0)).unwrap();
        assert_eq!(held.reason, "silent has not answered for 1.0s; 3 messages are with it");
        assert_eq!(silence.held(&fine, messages(0)), None);
        silence.answered(&silent, one(1));
        assert_eq!(silence.held(&silent, messages(0)), None, "it answers again");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_above_its_share_waits_for_an_answer_already_after_a_moment() {
        let silence = Silence::new(10, 1_000);
        let hot: Arc<str> = "hot".into();
        for _ in 0..4 {
            silence.handed_over(&hot, one(1));
        }
        assert_eq!(silence.held(&hot, messages(6)), None, "it had no time to answer");
        advance(SHORT_SILENCE).await;
        assert_eq!(silence.held(&hot, messages(0)), None, "it has less than its share");
        assert!(silence.held(&hot, messages(1)).is_some());
        for _ in 0..4 {
            silence.answered(&hot, one(1));
        }
        assert_eq!(silence.held(&hot, messages(1)), None);
    }

    /// Else a few claims that follow each other fill the room before any silence is noticed.
    #[tokio::test(start_paused = true)]
    async fn nothing_is_claimed_for_a_moment_once_one_has_its_share() {
        let silence = Silence::new(10, 1_000);
        let [small, large]: [Arc<str>; 2] = ["small".into(), "large".into()];
        for _ in 0..4 {
            silence.handed_over(&small, one(1));
        }
        assert_eq!(silence.crowded_until(), None);
        silence.handed_over(&large, one(500));
        let until = silence.crowded_until().unwrap();
        assert_eq!(until, Instant::now() + SHORT_SILENCE);
        advance(SHORT_SILENCE).await;
        assert_eq!(silence.crowded_until(), None, "it is silent, and given no more");
        assert!(silence.held(&large, messages(0)).is_some());
        assert_eq!(silence.held(&small, messages(0)), None);
        silence.answered(&large, one(500));
        assert_eq!(silence.held(&large, messages(0)), None);
    }
}
