//! What became of a batch's messages, told lane by lane and in order.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use posthaste_core::publisher::{Outcome, Place, PublishError, Receipt, Report};
use tokio::sync::Notify;

use super::role::Role;

/// How a message ended.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// The broker acknowledged it.
    Delivered(Receipt),
    /// It was tried and failed.
    Failed(PublishError),
    /// It was not handed over at all.
    NotHandedOver,
    /// The broker refused the request that held it, which may be by its neighbours there.
    RefusedWithOthers,
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
    /// One for each lane, woken when anything of it has been answered.
    progress: Vec<Notify>,
    /// Woken when everything has been answered.
    over: Notify,
}

struct State {
    lanes: Vec<Lane>,
    unanswered: usize,
}

struct Lane {
    role: Option<Role>,
    places: Vec<Place>,
    ends: Vec<Option<End>>,
    /// How many were given to a producer: always the first ones.
    handed_over: usize,
    answered: usize,
    /// When something was handed over or answered last.
    since: Instant,
    /// Why we stopped waiting for its answers, if we did.
    gave_up: Option<PublishError>,
    /// Whether anything of it did not go out. Known at once, while those before it may still be on their way.
    stopped: bool,
    /// Whether one of those that were answered, in order, did not go out: those after it are not to blame.
    failed: bool,
}

impl Ongoing {
    /// A batch with these lanes.
    pub(super) fn new(lanes: Vec<Vec<Place>>, report: Report) -> Self {
        let unanswered = lanes.iter().map(Vec::len).sum();
        let now = Instant::now();
        let lane = |places: Vec<Place>| Lane {
            role: None,
            ends: vec![None; places.len()],
            places,
            handed_over: 0,
            answered: 0,
            since: now,
            gave_up: None,
            stopped: false,
            failed: false,
        };
        Self {
            report,
            progress: lanes.iter().map(|_| Notify::new()).collect(),
            state: Mutex::new(State {
                lanes: lanes.into_iter().map(lane).collect(),
                unanswered,
            }),
            over: Notify::new(),
        }
    }

    /// Takes note of how the message at a place of a lane ended.
    pub(super) fn end(&self, lane: usize, place: usize, end: End) {
        let mut outcomes = Vec::new();
        let mut state = self.state();
        let of_lane = &mut state.lanes[lane];
        if place < of_lane.answered || of_lane.ends[place].is_some() {
            return;
        }
        of_lane.stopped |= !matches!(end, End::Delivered(_));
        of_lane.ends[place] = Some(end);
        while let Some(end) = of_lane.ends.get_mut(of_lane.answered).and_then(Option::take) {
            let at = of_lane.places[of_lane.answered];
            outcomes.push((at, of_lane.outcome(end)));
            of_lane.answered += 1;
        }
        if !outcomes.is_empty() {
            of_lane.since = Instant::now();
        }
        state.unanswered -= outcomes.len();
        let over = state.unanswered == 0;
        drop(state);
        for (at, outcome) in outcomes {
            self.report.outcome(at, outcome);
        }
        self.progress[lane].notify_waiters();
        if over {
            self.over.notify_waiters();
        }
    }

    /// Whether the lane goes on: nothing of it failed or was kept back.
    pub(super) fn goes_on(&self, lane: usize) -> bool {
        !self.state().lanes[lane].stopped
    }

    /// Waits until the first `count` of the lane have been answered; whether the lane then goes on. One that is stopped
    /// is not waited for.
    pub(super) async fn goes_on_after(&self, lane: usize, count: usize) -> bool {
        loop {
            let mut progress = std::pin::pin!(self.progress[lane].notified());
            // Registered before the look, so that no change in between is missed.
            progress.as_mut().enable();
            let (stopped, answered) = {
                let state = self.state();
                (state.lanes[lane].stopped, state.lanes[lane].answered)
            };
            if stopped || answered >= count {
                return !stopped;
            }
            progress.await;
        }
    }

    /// Takes note of a message that a producer was given.
    pub(super) fn handed_over(&self, lane: usize, place: usize, role: Role) {
        let mut state = self.state();
        let lane = &mut state.lanes[lane];
        lane.role = Some(role);
        lane.handed_over = place + 1;
        lane.since = Instant::now();
    }

    /// Keeps back what no producer was given.
    pub(super) fn keep_back(&self) {
        let kept: Vec<(usize, usize)> = {
            let state = self.state();
            let lanes = state.lanes.iter().enumerate();
            lanes
                .flat_map(|(number, lane)| (lane.handed_over..lane.places.len()).map(move |place| (number, place)))
                .collect()
        };
        for (lane, place) in kept {
            self.end(lane, place, End::NotHandedOver);
        }
    }

    /// Whether a producer of this role still owes an answer.
    pub(super) fn awaits(&self, role: Role) -> bool {
        self.state().lanes.iter().any(|lane| lane.awaits(role))
    }

    /// Since when the lane that is silent for longest waits for an answer of a producer of this role.
    pub(super) fn silent_since(&self, role: Role) -> Option<Instant> {
        let state = self.state();
        let waiting = state.lanes.iter().filter(|lane| lane.awaits(role));
        waiting.map(|lane| lane.since).min()
    }

    /// Gives up the lanes that have waited for an answer of this role since `since`: what is taken back of them failed by
    /// the error that `why` gives for the first message that was not answered.
    pub(super) fn give_up(&self, role: Role, since: Instant, why: impl Fn(Place) -> PublishError) {
        let mut state = self.state();
        for lane in state
            .lanes
            .iter_mut()
            .filter(|lane| lane.awaits(role) && lane.since <= since)
        {
            lane.gave_up = Some(why(lane.places[lane.answered]));
        }
    }

    /// What a producer of this role still owes will not be answered any more: it is not known what became of it.
    pub(super) fn lose(&self, role: Role) {
        let lost: Vec<(usize, usize)> = {
            let state = self.state();
            let lanes = state.lanes.iter().enumerate().filter(|(_, lane)| lane.awaits(role));
            lanes
                .flat_map(|(number, lane)| (lane.answered..lane.handed_over).map(move |place| (number, place)))
                .collect()
        };
        for (lane, place) in lost {
            self.end(lane, place, End::Uncertain);
        }
    }

    /// Waits until everything has been answered.
    pub(super) async fn over(&self) {
        loop {
            let mut over = std::pin::pin!(self.over.notified());
            over.as_mut().enable();
            if self.state().unanswered == 0 {
                return;
            }
            over.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lane {
    fn awaits(&self, role: Role) -> bool {
        self.role == Some(role) && self.answered < self.handed_over
    }

    fn outcome(&mut self, end: End) -> Outcome {
        let gave_up = self.gave_up.as_ref();
        let after_failure = self.failed;
        self.failed |= !matches!(end, End::Delivered(_));
        match end {
            End::Delivered(receipt) => {
                if after_failure {
                    tracing::error!("Kafka took a message after an earlier one of its key had failed");
                }
                Outcome::Delivered(receipt)
            }
            End::Uncertain => {
                let error = gave_up.cloned().filter(|_| !after_failure);
                Outcome::Failed(error.unwrap_or_else(|| {
                    PublishError::unknown("Kafka: the message was on its way when the producer was replaced")
                }))
            }
            // The message before it took the blame.
            End::Failed(_) | End::Withdrawn if after_failure => Outcome::NotAttempted,
            End::NotHandedOver | End::RefusedWithOthers => Outcome::NotAttempted,
            End::Failed(error) => Outcome::Failed(error),
            End::Withdrawn => gave_up.cloned().map_or(Outcome::NotAttempted, Outcome::Failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    type Outcomes = Arc<Mutex<Vec<(Place, Outcome)>>>;

    /// A lane of as many messages, and what is reported of it.
    fn lane(length: usize) -> (Ongoing, Vec<Place>, Outcomes) {
        let places: Vec<Place> = (0..length).map(Place::new).collect();
        let outcomes = Outcomes::default();
        let sink = Arc::clone(&outcomes);
        let report = Report::new(move |place, outcome| sink.lock().unwrap().push((place, outcome)));
        (Ongoing::new(vec![places.clone()], report), places, outcomes)
    }

    /// What is reported when the places end like this, in this order.
    fn reported(gave_up: bool, ends: &[(usize, End)]) -> Vec<Outcome> {
        let (ongoing, places, outcomes) = lane(ends.len());
        if gave_up {
            ongoing.handed_over(0, ends.len() - 1, Role::Lanes);
            ongoing.give_up(Role::Lanes, Instant::now(), |_| silence());
        }
        for (place, end) in ends {
            ongoing.end(0, *place, end.clone());
            ongoing.end(0, *place, delivered());
        }
        let outcomes = outcomes.lock().unwrap();
        assert_eq!(
            outcomes.iter().map(|(place, _)| *place).collect::<Vec<_>>(),
            places,
            "in order, and once"
        );
        outcomes.iter().map(|(_, outcome)| outcome.clone()).collect()
    }

    fn delivered() -> End {
        End::Delivered(Receipt::default())
    }

    fn silence() -> PublishError {
        PublishError::transport("silence")
    }

    fn refused() -> PublishError {
        PublishError::transient("refused")
    }

    #[test]
    fn answers_are_passed_on_in_the_order_of_the_lane() {
        let ends = [(2, delivered()), (0, delivered()), (1, delivered())];
        assert_eq!(reported(false, &ends), vec![Outcome::DELIVERED; 3]);
    }

    #[test]
    fn the_first_that_failed_takes_the_blame() {
        let ends = [
            (3, End::Withdrawn),
            (0, delivered()),
            (2, End::Failed(refused())),
            (1, End::Failed(refused())),
        ];
        let expected = [
            Outcome::DELIVERED,
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
            End::RefusedWithOthers,
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
    fn a_producer_is_awaited_until_what_it_was_given_is_answered() {
        let (ongoing, _, _) = lane(3);
        assert!(!ongoing.awaits(Role::Lanes));
        ongoing.handed_over(0, 0, Role::Lanes);
        assert!(ongoing.awaits(Role::Lanes) && !ongoing.awaits(Role::Lone));
        assert!(ongoing.silent_since(Role::Lanes).is_some() && ongoing.silent_since(Role::Lone).is_none());
        ongoing.end(0, 0, delivered());
        assert!(!ongoing.awaits(Role::Lanes) && ongoing.goes_on(0));
        ongoing.handed_over(0, 1, Role::Lone);
        ongoing.end(0, 1, End::Withdrawn);
        assert!(!ongoing.awaits(Role::Lone) && !ongoing.goes_on(0));
    }

    #[test]
    fn only_lanes_that_are_silent_are_given_up() {
        let places = [Place::new(0), Place::new(1)];
        let outcomes = Outcomes::default();
        let sink = Arc::clone(&outcomes);
        let report = Report::new(move |place, outcome| sink.lock().unwrap().push((place, outcome)));
        let ongoing = Ongoing::new(places.map(|place| vec![place]).to_vec(), report);
        ongoing.handed_over(0, 0, Role::Lanes);
        let since = Instant::now();
        std::thread::sleep(std::time::Duration::from_millis(2));
        ongoing.handed_over(1, 0, Role::Lanes);
        ongoing.give_up(Role::Lanes, since, |_| silence());
        ongoing.end(0, 0, End::Withdrawn);
        ongoing.end(1, 0, End::Withdrawn);
        let expected = [
            (places[0], Outcome::Failed(silence())),
            (places[1], Outcome::NotAttempted),
        ];
        assert_eq!(*outcomes.lock().unwrap(), expected);
    }

    #[test]
    fn what_no_producer_was_given_is_kept_back() {
        let (ongoing, places, outcomes) = lane(3);
        ongoing.handed_over(0, 0, Role::Lanes);
        ongoing.keep_back();
        assert!(outcomes.lock().unwrap().is_empty());
        ongoing.end(0, 0, delivered());
        let outcomes = outcomes.lock().unwrap();
        let kept = |place| (place, Outcome::NotAttempted);
        assert_eq!(
            *outcomes,
            [(places[0], Outcome::DELIVERED), kept(places[1]), kept(places[2])]
        );
    }
}
