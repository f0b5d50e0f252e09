//! What became of a batch's messages, told lane by lane and in order.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use posthaste_core::publisher::{Outcome, Place, PublishError, Report};
use tokio::sync::Notify;

use super::role::Role;

/// How a message ended.
#[derive(Clone, Debug)]
pub(super) enum End {
    /// The broker acknowledged it.
    Delivered,
    /// It was tried and failed.
    Failed(Box<PublishError>),
    /// It was not handed over at all.
    NotHandedOver,
    /// The broker refused the request that held it, which may be by its neighbours there.
    RefusedWithOthers,
    /// It was taken back before it was sent.
    Withdrawn,
    /// It was taken back when it may have been sent.
    Uncertain,
}

impl End {
    pub(super) fn failed(error: PublishError) -> Self {
        Self::Failed(Box::new(error))
    }
}

/// Deliveries are reported together, at most as many.
const REPORTED_TOGETHER: usize = 64;

/// A batch on its way. Its messages are numbered lane by lane: the first lane has the first positions.
///
/// Answers of one lane are passed on in the lane's order, whatever the order in which they come in: only so is it known
/// whether a message failed by itself or because of one before it. Where several batches have messages of a lane, the
/// part of it that a batch has is behind that of the batch before, and the same holds for all of them together.
pub(super) struct Ongoing {
    report: Report,
    size: usize,
    /// The names of its lanes; nothing for a message without a key, which is a lane of its own.
    pub(super) names: Vec<Option<u64>>,
    state: Mutex<State>,
    /// Held while outcomes are reported, so that they are in order.
    reporting: Mutex<()>,
    /// One for each lane, woken when anything of it has changed that is waited for.
    progress: Vec<Notify>,
    /// Woken when there is something to report, and when everything has been answered.
    wake: Notify,
}

struct State {
    spots: Vec<Spot>,
    lanes: Vec<Lane>,
    unanswered: usize,
    /// Answered, in order, and not reported yet.
    delivered: Vec<Place>,
    others: Vec<(Place, Outcome)>,
    /// Whether the publication was told that there is something to report.
    woken: bool,
    /// Whether the publication is over, so that it reports nothing more.
    closed: bool,
    /// Records that librdkafka has.
    out: usize,
    /// Whether somebody was told that librdkafka has nothing more.
    left: bool,
}

/// What is known of the message at a position.
struct Spot {
    lane: u32,
    place: Place,
    /// Its size as a request of its own.
    bytes: usize,
    /// The lane's name, where its delivery is worth remembering.
    known_by: Option<u64>,
    end: Option<End>,
}

/// What a batch has of a lane.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and most of them change alone"
)]
struct Lane {
    role: Option<Role>,
    /// By which road those went that are on their way side by side.
    via: Option<Via>,
    positions: Range<u32>,
    /// Those before it were given to a producer.
    handed_over: u32,
    /// Whether the producer has the last one.
    is_sent: bool,
    /// Those before it were answered.
    answered: u32,
    /// When something was handed over or answered last.
    since: Instant,
    /// Why we stopped waiting for its answers, if we did.
    gave_up: Option<Box<PublishError>>,
    /// Whether anything of it did not go out. Known at once, while those before it may still be on their way.
    stopped: bool,
    /// Whether one of those that were answered, in order, did not go out: those after it are not to blame.
    failed: bool,
    /// Whether an earlier batch has messages of the lane that are not answered.
    behind: bool,
    /// By which road all of those went, if all of them were handed over.
    ahead: Option<Via>,
    /// The part of the lane that is behind this one.
    next: Option<(Arc<Ongoing>, u32)>,
    /// Whether its progress is waited for.
    awaited: bool,
}

/// A road on which order is kept: a producer for lanes, and a partition by topic and key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Via {
    pub(super) generation: u64,
    pub(super) name: u64,
}

/// Whether the next message of a lane may be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It may.
    Now,
    /// Not before something of the lane is answered or handed over.
    Later,
    /// The lane is stopped.
    Never,
}

/// What follows from an answer, for the batch and for those that are behind it.
#[derive(Default)]
struct Effects {
    /// The part of the lane that is stopped, too.
    stopped: Option<(Arc<Ongoing>, u32)>,
    /// The part of the lane that is not behind any more, and whether it is behind a failure.
    freed: Option<(Arc<Ongoing>, u32, bool)>,
    report: bool,
    wake: bool,
}

impl Ongoing {
    /// A batch whose messages, lane by lane, have these places.
    pub(super) fn new(
        places: impl Iterator<Item = Place>,
        lanes: &[Range<u32>],
        names: Vec<Option<u64>>,
        report: Report,
    ) -> Arc<Self> {
        let now = Instant::now();
        let mut spots: Vec<Spot> = places
            .map(|place| Spot {
                lane: 0,
                place,
                bytes: 0,
                known_by: None,
                end: None,
            })
            .collect();
        for (number, positions) in (0..).zip(lanes) {
            for spot in &mut spots[positions.start as usize..positions.end as usize] {
                spot.lane = number;
            }
        }
        let lane = |positions: &Range<u32>| Lane {
            role: None,
            via: None,
            positions: positions.clone(),
            handed_over: positions.start,
            is_sent: false,
            answered: positions.start,
            since: now,
            gave_up: None,
            stopped: false,
            failed: false,
            behind: false,
            ahead: None,
            next: None,
            awaited: false,
        };
        Arc::new(Self {
            report,
            size: spots.len(),
            names,
            progress: lanes.iter().map(|_| Notify::new()).collect(),
            state: Mutex::new(State {
                unanswered: spots.len(),
                spots,
                lanes: lanes.iter().map(lane).collect(),
                delivered: Vec::new(),
                others: Vec::new(),
                woken: false,
                closed: false,
                out: 0,
                left: false,
            }),
            reporting: Mutex::default(),
            wake: Notify::new(),
        })
    }

    /// A batch with lanes of these lengths.
    #[cfg(test)]
    pub(super) fn of_lanes(lengths: &[u32], report: Report) -> Arc<Self> {
        let mut lanes = Vec::new();
        let mut next = 0;
        for length in lengths {
            lanes.push(next..next + length);
            next += length;
        }
        let names = vec![None; lanes.len()];
        Self::new((0..next).map(Place), &lanes, names, report)
    }

    /// How many messages it has.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Puts a part of a lane behind an earlier one; whether that is still on its way.
    pub(super) fn follow(earlier: (&Self, u32), later: (&Arc<Self>, u32)) -> bool {
        // First of all, because the earlier part may end in any moment.
        later.0.state().lanes[later.1 as usize].behind = true;
        let mut state = earlier.0.state();
        let lane = &mut state.lanes[earlier.1 as usize];
        if lane.is_answered() {
            let failed = lane.failed;
            drop(state);
            if failed {
                // Whoever handed us the later batch may not know yet of the failure; now `may_send` can tell.
                earlier.0.report_all();
            }
            later.0.state().lanes[later.1 as usize].behind = false;
            return false;
        }
        let (ahead, stopped) = (lane.road(), lane.stopped);
        lane.next = Some((Arc::clone(later.0), later.1));
        drop(state);
        let mut state = later.0.state();
        let lane = &mut state.lanes[later.1 as usize];
        lane.ahead = ahead.or(lane.ahead);
        lane.stopped |= stopped;
        true
    }

    /// Whether the message at a position, the next of its lane, may be handed over by this road. Messages of one lane are
    /// on their way side by side if all of them take the same.
    pub(super) fn turn(&self, lane: u32, via: Option<Via>) -> Turn {
        let mut state = self.state();
        let lane = &mut state.lanes[lane as usize];
        if lane.stopped {
            return Turn::Never;
        }
        let same = |road: Option<Via>| via.is_some() && road == via;
        let earlier = !lane.behind || same(lane.ahead);
        let own = lane.answered == lane.handed_over || same(lane.via);
        if earlier && own {
            return Turn::Now;
        }
        lane.awaited = true;
        Turn::Later
    }

    /// Resolves when something of the lane changes.
    pub(super) fn progress(&self, lane: u32) -> &Notify {
        &self.progress[lane as usize]
    }

    /// Takes note of a message that a producer is about to be given, unless its lane is stopped.
    pub(super) fn hand_over(
        &self,
        position: u32,
        role: Role,
        via: Option<Via>,
        bytes: usize,
        known_by: Option<u64>,
        now: Instant,
    ) -> bool {
        let mut state = self.state();
        let state = &mut *state;
        let spot = &mut state.spots[position as usize];
        let lane = &mut state.lanes[spot.lane as usize];
        if lane.stopped {
            return false;
        }
        spot.bytes = bytes;
        spot.known_by = known_by;
        lane.role = Some(role);
        lane.via = via;
        lane.handed_over = position + 1;
        lane.since = now;
        state.out += 1;
        true
    }

    /// The producer did not take it.
    pub(super) fn not_taken(&self, position: u32) {
        let mut state = self.state();
        let lane = state.spots[position as usize].lane as usize;
        state.lanes[lane].handed_over = position;
        state.out -= 1;
    }

    /// The producer has all that the batch has of the lane: what is behind it may follow.
    pub(super) fn sent(&self, lane: u32) {
        let mut state = self.state();
        let lane = &mut state.lanes[lane as usize];
        lane.is_sent = true;
        let (next, road) = (lane.next.clone(), lane.road());
        drop(state);
        if let (Some((batch, lane)), Some(road)) = (next, road) {
            batch.follows_by(lane, road);
        }
    }

    /// Everything ahead of the lane was handed over, by this road.
    fn follows_by(&self, number: u32, road: Via) {
        let mut state = self.state();
        let lane = &mut state.lanes[number as usize];
        lane.ahead = Some(road);
        let next = lane.road().and_then(|road| Some((lane.next.clone()?, road)));
        let awaited = std::mem::take(&mut lane.awaited);
        drop(state);
        if awaited {
            self.progress[number as usize].notify_waiters();
        }
        if let Some(((batch, lane), road)) = next {
            batch.follows_by(lane, road);
        }
    }

    /// Takes note of how the message at a position ended.
    pub(super) fn end(&self, position: u32, end: End) {
        let mut state = self.state();
        let effects = state.end(position, end, &self.progress);
        drop(state);
        self.carry_out(effects);
    }

    /// Takes note of what a producer answered; whether librdkafka now has nothing more of a batch that is over.
    pub(super) fn answered(&self, position: u32, end: End) -> bool {
        let mut state = self.state();
        state.out -= 1;
        let effects = state.end(position, end, &self.progress);
        let leaves = state.leaves();
        drop(state);
        self.carry_out(effects);
        leaves
    }

    fn carry_out(&self, effects: Effects) {
        let mut next = effects.stopped;
        while let Some((batch, lane)) = next {
            next = batch.stop(lane);
        }
        if effects.report {
            self.report_all();
        }
        if effects.wake {
            self.wake.notify_one();
        }
        if let Some((batch, lane, failed)) = effects.freed {
            batch.freed(lane, failed);
        }
    }

    /// Stops a lane; returns the part behind it.
    fn stop(&self, number: u32) -> Option<(Arc<Self>, u32)> {
        let mut state = self.state();
        let lane = &mut state.lanes[number as usize];
        if std::mem::replace(&mut lane.stopped, true) {
            return None;
        }
        let next = lane.next.clone();
        let awaited = std::mem::take(&mut lane.awaited);
        drop(state);
        if awaited {
            self.progress[number as usize].notify_waiters();
        }
        next
    }

    /// All that was ahead of a lane has been answered.
    fn freed(&self, lane: u32, failed: bool) {
        let mut state = self.state();
        let of_lane = &mut state.lanes[lane as usize];
        of_lane.behind = false;
        of_lane.failed |= failed;
        of_lane.stopped |= failed;
        let effects = state.pass_on(lane, &self.progress);
        drop(state);
        self.carry_out(effects);
    }

    /// Reports what has been answered and was not reported yet. Afterwards all of it is.
    pub(super) fn report_all(&self) {
        let _turn = self.reporting.lock().unwrap_or_else(PoisonError::into_inner);
        let (delivered, others) = {
            let mut state = self.state();
            state.woken = false;
            (std::mem::take(&mut state.delivered), std::mem::take(&mut state.others))
        };
        if !delivered.is_empty() {
            self.report.delivered_all(&delivered);
        }
        for (place, outcome) in others {
            self.report.outcome(place, outcome);
        }
    }

    /// The size of a message, and the lane's name where its delivery is worth remembering.
    pub(super) fn facts(&self, position: u32) -> (usize, Option<u64>) {
        let state = self.state();
        let spot = &state.spots[position as usize];
        (spot.bytes, spot.known_by)
    }

    /// Keeps back what no producer was given. From now on answers are reported as they come. Returns whether librdkafka has
    /// nothing of the batch.
    pub(super) fn close(&self) -> bool {
        let kept: Vec<u32> = {
            let mut state = self.state();
            state.closed = true;
            let lanes = state.lanes.iter();
            lanes.flat_map(|lane| lane.handed_over..lane.positions.end).collect()
        };
        for position in kept {
            self.end(position, End::NotHandedOver);
        }
        self.report_all();
        self.state().leaves()
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
    /// the error that `why` gives for the position that was not answered.
    pub(super) fn give_up(&self, role: Role, since: Instant, why: impl Fn(u32) -> PublishError) {
        let mut state = self.state();
        for lane in state
            .lanes
            .iter_mut()
            .filter(|lane| lane.awaits(role) && lane.since <= since)
        {
            lane.gave_up = Some(Box::new(why(lane.answered)));
        }
    }

    /// What a producer of this role still owes will not be answered any more: it is not known what became of it.
    pub(super) fn lose(&self, role: Role) {
        let lost: Vec<u32> = {
            let state = self.state();
            let lanes = state.lanes.iter().filter(|lane| lane.awaits(role));
            lanes.flat_map(|lane| lane.answered..lane.handed_over).collect()
        };
        for position in lost {
            self.end(position, End::Uncertain);
        }
    }

    /// Reports what is answered, until everything has been.
    pub(super) async fn over(&self) {
        loop {
            let over = self.state().unanswered == 0;
            self.report_all();
            if over {
                return;
            }
            self.wake.notified().await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn end(&mut self, position: u32, end: End, progress: &[Notify]) -> Effects {
        let spot = &mut self.spots[position as usize];
        let number = spot.lane;
        let lane = &mut self.lanes[number as usize];
        if position < lane.answered || spot.end.is_some() {
            return Effects::default();
        }
        let stops = !matches!(end, End::Delivered) && !lane.stopped;
        lane.stopped |= stops;
        let stopped = if stops { lane.next.clone() } else { None };
        spot.end = Some(end);
        let effects = self.pass_on(number, progress);
        Effects { stopped, ..effects }
    }

    /// Passes on what is answered of a lane, in order.
    fn pass_on(&mut self, number: u32, progress: &[Notify]) -> Effects {
        let lane = &mut self.lanes[number as usize];
        let before = lane.answered;
        while !lane.behind && lane.answered < lane.positions.end {
            let spot = &mut self.spots[lane.answered as usize];
            let Some(end) = spot.end.take() else { break };
            match lane.outcome(end) {
                Outcome::Delivered(_) => self.delivered.push(spot.place),
                outcome => self.others.push((spot.place, outcome)),
            }
            lane.answered += 1;
        }
        let passed_on = (lane.answered - before) as usize;
        let mut freed = None;
        if lane.is_answered() {
            freed = lane.next.take().map(|(batch, number)| (batch, number, lane.failed));
        } else if passed_on > 0 {
            lane.since = Instant::now();
        }
        if std::mem::take(&mut lane.awaited) {
            progress[number as usize].notify_waiters();
        }
        self.unanswered -= passed_on;
        let over = self.unanswered == 0 && passed_on > 0;
        // A failure is told before anything behind it may go on.
        let report = over || self.closed || !self.others.is_empty() || self.delivered.len() >= REPORTED_TOGETHER;
        let wake = over || (!report && !self.delivered.is_empty() && !std::mem::replace(&mut self.woken, true));
        Effects {
            stopped: None,
            freed,
            report,
            wake,
        }
    }

    /// Whether librdkafka has nothing more, and that is news.
    fn leaves(&mut self) -> bool {
        self.closed && self.out == 0 && self.unanswered == 0 && !std::mem::replace(&mut self.left, true)
    }
}

impl Lane {
    fn awaits(&self, role: Role) -> bool {
        self.role == Some(role) && self.answered < self.handed_over
    }

    fn is_answered(&self) -> bool {
        self.answered == self.positions.end
    }

    /// By which road all messages went that are ahead of what follows, if all were handed over.
    fn road(&self) -> Option<Via> {
        let earlier = !self.behind || self.ahead == self.via;
        self.via.filter(|_| self.is_sent && earlier)
    }

    fn outcome(&mut self, end: End) -> Outcome {
        let gave_up = || self.gave_up.as_deref().cloned();
        let after_failure = self.failed;
        let outcome = match end {
            End::Delivered => {
                if after_failure {
                    tracing::error!("Kafka took a message after an earlier one of its key had failed");
                }
                return Outcome::DELIVERED;
            }
            End::Uncertain => {
                let error = gave_up().filter(|_| !after_failure);
                Outcome::Failed(error.unwrap_or_else(|| {
                    PublishError::unknown("Kafka: the message was on its way when the producer was replaced")
                }))
            }
            // The message before it took the blame.
            End::Failed(_) | End::Withdrawn if after_failure => Outcome::NotAttempted,
            End::NotHandedOver | End::RefusedWithOthers => Outcome::NotAttempted,
            End::Failed(error) => Outcome::Failed(*error),
            End::Withdrawn => gave_up().map_or(Outcome::NotAttempted, Outcome::Failed),
        };
        self.failed = true;
        outcome
    }
}

#[cfg(test)]
mod tests;
