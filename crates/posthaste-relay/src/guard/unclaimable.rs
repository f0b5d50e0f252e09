//! Rows whose claim the database refuses.
//!
//! A constraint that old rows do not meet, or a trigger, may refuse to have a row claimed, and would again. Such a row is
//! left out of the claims that follow, so that it stops only those behind it in its key, and is tried again now and
//! then, less and less often.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::gauge;
use posthaste_core::MessageId;
use posthaste_core::store::{Claim, RefusedRow};
use tokio::time::Instant;

use crate::guard::refusals::wait;

/// More than so many are not remembered; what is beyond is found anew by every claim that meets it.
const MAX_REMEMBERED: usize = 10_000;

/// So many are tried again in one claim, and not in each: a claim that meets with a refusal costs more.
const MAX_RETRIES: usize = 10;
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// One that was not met for so long, though it was looked for: its row is gone.
const GONE_AFTER: Duration = Duration::from_mins(10);

#[derive(Debug)]
pub(crate) struct Unclaimable {
    namespace: String,
    retries: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<MessageId, Entry>,
    retry_after: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    failures: u32,
    /// When its claim was last refused.
    met: Instant,
    /// Whether it was tried since.
    tried: bool,
    due: Instant,
}

impl Unclaimable {
    /// A drain tries each row once: it wants an end.
    pub(crate) fn new(namespace: &str, draining: bool) -> Self {
        Self {
            namespace: namespace.to_owned(),
            retries: !draining,
            state: Mutex::default(),
        }
    }

    /// The rows that the next claim leaves out.
    pub(crate) fn left_out(&self) -> Vec<MessageId> {
        let mut state = self.state();
        if state.entries.is_empty() {
            return Vec::new();
        }
        let now = Instant::now();
        state
            .entries
            .retain(|_, entry| !entry.tried || entry.met + GONE_AFTER > now);
        self.show(&state);
        let mut all: Vec<_> = state.entries.iter().map(|(id, entry)| (entry.due, *id)).collect();
        if self.retries && state.retry_after.is_none_or(|after| after <= now) {
            all.sort_unstable();
            let due = all.iter().take(MAX_RETRIES).take_while(|(due, _)| *due <= now).count();
            for (_, id) in all.drain(..due) {
                // A claim may not meet with it, because it is gone or others have it. The next ones are tried before it is again.
                if let Some(entry) = state.entries.get_mut(&id) {
                    entry.tried = true;
                    entry.due = now + wait(entry.failures);
                }
                state.retry_after = Some(now + RETRY_INTERVAL);
            }
        }
        all.into_iter().map(|(_, id)| id).collect()
    }

    /// Takes note of what a claim brought. Returns the rows that are refused for the first time, and those that had been and
    /// are claimed now.
    pub(crate) fn note<'a>(&self, claim: &'a Claim) -> (Vec<&'a RefusedRow>, Vec<MessageId>) {
        let mut state = self.state();
        if claim.refused.is_empty() && state.entries.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let now = Instant::now();
        let claimed = claim.messages.iter().map(|claimed| claimed.message.id);
        let taken: Vec<_> = claimed.filter(|id| state.entries.remove(id).is_some()).collect();
        if !taken.is_empty() {
            // Whatever stood in the way may be gone for the others too.
            state.entries.values_mut().for_each(|entry| entry.due = now);
            state.retry_after = None;
        }
        let mut first = Vec::new();
        for row in &claim.refused {
            let before = state.entries.get(&row.id).copied();
            if before.is_none() {
                first.push(row);
                if state.entries.len() >= MAX_REMEMBERED {
                    continue;
                }
            }
            let failures = before.map_or(0, |entry| entry.failures);
            let entry = Entry {
                failures: failures.saturating_add(1),
                met: now,
                tried: false,
                due: now + wait(failures),
            };
            state.entries.insert(row.id, entry);
        }
        self.show(&state);
        (first, taken)
    }

    /// Whether further ones cannot be left out.
    pub(crate) fn is_full(&self) -> bool {
        self.state().entries.len() >= MAX_REMEMBERED
    }

    #[expect(clippy::cast_precision_loss, reason = "gauges are floats")]
    fn show(&self, state: &State) {
        let refused = state.entries.len() as f64;
        gauge!("outbox_claims_refused", "namespace" => self.namespace.clone()).set(refused);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use chrono::Utc;
    use posthaste_core::Message;
    use posthaste_core::store::ClaimedMessage;
    use tokio::time::advance;

    use super::*;

    fn refused(ids: &[MessageId]) -> Claim {
        let error = "a trigger objects".to_owned();
        Claim {
            refused: ids
                .iter()
                .map(|id| RefusedRow {
                    id: *id,
                    error: error.clone(),
                })
                .collect(),
            ..Claim::default()
        }
    }

    fn claimed(id: MessageId) -> Claim {
        let mut message = Message::new("orders", "x");
        message.id = id;
        let message = ClaimedMessage {
            message,
            fault: None,
            sequence: None,
            created_at: Utc::now(),
            attempts: 1,
            hash: None,
            version: None,
            max_attempts: None,
        };
        Claim {
            messages: vec![message],
            ..Claim::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_row_is_told_once_and_tried_less_and_less_often() {
        let (rows, id) = (Unclaimable::new("default", false), MessageId::new());
        for (n, secs) in [1, 2, 4, 8, 16, 32, 60, 60].into_iter().enumerate() {
            let claim = refused(&[id]);
            assert_eq!(rows.note(&claim).0.len(), usize::from(n == 0));
            advance(Duration::from_millis(secs * 1_000 - 1)).await;
            assert_eq!(rows.left_out(), [id]);
            advance(Duration::from_millis(1)).await;
            assert_eq!(rows.left_out(), []);
            assert_eq!(rows.left_out(), [id], "one claim is enough");
        }
        assert_eq!(rows.note(&claimed(id)).1, [id]);
        assert_eq!(rows.left_out(), []);
    }

    #[tokio::test(start_paused = true)]
    async fn few_are_tried_again_at_once_until_one_is_claimed() {
        let rows = Unclaimable::new("default", false);
        let ids: Vec<_> = (0..100).map(|_| MessageId::new()).collect();
        rows.note(&refused(&ids));
        advance(Duration::from_secs(5)).await;
        assert_eq!(rows.left_out().len(), 100 - MAX_RETRIES);
        assert_eq!(rows.left_out().len(), 100);
        rows.note(&claimed(ids[0]));
        assert_eq!(rows.left_out().len(), 99 - MAX_RETRIES);
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_tries_none_again() {
        let (rows, id) = (Unclaimable::new("default", true), MessageId::new());
        rows.note(&refused(&[id]));
        advance(Duration::from_mins(1)).await;
        assert_eq!(rows.left_out(), [id]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_that_is_gone_is_forgotten() {
        let (rows, id) = (Unclaimable::new("default", false), MessageId::new());
        rows.note(&refused(&[id]));
        advance(GONE_AFTER + Duration::from_secs(1)).await;
        assert_eq!(rows.left_out(), [], "it is looked for once more");
        assert_eq!(rows.left_out(), []);
        assert_eq!(rows.note(&refused(&[id])).0.len(), 1);
    }

    /// Rows that an operator removed, or that another relay tries at the same time, are not met.
    #[tokio::test(start_paused = true)]
    async fn those_that_are_not_met_keep_no_others_from_being_tried() {
        let rows = Unclaimable::new("default", false);
        let ids: Vec<_> = (0..30).map(|_| MessageId::new()).collect();
        rows.note(&refused(&ids));
        let mut tried: std::collections::HashSet<MessageId> = std::collections::HashSet::new();
        for _ in 0..3 {
            advance(RETRY_INTERVAL).await;
            let left_out = rows.left_out();
            tried.extend(ids.iter().filter(|id| !left_out.contains(id)));
            rows.note(&Claim::default());
        }
        assert_eq!(tried.len(), 30);
    }
}
