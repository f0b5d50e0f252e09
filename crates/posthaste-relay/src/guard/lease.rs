//! A claim's lease, counted down on the worker's own monotonic clock.
//!
//! The fence in the database keeps a slow worker from settling, but not from publishing. So each batch carries this
//! clock: it starts before the claim is sent, is moved forward by each renewal, and once it has less than a headroom
//! left nothing more is handed to the publisher.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posthaste_core::lifecycle::LeaseToken;
use posthaste_core::store::{ExtendRequest, Extended};
use posthaste_core::{MessageId, RelayStore, StoreError};
use tokio_util::sync::CancellationToken;

use crate::guard::changes;
use crate::guard::clock::Moment;
use crate::reported::NotSent;

#[derive(Debug)]
pub(crate) struct BatchLease {
    pub(crate) token: LeaseToken,
    /// The number of the claim.
    pub(crate) claim: u64,
    headroom: Duration,
    revoked: CancellationToken,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    countdown: Countdown,
    /// Of rows that could not be renewed with the others once, because another transaction had locked them.
    behind: HashMap<MessageId, Countdown>,
    /// By place in the claim; nothing in place of those that are settled.
    rows: Vec<Option<MessageId>>,
    /// How many are not settled.
    outstanding: usize,
    /// Of these, the places of the ones that are not waited for.
    aside: HashSet<u32>,
    lost: HashSet<MessageId>,
}

impl BatchLease {
    /// A lease of `duration` that was asked for at `sent`.
    pub(crate) fn new(
        token: LeaseToken,
        sent: Moment,
        duration: Duration,
        ids: impl Iterator<Item = MessageId>,
    ) -> Self {
        let rows: Vec<_> = ids.map(Some).collect();
        let state = State {
            countdown: Countdown {
                sent,
                duration,
                lapsed: false,
            },
            behind: HashMap::new(),
            outstanding: rows.len(),
            rows,
            aside: HashSet::new(),
            lost: HashSet::new(),
        };
        Self {
            token,
            claim: 0,
            headroom: duration / 5,
            revoked: CancellationToken::new(),
            state: Mutex::new(state),
        }
    }

    /// What is not settled yet.
    fn outstanding(&self) -> Vec<MessageId> {
        self.state().rows.iter().copied().flatten().collect()
    }

    /// Asks the store to renew what is not settled yet.
    pub(crate) async fn renew(&self, store: &dyn RelayStore, duration: Duration) -> Result<(), StoreError> {
        let asked = self.outstanding();
        let sent = Moment::now();
        let extended = store.extend(ExtendRequest::new(self.token, &asked, duration)).await?;
        self.renewed(sent, duration, &asked, &extended);
        Ok(())
    }

    /// Takes note of a renewal that was asked for at `sent`. Rows that were settled in the meantime look lost as well.
    fn renewed(&self, sent: Moment, duration: Duration, asked: &[MessageId], extended: &Extended) {
        let held: HashSet<_> = extended.held.iter().collect();
        let busy: HashSet<_> = extended.busy.iter().collect();
        let mut state = self.state();
        let before = state.countdown;
        for id in &extended.busy {
            state.behind.entry(*id).or_insert(before);
        }
        for (_, countdown) in state.behind.iter_mut().filter(|(id, _)| held.contains(id)) {
            countdown.renew(sent, duration);
        }
        state.countdown.renew(sent, duration);
        let mut lost: HashSet<_> = asked.iter().copied().collect();
        lost.retain(|id| !held.contains(id) && !busy.contains(id));
        let unsettled = state.rows.iter().flatten().copied().filter(|id| lost.contains(id));
        let lost: Vec<_> = unsettled.collect();
        state.lost.extend(lost);
        drop(state);
        changes::note();
    }

    /// Whether this row is not settled yet, and somebody waits for it.
    pub(crate) fn is_awaited(&self, place: u32) -> bool {
        let state = self.state();
        state.rows.get(place as usize).is_some_and(Option::is_some) && !state.aside.contains(&place)
    }

    /// Takes note of settled rows; returns whether they were the last ones.
    pub(crate) fn settled(&self, places: impl Iterator<Item = u32>) -> bool {
        let mut state = self.state();
        // Mostly neither is used, and to look up each row there would be most of the work.
        let are_alike = state.aside.is_empty() && state.behind.is_empty();
        for place in places {
            let Some(row) = state.rows.get_mut(place as usize) else {
                continue;
            };
            if are_alike {
                state.outstanding -= usize::from(row.is_some());
                state.rows[place as usize] = None;
            } else if let Some(id) = row.take() {
                state.outstanding -= 1;
                state.aside.remove(&place);
                state.behind.remove(&id);
            }
        }
        state.outstanding == 0
    }

    /// Whether no other relay can have had this row since it was claimed.
    pub(crate) fn held_throughout(&self, id: MessageId) -> bool {
        let countdown = self.state().countdown(id);
        !countdown.lapsed && !countdown.is_over()
    }

    /// From now on this row is not waited for, though its lease is renewed.
    pub(crate) fn set_aside(&self, place: u32) {
        let mut state = self.state();
        if state.rows.get(place as usize).is_some_and(Option::is_some) {
            state.aside.insert(place);
        }
    }

    /// Whether somebody waits for rows of this batch.
    pub(crate) fn is_busy(&self) -> bool {
        let state = self.state();
        state.outstanding > state.aside.len()
    }

    /// From now on nothing of this batch is handed to the publisher.
    pub(crate) fn revoke(&self) {
        self.revoked.cancel();
        changes::note();
    }

    /// Why a message may not be sent now; nothing if it may, as far as its lease goes.
    pub(crate) fn refusal(&self, id: MessageId) -> Option<NotSent> {
        if self.revoked.is_cancelled() {
            return Some(NotSent::Stopping);
        }
        (!self.may_send(id)).then_some(NotSent::Lease)
    }

    /// Whether a message may be sent now, as far as its lease goes.
    pub(crate) fn may_send(&self, id: MessageId) -> bool {
        let state = self.state();
        let countdown = state.countdown(id);
        let holds = countdown.sent.elapsed().saturating_add(self.headroom) < countdown.duration;
        holds && !self.revoked.is_cancelled() && !state.lost.contains(&id)
    }

    /// For how long all messages of the batch may be sent, unless something changes.
    pub(crate) fn is_clear(&self) -> Option<Duration> {
        let state = self.state();
        if self.revoked.is_cancelled() || !state.lost.is_empty() || !state.behind.is_empty() {
            return None;
        }
        let used = state.countdown.sent.elapsed().saturating_add(self.headroom);
        state.countdown.duration.checked_sub(used)
    }

    /// Resolves once nothing of this batch is to be handed over any more.
    pub(crate) async fn revoked(&self) {
        self.revoked.cancelled().await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn countdown(&self, id: MessageId) -> Countdown {
        self.behind.get(&id).copied().unwrap_or(self.countdown)
    }
}

#[derive(Clone, Copy, Debug)]
struct Countdown {
    /// When it was last asked for, and for how long.
    sent: Moment,
    duration: Duration,
    /// Whether it was over before it was renewed, so that others may have had its rows.
    lapsed: bool,
}

impl Countdown {
    fn renew(&mut self, sent: Moment, duration: Duration) {
        self.lapsed |= self.is_over();
        self.sent = sent;
        self.duration = duration;
    }

    fn is_over(&self) -> bool {
        self.sent.elapsed() >= self.duration
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::clock::SLEPT;

    const LEASE: Duration = Duration::from_secs(10);

    fn lease(id: MessageId) -> BatchLease {
        BatchLease::new(LeaseToken::new(), Moment::now(), LEASE, [id].into_iter())
    }

    fn held(id: MessageId) -> Extended {
        Extended::all(vec![id])
    }

    /// Proves pitfall 6.
    #[tokio::test(start_paused = true)]
    async fn nothing_is_sent_once_the_lease_less_its_headroom_is_over() {
        let id = MessageId::new();
        let lease = lease(id);
        tokio::time::advance(Duration::from_millis(7_900)).await;
        assert!(lease.may_send(id));
        let sent = Moment::now();
        tokio::time::advance(Duration::from_millis(200)).await;
        assert!(!lease.may_send(id), "8.1 s of 10 s with 2 s of headroom");
        lease.renewed(sent, LEASE, &[id], &held(id));
        assert!(lease.may_send(id), "a renewal counts from when it was asked for");
    }

    /// Proves pitfall 6.
    #[tokio::test(start_paused = true)]
    async fn a_lease_runs_out_while_the_machine_sleeps() {
        let id = MessageId::new();
        let lease = lease(id);
        SLEPT.set(Duration::from_secs(9));
        assert!(!lease.may_send(id), "the database's clock went on");
        lease.renewed(Moment::now(), LEASE, &[id], &held(id));
        assert!(lease.may_send(id));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_was_over_once_was_not_held_throughout() {
        let id = MessageId::new();
        let lease = lease(id);
        tokio::time::advance(LEASE / 2).await;
        lease.renewed(Moment::now(), LEASE, &[id], &held(id));
        tokio::time::advance(LEASE / 2).await;
        assert!(lease.held_throughout(id));
        tokio::time::advance(LEASE / 2).await;
        assert!(!lease.held_throughout(id));
        lease.renewed(Moment::now(), LEASE, &[id], &held(id));
        assert!(lease.may_send(id) && !lease.held_throughout(id));
    }

    #[tokio::test(start_paused = true)]
    async fn a_row_lost_to_another_worker_is_not_sent() {
        let id = MessageId::new();
        let lease = lease(id);
        lease.renewed(Moment::now(), LEASE, &[id], &Extended::default());
        assert!(!lease.may_send(id));
    }

    #[tokio::test(start_paused = true)]
    async fn a_revoked_batch_is_not_sent() {
        let id = MessageId::new();
        let lease = lease(id);
        lease.revoke();
        assert!(!lease.may_send(id));
    }

    /// It is still ours, but the database's countdown goes on.
    #[tokio::test(start_paused = true)]
    async fn a_row_that_is_locked_is_not_lost_and_not_renewed() {
        let (locked, free) = (MessageId::new(), MessageId::new());
        let lease = BatchLease::new(LeaseToken::new(), Moment::now(), LEASE, [locked, free].into_iter());
        let busy = Extended {
            held: vec![free],
            busy: vec![locked],
        };
        tokio::time::advance(LEASE / 2).await;
        lease.renewed(Moment::now(), LEASE, &[locked, free], &busy);
        assert!(lease.may_send(locked) && lease.held_throughout(locked));
        tokio::time::advance(LEASE / 2).await;
        lease.renewed(Moment::now(), LEASE, &[locked, free], &busy);
        assert!(lease.may_send(free) && lease.held_throughout(free));
        assert!(!lease.may_send(locked) && !lease.held_throughout(locked));
        lease.renewed(
            Moment::now(),
            LEASE,
            &[locked, free],
            &Extended::all(vec![locked, free]),
        );
        assert!(lease.may_send(locked), "the lock is gone");
        assert!(!lease.held_throughout(locked), "others may have had it");
    }
}
