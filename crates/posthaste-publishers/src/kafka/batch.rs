//! What became of a batch's messages, told lane by lane and in order.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use posthaste_core::MessageId;
use posthaste_core::publisher::{Outcome, PublishError, Report};
use tokio::sync::Notify;

use super::producer::Role;

/// How a message ended.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// The broker acknowledged it.
    Delivered,
    /// It was tried and failed.
    Failed(PublishError),
    /// It was not handed over at all.
    NotHandedOver,
    /// It was taken back before it was sent.
    Withdrawn,
    /// It was taken back when it may have been sent.
    Uncertain,
}

/// A batch on its way.
///
/// Answers of one lane are passed on in the lane's order, whatever the order in which they come in: only so is it known
/// whether a message failed by itself or because of one before it.
pub(super) struct Ongoing {
    report: Report,
    state: Mutex<State>,
    /// Woken when the first of a lane, or the last of all, has been answered.
    changed: Notify,
}

struct State {
    lanes: Vec<Lane>,
    unanswered: usize,
    last_answer: Instant,
    /// Why we stopped waiting, if we did.
    gave_up: Option<PublishError>,
}

struct Lane {
    role: Option<Role>,
    ids: Vec<MessageId>,
    ends: Vec<Option<End>>,
    answered: usize,
    failed: bool,
}

impl Ongoing {
    /// A batch with these lanes.
    pub(super) fn new(lanes: Vec<Vec<MessageId>>, report: Report) -> Self {
        let unanswered = lanes.iter().map(Vec::len).sum();
        let lane = |ids: Vec<MessageId>| Lane {
            role: None,
            ends: vec![None; ids.len()],
            ids,
            answered: 0,
            failed: false,
        };
        Self {
            report,
            state: Mutex::new(State {
                lanes: lanes.into_iter().map(lane).collect(),
                unanswered,
                last_answer: Instant::now(),
                gave_up: None,
            }),
            changed: Notify::new(),
        }
    }

    /// Takes note of how the message at a place of a lane ended.
    pub(super) fn end(&self, lane: usize, place: usize, end: End) {
        let mut outcomes = Vec::new();
        let mut state = self.state();
        let State { lanes, gave_up, .. } = &mut *state;
        let of_lane = &mut lanes[lane];
        if place < of_lane.answered || of_lane.ends[place].is_some() {
            return;
        }
        of_lane.ends[place] = Some(end);
        while let Some(end) = of_lane.ends.get_mut(of_lane.answered).and_then(Option::take) {
            let id = of_lane.ids[of_lane.answered];
            outcomes.push((id, of_lane.outcome(id, end, gave_up.as_ref())));
            of_lane.answered += 1;
        }
        let news = of_lane.answered == 1 || of_lane.failed;
        state.unanswered -= outcomes.len();
        if !outcomes.is_empty() {
            state.last_answer = Instant::now();
        }
        let news = news || state.unanswered == 0;
        drop(state);
        for (id, outcome) in outcomes {
            self.report.outcome(id, outcome);
        }
        if news {
            self.changed.notify_waiters();
        }
    }

    /// Whether the lane goes on: nothing of it failed.
    pub(super) fn goes_on(&self, lane: usize) -> bool {
        !self.state().lanes[lane].failed
    }

    /// Takes note of the producer that serves the lane.
    pub(super) fn goes_by(&self, lane: usize, role: Role) {
        self.state().lanes[lane].role = Some(role);
    }

    /// Whether a producer of this role still owes an answer.
    pub(super) fn awaits(&self, role: Role) -> bool {
        let open = |lane: &Lane| lane.role == Some(role) && lane.answered < lane.ids.len();
        self.state().lanes.iter().any(open)
    }

    /// From now on a message that is taken back failed by `error`.
    pub(super) fn give_up(&self, error: PublishError) {
        self.state().gave_up.get_or_insert(error);
    }

    /// When the last answer came.
    pub(super) fn last_answer(&self) -> Instant {
        self.state().last_answer
    }

    /// Waits until the first messages of all these lanes have been answered.
    pub(super) async fn heads_answered(&self, lanes: &[usize]) {
        self.wait(|state| lanes.iter().all(|&lane| state.lanes[lane].answered > 0))
            .await;
    }

    /// Waits until everything has been answered.
    pub(super) async fn over(&self) {
        self.wait(|state| state.unanswered == 0).await;
    }

    async fn wait(&self, condition: impl Fn(&State) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // Registered before the look, so that no change in between is missed.
            changed.as_mut().enable();
            if condition(&self.state()) {
                return;
            }
            changed.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lane {
    fn outcome(&mut self, id: MessageId, end: End, gave_up: Option<&PublishError>) -> Outcome {
        let after_failure = self.failed;
        self.failed |= !matches!(end, End::Delivered);
        match end {
            End::Delivered => {
                if after_failure {
                    tracing::error!(%id, "Kafka took a message after an earlier one of its key had failed");
                }
                Outcome::Delivered
            }
            End::Uncertain => {
                let error = gave_up.cloned().filter(|_| !after_failure);
                Outcome::Failed(error.unwrap_or_else(|| {
                    PublishError::unknown("Kafka: the message was on its way when the producer was replaced")
                }))
            }
            // The message before it took the blame.
            End::Failed(_) | End::Withdrawn if after_failure => Outcome::NotAttempted,
            End::NotHandedOver => Outcome::NotAttempted,
            End::Failed(error) => Outcome::Failed(error),
            End::Withdrawn => gave_up.cloned().map_or(Outcome::NotAttempted, Outcome::Failed),
        }
    }
}
