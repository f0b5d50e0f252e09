//! Verdicts that the database refuses to write, or cannot while somebody else has locked the row.
//!
//! A constraint, a trigger or a missing grant may refuse the verdict on one row, and would again. What became of the
//! message is known all the same, so it is remembered: the message is not handed to the publisher again, neither while
//! its lease is renewed nor when its row is claimed anew, and the verdict is tried again, alone and less and less often.
//! While nothing but refusals comes back, claims take one message at a time and wait in between: if it is all verdicts
//! that are refused, few messages are published for nothing. A lock is no refusal: its verdict is tried again soon, and
//! nothing else waits.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::gauge;
use posthaste_core::MessageId;
use posthaste_core::lifecycle::Verdict;
use posthaste_core::publisher::Outcome;
use posthaste_core::store::Terms;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use crate::reported::{Reported, Ticket};

const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_mins(1);

/// The waits for a row that somebody else has locked.
pub(crate) const FIRST_BUSY_WAIT: Duration = Duration::from_millis(100);
const LONGEST_BUSY_WAIT: Duration = Duration::from_secs(2);

/// A lock that is held for longer than this is worth a word.
const BUSY_TOLD_AFTER: Duration = Duration::from_secs(1);

/// What is known of a row that is free is believed for so long after it was last seen, or its claim lost: later on it may
/// have been settled by somebody else, replayed, or changed by hand.
const FREE_FOR: Duration = Duration::from_mins(10);

/// More than so many are not held: nothing more is claimed until the database takes some of them.
const MAX_HELD: usize = 10_000;

/// More than so many rows that are free again are not remembered; the one that was not seen for longest is forgotten.
const MAX_FREE: usize = 10_000;

/// At most so many that were refused are tried again in one go, so that new verdicts do not wait for long.
const MAX_RETRIES: usize = 100;

/// At most so many whose rows were locked are tried again with one call.
const MAX_BUSY_RETRIES: usize = 1_000;

#[derive(Debug)]
pub(crate) struct Refusals {
    namespace: String,
    /// Nobody mends a row, nor replays it where it stands, so a death is as final as all else.
    append_only: bool,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<MessageId, Entry>,
    /// Rounds of settling in a row that brought refusals and nothing else.
    barren: u32,
    claims_after: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    ticket: Ticket,
    outcome: Outcome,
    verdict: Verdict,
    hold: Hold,
    failures: u32,
    /// Since when it is held so.
    since: Instant,
    due: Instant,
    /// When its row was last ours.
    seen: Instant,
    /// Whether the log speaks of it.
    told: bool,
}

impl Entry {
    fn is_outdated(&self) -> bool {
        !self.hold.is_leased() && self.seen.elapsed() >= FREE_FOR
    }

    /// Whether it holds of a row that was claimed anew. Whoever changed or replayed the row wants it to be published: a
    /// death is not believed of the next claim, though it is not tried all the time, nor anything of a row that counts
    /// its attempts anew.
    fn holds_of(&self, version: Option<i64>, attempts: u32, append_only: bool) -> bool {
        let is_another_life = attempts < self.ticket.attempts;
        let was_changed = self.hold == Hold::Lost && self.ticket.version != version;
        let may_try = !append_only && self.is_due() && matches!(self.verdict, Verdict::Dead { .. });
        !is_another_life && !was_changed && !may_try
    }

    /// Whether it is time to try to write it again. Under a lease the row is not claimed again and again.
    fn is_due(&self) -> bool {
        self.hold.is_leased() || self.due <= Instant::now()
    }
}

/// Where the row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// Under the lease of its claim, which is renewed.
    Leased,
    /// The same, and nobody refused anything: somebody else has locked it.
    Busy,
    /// Free, as it was before its claim.
    Free,
    /// Free, and nobody refused anything: the claim was lost together with its verdicts.
    Lost,
}

impl Hold {
    fn is_leased(self) -> bool {
        matches!(self, Self::Leased | Self::Busy)
    }

    fn is_refused(self) -> bool {
        matches!(self, Self::Leased | Self::Free)
    }
}

/// A verdict from memory.
#[derive(Debug)]
pub(crate) struct Recalled {
    pub(crate) outcome: Outcome,
    pub(crate) verdict: Verdict,
    /// Whether it is still what became of the message. Else it is to be published.
    pub(crate) holds: bool,
    /// Whether it is time to try to write it again.
    pub(crate) due: bool,
    /// The earlier claim, if its lease was being renewed. It is over now.
    pub(crate) leased: Option<Ticket>,
}

impl Refusals {
    pub(crate) fn new(namespace: &str, terms: Terms) -> Self {
        Self {
            namespace: namespace.to_owned(),
            append_only: terms.append_only,
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Remembers a verdict that was not written; returns whether it is time to say so, once. A message that was only
    /// given back has nothing to remember, but as soon as its row is free it can be given back after all.
    pub(crate) fn remember(&self, reported: Reported, hold: Hold) -> bool {
        let Reported {
            ticket,
            outcome,
            verdict,
        } = reported;
        if verdict == Verdict::Released && hold != Hold::Busy {
            return !self.knows(ticket.id);
        }
        let mut state = self.state();
        let now = Instant::now();
        if matches!(hold, Hold::Free | Hold::Lost) {
            state.make_room();
        }
        let before = state.entries.get(&ticket.id);
        let before = before.filter(|before| (before.hold == Hold::Busy) == (hold == Hold::Busy));
        let failures = before.map_or(0, |before| before.failures);
        let since = before.map_or(now, |before| before.since);
        let told_before = before.is_some_and(|before| before.told);
        let told = match hold {
            Hold::Leased | Hold::Free => true,
            Hold::Busy => told_before || since.elapsed() >= BUSY_TOLD_AFTER,
            Hold::Lost => false,
        };
        let due = match hold {
            Hold::Leased | Hold::Free => now + wait(failures),
            Hold::Busy => now + busy_wait(failures),
            Hold::Lost => now,
        };
        let entry = Entry {
            outcome,
            verdict,
            hold,
            failures: failures.saturating_add(1),
            since,
            due,
            seen: now,
            told,
            ticket,
        };
        state.entries.insert(entry.ticket.id, entry);
        self.show(&state);
        told && !told_before
    }

    /// Forgets a message whose verdict was written; returns whether the log spoke of it. That its row was given back
    /// meanwhile changes nothing of what became of it.
    pub(crate) fn written(&self, id: MessageId, verdict: &Verdict) -> bool {
        !(*verdict == Verdict::Released && self.knows(id)) && self.forget(id)
    }

    /// Forgets a message, because its row is another worker's; returns whether the log spoke of it.
    pub(crate) fn forget(&self, id: MessageId) -> bool {
        let mut state = self.state();
        let Some(entry) = state.entries.remove(&id) else {
            return false;
        };
        self.show(&state);
        drop(state);
        self.changed.notify_waiters();
        entry.told
    }

    /// Ends a round of settling, in which some were refused for the first time. If verdicts are taken again, those that
    /// were refused may be too.
    pub(crate) fn round(&self, applied: usize, refused: usize) {
        let mut state = self.state();
        if applied > 0 {
            if state.barren == 0 {
                return;
            }
            state.barren = 0;
            state.claims_after = None;
        } else if refused > 0 {
            state.claims_after = Some(Instant::now() + wait(state.barren));
            state.barren = state.barren.saturating_add(1);
        } else {
            return;
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// A refused verdict was taken after all: whatever stood in the way may be gone for the others too.
    pub(crate) fn hurry(&self) {
        let now = Instant::now();
        let mut state = self.state();
        let refused = state.entries.values_mut().filter(|entry| entry.hold.is_refused());
        refused.for_each(|entry| entry.due = now);
    }

    /// Whether the verdict on a message is known.
    pub(crate) fn knows(&self, id: MessageId) -> bool {
        self.state().entry(id).is_some()
    }

    /// The verdict on a message whose row was claimed anew, in this version and for this attempt.
    pub(crate) fn recall(&self, id: MessageId, version: Option<i64>, attempts: u32) -> Option<Recalled> {
        let mut state = self.state();
        let entry = state.entry(id)?;
        if entry.hold == Hold::Free {
            entry.seen = Instant::now();
        }
        Some(Recalled {
            outcome: entry.outcome.clone(),
            verdict: entry.verdict.clone(),
            holds: entry.holds_of(version, attempts, self.append_only),
            due: entry.is_due(),
            leased: entry.hold.is_leased().then(|| entry.ticket.clone()),
        })
    }

    /// When the next verdict on a leased row is to be tried again, or one on a free row is to be forgotten.
    pub(crate) fn next_retry(&self) -> Option<Instant> {
        let next = |entry: &Entry| {
            if entry.hold.is_leased() {
                entry.due
            } else {
                entry.seen + FREE_FOR
            }
        };
        self.state().entries.values().map(next).min()
    }

    /// The verdicts on leased rows that are to be tried again now, or all of them, in groups: those that were refused each
    /// alone.
    pub(crate) fn retries(&self, all: bool) -> Vec<Vec<Reported>> {
        let now = Instant::now();
        let mut state = self.state();
        state.entries.retain(|_, entry| !entry.is_outdated());
        self.show(&state);
        let mut due: Vec<_> = state.leased().filter(|entry| all || entry.due <= now).collect();
        due.sort_by_key(|entry| entry.due);
        let (busy, refused): (Vec<_>, Vec<_>) = due.into_iter().partition(|entry| entry.hold == Hold::Busy);
        let reported = |entry: &Entry| Reported {
            ticket: entry.ticket.clone(),
            outcome: entry.outcome.clone(),
            verdict: entry.verdict.clone(),
        };
        let busy = busy.chunks(MAX_BUSY_RETRIES);
        let busy = busy.map(|group| group.iter().map(|entry| reported(entry)).collect());
        let refused = refused.into_iter().take(MAX_RETRIES);
        busy.chain(refused.map(|entry| vec![reported(entry)])).collect()
    }

    /// Whether nothing but refusals came back lately.
    pub(crate) fn is_barren(&self) -> bool {
        self.state().barren > 0
    }

    /// How many verdicts are refused at present.
    pub(crate) fn count(&self) -> usize {
        self.state().refused()
    }

    /// How many verdicts wait for somebody's lock.
    pub(crate) fn busy(&self) -> usize {
        self.state().busy()
    }

    /// Waits until no verdict waits for a lock, but not for longer than so; returns whether fewer do.
    pub(crate) async fn wait_for_locks(&self, longest: Duration) -> bool {
        let before = self.busy();
        let none = async {
            loop {
                // Registered before the look, so that no change in between is missed.
                let changed = self.changed.notified();
                if self.busy() == 0 {
                    return;
                }
                changed.await;
            }
        };
        // If it takes too long, those that are left are counted.
        let _ = timeout(longest, none).await;
        self.busy() < before
    }

    /// Waits until something may be claimed; returns how many, if only some.
    pub(crate) async fn wait_for_room(&self) -> Option<u32> {
        loop {
            // Registered before the look, so that no change in between is missed.
            let changed = self.changed.notified();
            let (full, barren, after) = {
                let state = self.state();
                (state.leased().count() >= MAX_HELD, state.barren > 0, state.claims_after)
            };
            match after.filter(|after| *after > Instant::now()) {
                None if !full => return barren.then_some(1),
                Some(after) if !full => tokio::select! {
                    () = changed => {}
                    () = sleep_until(after) => {}
                },
                _ => changed.await,
            }
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "gauges are floats")]
    fn show(&self, state: &State) {
        let refused = state.refused() as f64;
        gauge!("outbox_verdicts_refused", "namespace" => self.namespace.clone()).set(refused);
        gauge!("outbox_verdicts_busy", "namespace" => self.namespace.clone()).set(state.busy() as f64);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// What is known of a message, unless it is too long ago.
    fn entry(&mut self, id: MessageId) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(&id)?;
        // Of one that is only to be given back nothing is known.
        (!entry.is_outdated() && entry.verdict != Verdict::Released).then_some(entry)
    }

    fn leased(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values().filter(|entry| entry.hold.is_leased())
    }

    fn refused(&self) -> usize {
        self.entries.values().filter(|entry| entry.hold.is_refused()).count()
    }

    fn busy(&self) -> usize {
        self.entries.values().filter(|entry| entry.hold == Hold::Busy).count()
    }

    fn make_room(&mut self) {
        if self.entries.len() < MAX_FREE {
            return;
        }
        let free = self.entries.iter().filter(|(_, entry)| !entry.hold.is_leased());
        // Most lost claims are settled by somebody else and never seen again.
        let oldest = free.min_by_key(|(_, entry)| (entry.hold != Hold::Lost, entry.due));
        let Some(oldest) = oldest.map(|(id, _)| *id) else {
            return;
        };
        if self
            .entries
            .remove(&oldest)
            .is_some_and(|entry| entry.hold != Hold::Lost)
        {
            tracing::error!(
                id = %oldest,
                "more than {MAX_FREE} verdicts are refused; one is forgotten, and its message may be published again"
            );
        }
    }
}

/// How long until something that was refused so often is tried again.
pub(crate) fn wait(failures: u32) -> Duration {
    FIRST_WAIT.saturating_mul(1 << failures.min(16)).min(LONGEST_WAIT)
}

fn busy_wait(failures: u32) -> Duration {
    FIRST_BUSY_WAIT
        .saturating_mul(1 << failures.min(16))
        .min(LONGEST_BUSY_WAIT)
}

#[cfg(test)]
mod tests {
    use chrono::Utc;
    use posthaste_core::lifecycle::LeaseToken;
    use tokio::time::advance;

    use super::*;

    fn reported(id: MessageId) -> Reported {
        let ticket = Ticket {
            id,
            token: LeaseToken::new(),
            bytes: 1,
            topic: "orders".into(),
            key: None,
            stream: 0,
            attempts: 1,
            max_attempts: 10,
            version: None,
            created_at: Utc::now(),
        };
        Reported {
            ticket,
            outcome: Outcome::Delivered,
            verdict: Verdict::Delivered,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_verdict_is_tried_less_and_less_often_but_at_least_once_a_minute() {
        let (refusals, id) = (Refusals::new("default", Terms::default()), MessageId::new());
        let mut waits = Vec::new();
        for n in 0..9 {
            assert_eq!(refusals.remember(reported(id), Hold::Leased), n == 0, "told once");
            waits.push((refusals.next_retry().unwrap() - Instant::now()).as_secs());
            assert!(refusals.retries(false).is_empty());
            advance(Duration::from_secs(waits[n])).await;
            assert_eq!(refusals.retries(false).len(), 1);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert!(refusals.forget(id) && refusals.next_retry().is_none());
    }

    /// A lock may be gone in the next moment, and is no reason for alarm unless it lasts.
    #[tokio::test(start_paused = true)]
    async fn a_verdict_that_waits_for_a_lock_is_tried_soon_and_told_once_if_it_lasts() {
        let (refusals, id) = (Refusals::new("default", Terms::default()), MessageId::new());
        let (mut waits, mut told) = (Vec::new(), Vec::new());
        for n in 0..7 {
            told.push(refusals.remember(reported(id), Hold::Busy));
            waits.push((refusals.next_retry().unwrap() - Instant::now()).as_millis());
            advance(Duration::from_millis(u64::try_from(waits[n]).unwrap())).await;
            assert_eq!(refusals.retries(false).len(), 1);
        }
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 2_000, 2_000]);
        assert_eq!(told, [false, false, false, false, true, false, false]);
        assert_eq!((refusals.busy(), refusals.count()), (1, 0));
        assert!(refusals.recall(id, None, 1).unwrap().due, "it is not published again");
        assert!(refusals.written(id, &Verdict::Delivered), "that is told too");
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_message_that_is_to_be_given_back_nothing_is_known() {
        let (refusals, id) = (Refusals::new("default", Terms::default()), MessageId::new());
        let released = Reported {
            verdict: Verdict::Released,
            ..reported(id)
        };
        refusals.remember(released, Hold::Busy);
        assert!(!refusals.knows(id) && refusals.recall(id, None, 1).is_none());
        assert_eq!(refusals.retries(true).len(), 1);
        refusals.written(id, &Verdict::Released);
        assert_eq!(refusals.busy(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_that_is_free_is_tried_when_it_is_claimed_and_its_time_has_come() {
        let (refusals, id) = (Refusals::new("default", Terms::default()), MessageId::new());
        refusals.remember(reported(id), Hold::Free);
        assert!(refusals.retries(false).is_empty(), "only a claim brings it back");
        assert!(!refusals.recall(id, None, 1).unwrap().due);
        advance(Duration::from_secs(2)).await;
        assert!(refusals.recall(id, None, 1).unwrap().due);
        assert_eq!(refusals.count(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn while_only_refusals_come_back_claims_take_one_message_and_wait() {
        let refusals = Refusals::new("default", Terms::default());
        assert_eq!(refusals.wait_for_room().await, None);
        let start = Instant::now();
        for wait in [1, 3, 7] {
            refusals.round(0, 5);
            assert_eq!(refusals.wait_for_room().await, Some(1));
            assert_eq!(start.elapsed().as_secs(), wait);
        }
        refusals.round(1, 5);
        assert_eq!(refusals.wait_for_room().await, None, "at once");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_free_and_not_seen_again_does_not_fill_the_memory() {
        let refusals = Refusals::new("default", Terms::default());
        let first = MessageId::new();
        refusals.remember(reported(first), Hold::Free);
        for _ in 0..MAX_FREE {
            advance(Duration::from_millis(1)).await;
            refusals.remember(reported(MessageId::new()), Hold::Free);
        }
        assert_eq!(refusals.count(), MAX_FREE);
        assert!(!refusals.knows(first));
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_lost_claim_told_is_not_believed_for_ever() {
        let (refusals, lost, free) = (
            Refusals::new("default", Terms::default()),
            MessageId::new(),
            MessageId::new(),
        );
        refusals.remember(reported(lost), Hold::Lost);
        refusals.remember(reported(free), Hold::Free);
        advance(FREE_FOR / 2).await;
        refusals.hurry();
        assert!(refusals.recall(free, None, 1).is_some(), "it is seen");
        assert!(refusals.knows(lost) && refusals.recall(lost, None, 1).unwrap().due);
        advance(FREE_FOR / 2).await;
        assert!(!refusals.knows(lost) && refusals.recall(lost, None, 1).is_none());
        assert!(refusals.knows(free), "it would be refused again");
        advance(FREE_FOR / 2).await;
        assert!(refusals.next_retry() <= Some(Instant::now()));
        refusals.retries(false);
        assert_eq!(refusals.count(), 0, "somebody else has settled it");
    }

    /// Somebody who changes a row or replays it wants it to be published; he knows nothing of a verdict that was lost.
    #[tokio::test(start_paused = true)]
    async fn what_a_lost_claim_told_is_not_believed_of_a_row_that_was_changed() {
        let (refusals, id) = (Refusals::new("default", Terms::default()), MessageId::new());
        let mut lost = reported(id);
        lost.ticket.version = Some(3);
        refusals.remember(lost.clone(), Hold::Lost);
        assert!(refusals.recall(id, Some(3), 1).unwrap().holds);
        assert!(!refusals.recall(id, Some(4), 1).unwrap().holds);
        refusals.remember(lost, Hold::Free);
        assert!(
            refusals.recall(id, Some(4), 1).unwrap().holds,
            "it is the mended row that is claimed"
        );
    }

    /// Somebody may have mended the message, or replayed it.
    #[tokio::test(start_paused = true)]
    async fn a_death_is_not_believed_of_the_next_claim() {
        let (refusals, leased, free) = (
            Refusals::new("default", Terms::default()),
            MessageId::new(),
            MessageId::new(),
        );
        let dead = |id| Reported {
            verdict: Verdict::Dead { error: "no".into() },
            ..reported(id)
        };
        refusals.remember(dead(leased), Hold::Leased);
        refusals.remember(dead(free), Hold::Free);
        assert!(!refusals.recall(leased, None, 2).unwrap().holds);
        assert!(
            refusals.recall(free, None, 1).unwrap().holds,
            "it is not tried all the time"
        );
        advance(Duration::from_secs(2)).await;
        assert!(!refusals.recall(free, None, 1).unwrap().holds);
        assert_eq!(refusals.count(), 2, "they are refused all the same");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_believed_of_a_row_that_counts_its_attempts_anew() {
        let (refusals, id) = (Refusals::new("default", Terms::default()), MessageId::new());
        let mut third = reported(id);
        third.ticket.attempts = 3;
        refusals.remember(third, Hold::Leased);
        assert!(refusals.recall(id, None, 4).unwrap().holds);
        assert!(!refusals.recall(id, None, 1).unwrap().holds);
    }
}
