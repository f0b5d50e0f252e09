//! Messages that wait for a part of the broker.
//!
//! One partition without a leader stops the keys in it and no others: no circuit opens, and no destination is
//! unavailable. Their attempts do not count, so nothing would be said for as long as it lasts.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use posthaste_core::lifecycle::Verdict;
use posthaste_core::publisher::{ErrorKind, ErrorScope, Outcome};
use tokio::time::Instant;

use crate::reported::Reported;

/// How often it is said of one topic.
const INTERVAL: Duration = Duration::from_mins(1);

/// When it was last said of which topic.
#[derive(Debug, Default)]
pub(crate) struct Waiting(Mutex<HashMap<String, Instant>>);

impl Waiting {
    /// Says which of these wait, now and then. Not to be asked while the circuit is open, which has spoken for all.
    pub(crate) fn tell(&self, settled: &[Reported]) {
        for Reported {
            message,
            verdict,
            outcome,
            ..
        } in settled
        {
            let Verdict::Postponed { error, .. } = verdict else {
                continue;
            };
            // What was not handed over waits for a destination that was said to be unavailable, and a broker that asks for
            // patience has been told of.
            let untold = match outcome {
                Outcome::Failed(error) => {
                    error.scope != ErrorScope::Broker || !matches!(error.kind, ErrorKind::Throttled { .. })
                }
                _ => false,
            };
            if untold && self.is_due(&message.topic) {
                tracing::warn!(
                    id = %message.id, topic = message.topic.as_str(), key = message.key.as_deref(), trace_id = message.trace_id.as_deref(), error,
                    "messages of this topic wait, this one among them, until their part of the broker is back; the attempts \
                     do not count, and others go on"
                );
            }
        }
    }

    fn is_due(&self, topic: &str) -> bool {
        let now = Instant::now();
        // No code panics while holding the lock, and the data would be sound if it did.
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, at| now.duration_since(*at) < INTERVAL);
        if told.contains_key(topic) {
            return false;
        }
        told.insert(topic.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_topic_is_told_once_a_minute() {
        let waiting = Waiting::default();
        assert!(waiting.is_due("orders"));
        assert!(!waiting.is_due("orders"));
        assert!(waiting.is_due("payments"));
        advance(INTERVAL).await;
        assert!(waiting.is_due("orders"));
    }
}
