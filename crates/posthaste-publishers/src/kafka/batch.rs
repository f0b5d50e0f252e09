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
    /// Whether anything of it did not go out. Known at once, while those before it may still be on their way.
    stopped: bool,
    /// Whether one of those that were answered, in order, did not go out: whoever comes after it bears no blame.
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
            stopped: false,
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
        of_lane.stopped |= !matches!(end, End::Delivered);
        of_lane.ends[place] = Some(end);
        let before = of_lane.answered;
        while let Some(end) = of_lane.ends.get_mut(of_lane.answered).and_then(Option::take) {
            let id = of_lane.ids[of_lane.answered];
            outcomes.push((id, of_lane.outcome(id, end, gave_up.as_ref())));
            of_lane.answered += 1;
        }
        let news = before == 0 && of_lane.answered > 0;
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

    /// Whether the lane goes on: nothing of it failed or was kept back.
    pub(super) fn goes_on(&self, lane: usize) -> bool {
        !self.state().lanes[lane].stopped
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    type Outcomes = Arc<Mutex<Vec<(MessageId, Outcome)>>>;

    /// A lane of as many messages, and what is reported of it.
    fn lane(length: usize) -> (Ongoing, Vec<MessageId>, Outcomes) {
        let ids: Vec<MessageId> = (0..length).map(|_| MessageId::new()).collect();
        let outcomes = Outcomes::default();
        let sink = Arc::clone(&outcomes);
        let report = Report::new(move |id, outcome| sink.lock().unwrap().push((id, outcome)));
        (Ongoing::new(vec![ids.clone()], report), ids, outcomes)
    }

    /// What is reported when the places end like this, in this order.
    fn reported(gave_up: bool, ends: &[(usize, End)]) -> Vec<Outcome> {
        let (ongoing, ids, outcomes) = lane(ends.len());
        if gave_up {
            ongoing.give_up(silence());
        }
        for (place, end) in ends {
            ongoing.end(0, *place, end.clone());
            ongoing.end(0, *place, End::Delivered);
        }
        let outcomes = outcomes.lock().unwrap();
        assert_eq!(
            outcomes.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
            ids,
            "in order, and once"
        );
        outcomes.iter().map(|(_, outcome)| outcome.clone()).collect()
    }

    fn silence() -> PublishError {
        PublishError::transport("silence")
    }

    fn refused() -> PublishError {
        PublishError::transient("refused")
    }

    #[test]
    fn answers_are_passed_on_in_the_order_of_the_lane() {
        let ends = [(2, End::Delivered), (0, End::Delivered), (1, End::Delivered)];
        assert_eq!(reported(false, &ends), vec![Outcome::Delivered; 3]);
    }

    #[test]
    fn the_first_that_failed_takes_the_blame() {
        let ends = [
            (3, End::Withdrawn),
            (0, End::Delivered),
            (2, End::Failed(refused())),
            (1, End::Failed(refused())),
        ];
        let expected = [
            Outcome::Delivered,
            Outcome::Failed(refused()),
            Outcome::NotAttempted,
            Outcome::NotAttempted,
        ];
        assert_eq!(reported(false, &ends), expected);
    }

    #[test]
    fn what_was_taken_back_failed_only_if_we_gave_up() {
        let ends = [(0, End::Withdrawn), (1, End::Withdrawn)];
        assert_eq!(reported(false, &ends), vec![Outcome::NotAttempted; 2]);
        assert_eq!(
            reported(true, &ends),
            [Outcome::Failed(silence()), Outcome::NotAttempted]
        );
        assert_eq!(reported(true, &[(0, End::NotHandedOver)]), [Outcome::NotAttempted]);
    }

    #[test]
    fn what_may_have_been_sent_is_never_not_attempted() {
        let ends = [(0, End::Uncertain), (1, End::Uncertain), (2, End::Withdrawn)];
        for gave_up in [false, true] {
            let outcomes = reported(gave_up, &ends);
            assert!(matches!(outcomes[0], Outcome::Failed(_)), "{outcomes:?}");
            assert!(matches!(outcomes[1], Outcome::Failed(_)), "{outcomes:?}");
            assert_eq!(outcomes[2], Outcome::NotAttempted);
        }
    }

    #[test]
    fn what_does_not_go_out_stops_its_lane_before_those_ahead_of_it_are_answered() {
        for end in [
            End::Failed(refused()),
            End::NotHandedOver,
            End::Withdrawn,
            End::Uncertain,
        ] {
            let (ongoing, _, outcomes) = lane(3);
            ongoing.end(0, 1, end.clone());
            assert!(!ongoing.goes_on(0), "{end:?}");
            assert!(outcomes.lock().unwrap().is_empty(), "told in order");
        }
    }

    #[test]
    fn a_producer_is_awaited_until_its_lanes_are_answered() {
        let (ongoing, _, _) = lane(2);
        assert!(!ongoing.awaits(Role::Lanes));
        ongoing.goes_by(0, Role::Lanes);
        ongoing.end(0, 0, End::Delivered);
        assert!(ongoing.awaits(Role::Lanes) && !ongoing.awaits(Role::Lone) && ongoing.goes_on(0));
        ongoing.end(0, 1, End::Withdrawn);
        assert!(!ongoing.awaits(Role::Lanes) && !ongoing.goes_on(0));
    }
}
