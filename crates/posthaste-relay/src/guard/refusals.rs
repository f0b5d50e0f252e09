//! Verdicts that the database refuses to write, or cannot while another transaction has locked the row.
//!
//! A constraint, a trigger or a missing grant may refuse the verdict on one row, and would again. What became of the
//! message is known all the same, so it is remembered: the message is not handed to the publisher again, neither while
//! its lease is renewed nor when its row is claimed anew, and the verdict is tried again, alone and less and less often.
//! While nothing but refusals comes back, claims take one message at a time and wait in between: if it is all verdicts
//! that are refused, few messages are published for nothing. A lock is no refusal: its verdict is tried again soon, and
//! nothing else waits.

mod entry;
mod memory;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::gauge;
use posthaste_core::MessageId;
use posthaste_core::lifecycle::Verdict;
use posthaste_core::store::StoreRequirements;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use self::entry::{BUSY_TOLD_AFTER, Entry, FREE_FOR, Recalled, busy_wait};
pub(crate) use self::entry::{FIRST_BUSY_WAIT, Hold, wait};
use self::memory::Memory;
use crate::reported::Reported;

/// At most so many that were refused are tried again in one go, so that new verdicts do not wait for long.
const MAX_RETRIES: usize = 100;

/// How often one of the deaths whose letters are in the file is tried. To try each would keep the database busy with what it
/// refuses; if one is taken, the others are tried at once.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// At most so many whose rows were locked are tried again with one call.
const MAX_BUSY_RETRIES: usize = 1_000;

#[derive(Debug)]
pub(crate) struct Refusals {
    namespace: String,
    /// A row is not fixed, nor replayed where it stands, so a death is as final as all else.
    append_only: bool,
    /// A death whose letter is in the file can be written without it.
    dead_letter_table: bool,
    state: Mutex<Memory>,
    changed: Notify,
    /// Something is to be tried again earlier than was thought.
    hurried: Notify,
}

impl Refusals {
    pub(crate) fn new(namespace: &str, requirements: StoreRequirements) -> Self {
        Self {
            namespace: namespace.to_owned(),
            append_only: requirements.append_only,
            dead_letter_table: requirements.dead_letter_table,
            state: Mutex::default(),
            changed: Notify::new(),
            hurried: Notify::new(),
        }
    }

    /// Remembers a verdict that was not written; returns whether it is time to say so, once. A message that was only
    /// given back has nothing to remember, but as soon as its row is free it can be given back after all.
    pub(crate) fn remember(&self, reported: Reported, hold: Hold) -> bool {
        let Reported {
            message,
            outcome,
            verdict,
            spooled,
        } = reported;
        if verdict == Verdict::Released && hold != Hold::Busy {
            return !self.knows(message.id);
        }
        let mut message = message;
        if spooled || !matches!(verdict, Verdict::Dead { .. }) {
            message.whole = None;
        }
        let mut state = self.state();
        let now = Instant::now();
        if matches!(hold, Hold::Free | Hold::Lost) {
            state.make_room();
        }
        let before = state.entries.get(&message.id);
        let before = before.filter(|before| (before.hold == Hold::Busy) == (hold == Hold::Busy));
        let failures = before.map_or(0, |before| before.failures);
        let since = before.map_or(now, |before| before.since);
        let told_before = before.is_some_and(|before| before.told);
        let spooled = spooled || before.is_some_and(|before| before.spooled);
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
            spooled,
            fresh: false,
            message,
        };
        state.entries.insert(entry.message.id, entry);
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
        for entry in refused {
            entry.due = now;
            entry.fresh |= entry.is_kept();
        }
    }

    /// The letters of these messages are in the file. Where a table of dead letters is what refuses them, their deaths are
    /// written without.
    pub(crate) fn spooled(&self, ids: impl Iterator<Item = MessageId>) {
        let now = Instant::now();
        let mut state = self.state();
        for id in ids {
            if let Some(entry) = state.entries.get_mut(&id).filter(|entry| !entry.spooled) {
                entry.spooled = true;
                // The file has it.
                entry.message.whole = None;
                if self.dead_letter_table {
                    (entry.due, entry.fresh) = (now, true);
                }
            }
        }
        drop(state);
        self.hurried.notify_one();
        self.changed.notify_waiters();
    }

    /// Resolves when something is to be tried again earlier than [`Self::next_retry`] said.
    pub(crate) async fn hurried(&self) {
        self.hurried.notified().await;
    }

    /// Whether there is nothing to remember.
    pub(crate) fn is_empty(&self) -> bool {
        self.state().entries.is_empty()
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
            spooled: entry.spooled,
            leased: entry.hold.is_leased().then(|| entry.message.clone()),
        })
    }

    /// When the next verdict on a leased row is to be tried again, or one on a free row is to be forgotten.
    pub(crate) fn next_retry(&self) -> Option<Instant> {
        let state = self.state();
        let next = |entry: &Entry| {
            if entry.is_kept() {
                entry.due.max(state.next_probe.unwrap_or(entry.due))
            } else if entry.hold.is_leased() {
                entry.due
            } else {
                entry.seen + FREE_FOR
            }
        };
        state.entries.values().map(next).min()
    }

    /// The verdicts on leased rows that are to be tried again now, or all of them, in groups: those that were refused each
    /// alone.
    pub(crate) fn retries(&self, all: bool) -> Vec<Vec<Reported>> {
        let now = Instant::now();
        let mut state = self.state();
        state.entries.retain(|_, entry| !entry.is_outdated());
        self.show(&state);
        let probes = usize::from(state.next_probe.is_none_or(|next| next <= now));
        let mut due: Vec<_> = state.leased().filter(|entry| all || entry.due <= now).collect();
        due.sort_by_key(|entry| entry.due);
        let (kept, due): (Vec<_>, Vec<_>) = due.into_iter().partition(|entry| !all && entry.is_kept());
        let (busy, mut refused): (Vec<_>, Vec<_>) = due
            .into_iter()
            .partition(|entry| entry.hold == Hold::Busy || entry.fresh);
        let tries_one = !kept.is_empty() && probes > 0;
        refused.extend(kept.into_iter().take(probes));
        let reported = |entry: &Entry| Reported {
            message: entry.message.clone(),
            outcome: entry.outcome.clone(),
            verdict: entry.verdict.clone(),
            spooled: entry.spooled,
        };
        let busy = busy.chunks(MAX_BUSY_RETRIES);
        let busy = busy.map(|group| group.iter().map(|entry| reported(entry)).collect());
        let refused = refused.into_iter().take(MAX_RETRIES);
        let groups = busy.chain(refused.map(|entry| vec![reported(entry)])).collect();
        if tries_one {
            state.next_probe = Some(now + PROBE_INTERVAL);
        }
        groups
    }

    /// Whether nothing but refusals came back lately.
    pub(crate) fn is_barren(&self) -> bool {
        self.state().barren > 0
    }

    /// How many verdicts are refused at present.
    pub(crate) fn count(&self) -> usize {
        self.state().refused()
    }

    /// How many verdicts wait for another transaction's lock.
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
                (state.is_full(), state.barren > 0, state.claims_after)
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
    fn show(&self, state: &Memory) {
        let refused = state.refused() as f64;
        gauge!("outbox_verdicts_refused", "namespace" => self.namespace.clone()).set(refused);
        gauge!("outbox_verdicts_busy", "namespace" => self.namespace.clone()).set(state.busy() as f64);
    }

    fn state(&self) -> MutexGuard<'_, Memory> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
