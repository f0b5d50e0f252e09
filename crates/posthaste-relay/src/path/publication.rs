//! One call of the publisher, and the answer that it owes for every message.

use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use chrono::Utc;
use posthaste_core::publisher::{
    Batch, Delivery, ErrorKind, ErrorScope, LeaseCheck, Outcome, OutcomeSink, Place, Report, Shared,
};
use posthaste_core::readable::Readable;
use posthaste_core::{PublishError, Publisher, Text};
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use crate::engine::Engine;
use crate::guard::blame::Blame;
use crate::guard::destinations::{Destinations, Finding, Held, Pass};
use crate::guard::gate::{Clearance, Gate};
use crate::guard::in_flight::Load;
use crate::path::failpoint;
use crate::path::outcome_collector::Sink;
use crate::path::slab::Slab;
use crate::path::turn::Turn;
use crate::reported::{InFlightMessage, Reported};
use crate::upkeep::instrument::{self, Latency};

/// Messages to be sent, with what the engine has to remember of each of them, in the same order.
#[derive(Default)]
pub(crate) struct Pending {
    pub(crate) messages: Vec<InFlightMessage>,
    pub(crate) deliveries: Vec<Delivery>,
}

/// Calls the publisher with a batch, when its turn has come; afterwards the sink was told exactly once of every message.
pub(crate) async fn run(
    engine: &Arc<Engine>,
    pending: Pending,
    gate: &Arc<Gate>,
    sink: Arc<dyn Sink>,
    turn: Option<Turn>,
) {
    let Pending {
        mut messages,
        deliveries,
    } = pending;
    for message in &mut messages {
        message.trace.attempt_begins();
    }
    let has_destinations = messages.iter().any(|message| message.destination.is_some());
    if has_destinations {
        by_destination(&messages, |destination, load| {
            engine.silence.handed_over(destination, load);
        });
    }
    failpoint::pass("before_publish");
    failpoint::swallow(&deliveries);
    let (batch_size, handed_over) = (deliveries.len(), Instant::now());
    let answers = Arc::new(Answers {
        latency: Latency::new(&engine.config.scope.namespace, messages.len()),
        has_destinations,
        is_traced: messages.iter().any(|message| message.trace.is_traced()),
        slab: Arc::new(Slab::new(messages)),
        clearance: Clearance::default(),
        closed: AtomicBool::new(false),
        noted: Mutex::new(Noted {
            passes: HashMap::new(),
            held: HashMap::new(),
            held_lanes: HashSet::new(),
            sent_at: HashMap::new(),
            last_report: handed_over,
            owed: u32::try_from(batch_size).unwrap_or(u32::MAX),
        }),
        gate: Arc::clone(gate),
        engine: Arc::clone(engine),
        is_by_place: sink.is_by_place(),
        sink: Arc::downgrade(&sink),
    });
    let report = Report::to(Arc::clone(&answers) as Arc<dyn OutcomeSink>);
    let batch = Batch::new(deliveries, Arc::clone(&answers) as Arc<dyn LeaseCheck>);
    let publisher = Arc::clone(&engine.publisher);
    // A task of its own: a publisher that panics must not take the relay with it.
    let mut publication = AbortOnDropHandle::new(tokio::spawn(publish(publisher, batch, report, turn)));
    let unanswered = loop {
        let deadline = answers.last_report() + engine.config.publish_timeout;
        match timeout_at(deadline, &mut publication).await {
            Ok(Ok(())) => break PublishError::unknown("the publisher returned without an outcome for this message"),
            Ok(Err(panic)) => break PublishError::unknown(format!("the publisher failed: {panic}")),
            Err(_) if answers.last_report() + engine.config.publish_timeout > Instant::now() => {}
            Err(_) if answers.has_unnoted() => {}
            Err(_) => {
                let waited = Readable(engine.config.publish_timeout);
                break PublishError::transport(format!("the publisher gave no answer for {waited}"));
            }
        }
    };
    // First of all: a publisher that blocks its thread goes on after it was aborted, and what is given up here may be
    // in other hands soon.
    answers.closed.store(true, Ordering::SeqCst);
    publication.abort();
    failpoint::pass("after_publish");
    answers.close(&unanswered);
    instrument::published(&engine.config.scope.namespace, handed_over.elapsed(), batch_size);
}

async fn publish(publisher: Arc<dyn Publisher>, batch: Batch, report: Report, turn: Option<Turn>) {
    let mut publishing = pin!(publisher.publish(batch, report));
    if let Some(mut turn) = turn {
        turn.come().await;
        let first = poll_fn(|context| Poll::Ready(publishing.as_mut().poll(context))).await;
        // Only now may the next call begin.
        drop(turn);
        if first.is_ready() {
            return;
        }
    }
    publishing.await;
}

/// Tells of each destination how much goes there, neighbours together.
fn by_destination<'a>(messages: impl IntoIterator<Item = &'a InFlightMessage>, mut tell: impl FnMut(&Arc<str>, Load)) {
    let mut run: Option<(&Arc<str>, Load)> = None;
    for message in messages {
        let Some(destination) = &message.destination else {
            continue;
        };
        match &mut run {
            Some((same, load)) if *same == destination => {
                load.messages += 1;
                load.bytes += message.bytes;
            }
            _ => {
                let (messages, bytes) = (1, message.bytes);
                if let Some((before, load)) = run.replace((destination, Load { messages, bytes })) {
                    tell(before, load);
                }
            }
        }
    }
    if let Some((destination, load)) = run {
        tell(destination, load);
    }
}

/// What the publisher still owes: each message's first outcome, and no other.
struct Answers {
    slab: Arc<Slab>,
    clearance: Clearance,
    /// Whether the call was given up.
    closed: AtomicBool,
    latency: Latency,
    has_destinations: bool,
    is_traced: bool,
    noted: Mutex<Noted>,
    gate: Arc<Gate>,
    engine: Arc<Engine>,
    is_by_place: bool,
    /// Held by the call alone. A publisher that blocks a thread keeps its report for as long as it pleases, and must
    /// not keep a relay that stops from ending its settling.
    sink: Weak<dyn Sink>,
}

/// What is noted of the few messages that there is something to be noted of, by place.
struct Noted {
    /// The rights to send to destinations that are watched.
    passes: HashMap<usize, Pass>,
    /// What is not handed over because of its destination.
    held: HashMap<usize, Held>,
    held_lanes: HashSet<(Text, Text)>,
    /// When the turn of a message that is traced came first.
    sent_at: HashMap<usize, SystemTime>,
    last_report: Instant,
    /// How many answers were owed after it.
    owed: u32,
}

impl LeaseCheck for Answers {
    /// May be asked more than once, by publishers in front of publishers.
    fn may_send(&self, place: Place) -> bool {
        let place = place.index();
        if !self.slab.is_owed(place) || self.closed.load(Ordering::SeqCst) {
            return false;
        }
        if self.is_traced {
            self.noted().sent_at.entry(place).or_insert_with(SystemTime::now);
        }
        if let Some(generation) = self.clearance.holds() {
            self.slab.let_through(place, generation);
            return true;
        }
        self.may_send_now(place)
    }
}

impl OutcomeSink for Answers {
    fn outcome(&self, place: Place, outcome: Outcome) {
        if self.is_by_place && outcome.is_delivered() {
            self.delivered(&[place]);
        } else {
            self.report(place.index(), outcome);
        }
    }

    fn delivered_all(&self, places: &[Place]) {
        if self.is_by_place {
            self.delivered(places);
        } else {
            for place in places {
                self.report(place.index(), Outcome::DELIVERED);
            }
        }
    }
}

impl Noted {
    /// Whether a message may go to its destination.
    fn pass(&mut self, place: usize, message: &InFlightMessage, destinations: &Destinations, blame: &Blame) -> bool {
        let lane = message.lane();
        // If the destination comes back in the next moment, that must not let the rest of the lane go ahead.
        if lane.as_ref().is_some_and(|lane| self.held_lanes.contains(lane)) {
            return false;
        }
        if let Some(before) = self.passes.remove(&place) {
            if destinations.is_current(&before) {
                self.passes.insert(place, before);
                return true;
            }
            destinations.answer(message.stream, Some(before), &Outcome::NotAttempted);
        }
        match destinations.pass(message.stream, blame.was_tried(message.id)) {
            Ok(pass) => {
                self.passes.extend(pass.map(|pass| (place, pass)));
                true
            }
            Err(held) => {
                self.held.insert(place, held);
                self.held_lanes.extend(lane);
                false
            }
        }
    }
}

impl Answers {
    /// Looks at all that may speak against it.
    fn may_send_now(&self, place: usize) -> bool {
        let Some(message) = self.slab.get(place) else {
            return false;
        };
        let Engine {
            destinations,
            blame,
            lanes,
            ..
        } = &*self.engine;
        if lanes.holds_back(message) {
            return false;
        }
        let are_watched = destinations.any();
        if are_watched && !self.noted().pass(place, message, destinations, blame) {
            return false;
        }
        let may_send = self.gate.may_send(message.id);
        if may_send && !are_watched && !lanes.any() {
            self.gate.clear(&self.clearance);
        }
        may_send
    }

    /// The broker acknowledged these. Little is done about each of them: they are settled from the slab.
    fn delivered(&self, places: &[Place]) {
        let Some(sink) = self.sink.upgrade() else { return };
        let engine = &*self.engine;
        // While nothing failed, nothing is learnt from a delivery but that there was one.
        let is_calm = !engine.blame.any() && !engine.destinations.any();
        let closed_in = engine.circuit.closed_in().filter(|_| is_calm);
        let (mut delivered, mut succeeded) = (0, 0);
        for place in places.iter().map(|place| place.index()) {
            if !self.slab.begin_delivery(place) {
                continue;
            }
            delivered += 1;
            let Some(message) = self.slab.get(place) else { continue };
            if let Some(closed_in) = closed_in {
                let let_through = self.slab.generation(place);
                succeeded += u32::from(let_through.is_none_or(|generation| generation == closed_in));
            } else {
                engine.blame.judge(message.id, message.stream, Outcome::DELIVERED);
                self.tell_guards(place, message, &Outcome::DELIVERED);
            }
            self.latency.acknowledged(place, message.created_at);
            if message.trace.is_traced() {
                let message = self.with_trace(place, message);
                engine.send_spans.attempted(&Reported::delivered(message));
            }
        }
        if delivered == 0 {
            return;
        }
        if self.has_destinations {
            let messages = places.iter().filter_map(|place| self.slab.get(place.index()));
            by_destination(messages, |destination, load| engine.silence.answered(destination, load));
        }
        if succeeded > 0 {
            engine.circuit.succeeded(succeeded);
        }
        // Before they can be settled: what is settled was answered.
        engine.in_flight.answered_in_part(delivered);
        for place in places {
            self.slab.end_delivery(place.index());
        }
        let owed = self.answered(delivered);
        if self.slab.announce() || owed == 0 {
            self.note_report(owed);
            sink.delivered(&self.slab);
        }
    }

    /// So many answers more are there; returns how many are not.
    fn answered(&self, answers: u32) -> u32 {
        let owed = self.slab.answered(answers);
        if owed == 0 {
            self.engine.in_flight.call_ended();
        }
        owed
    }

    /// Takes note of the time. Not done for every delivery: to read the clock takes long.
    fn note_report(&self, owed: u32) {
        let mut noted = self.noted();
        noted.last_report = Instant::now();
        noted.owed = noted.owed.min(owed);
    }

    /// Whether there were answers since the time was noted last. If so, it is now.
    fn has_unnoted(&self) -> bool {
        let owed = self.slab.owed();
        let has_unnoted = owed < self.noted().owed;
        if has_unnoted {
            self.note_report(owed);
        }
        has_unnoted
    }

    /// Tells the guards what became of a message.
    fn tell_guards(&self, place: usize, message: &InFlightMessage, outcome: &Outcome) -> (Finding, Option<Duration>) {
        let Engine {
            destinations, circuit, ..
        } = &*self.engine;
        let pass = self.noted().passes.remove(&place);
        let mut finding = destinations.answer(message.stream, pass, outcome);
        destinations.open_if_nothing_succeeds(circuit, &mut finding);
        let let_through = self.slab.generation(place);
        let least_wait = self.gate.answer(message.id, let_through, outcome, finding.answer);
        (finding, least_wait)
    }

    fn with_trace(&self, place: usize, message: &InFlightMessage) -> InFlightMessage {
        let mut message = message.clone();
        if let Some(sent_at) = self.noted().sent_at.remove(&place) {
            message.trace.sent_at(sent_at);
        }
        message
    }

    fn report(&self, place: usize, outcome: Outcome) {
        if !self.slab.take(place) {
            return;
        }
        let Some(message) = self.slab.get(place) else { return };
        let held = self.noted().held.remove(&place);
        let Engine { config, circuit, .. } = &*self.engine;
        if let Some(destination) = &message.destination {
            let (messages, bytes) = (1, message.bytes);
            self.engine.silence.answered(destination, Load { messages, bytes });
        }
        let mut message = self.with_trace(place, message);
        let outcome = self.engine.blame.judge(message.id, message.stream, outcome);
        match &outcome {
            Outcome::Delivered(_) => self.latency.acknowledged(place, message.created_at),
            Outcome::NotAttempted => message.not_sent = Some(self.gate.refusal(message.id)),
            _ => {}
        }
        let (finding, mut least_wait) = self.tell_guards(place, &message, &outcome);
        if let Outcome::Failed(PublishError {
            kind,
            scope,
            message: cause,
            shared,
            ..
        }) = &outcome
        {
            if *shared != Shared::No {
                least_wait = least_wait.or(Some(Duration::ZERO));
            }
            let mut in_doubt = circuit.in_doubt();
            match scope {
                ErrorScope::Destination(_) => {
                    least_wait = least_wait.max(finding.least_wait);
                    in_doubt |= finding.in_doubt;
                }
                // Its neighbours get through, and still it is not the message that is to blame.
                ErrorScope::Partition(_) => {
                    let age = (Utc::now() - message.created_at).to_std().unwrap_or_default();
                    let wait = growing_wait(age, config.retry.backoff.longest(), rand::random());
                    least_wait = least_wait.max(Some(wait));
                }
                ErrorScope::Broker => {
                    if let ErrorKind::Throttled { retry_after } = kind {
                        circuit.pause(config.retry.throttle_wait(*retry_after), cause);
                    }
                }
                // It waits alone.
                _ => {}
            }
            // Too few calls may have failed to say that the broker is unavailable; but nothing got through either, and
            // a message must not die of that. Without a breaker attempts are all that is wanted to count.
            if in_doubt && config.breaker.enabled && message.attempts >= message.max_attempts {
                least_wait = least_wait.or(Some(Duration::ZERO));
            }
        }
        // The outcome of a call that is gone is not waited for.
        let Some(sink) = self.sink.upgrade() else { return };
        let reported = match (outcome, held) {
            (Outcome::NotAttempted, Some(Held { wait, reason })) => Reported::held(message, wait, reason),
            (outcome, _) => Reported::new(message, outcome, least_wait, &config.retry),
        };
        self.engine.send_spans.attempted(&reported);
        sink.take(reported);
        let owed = self.answered(1);
        self.note_report(owed);
        if owed == 0 && self.is_by_place {
            sink.delivered(&self.slab);
        }
    }

    fn last_report(&self) -> Instant {
        self.noted().last_report
    }

    /// Reports what the publisher did not.
    fn close(&self, error: &PublishError) {
        for (place, message) in self.slab.messages().iter().enumerate() {
            if !self.slab.is_owed(place) {
                continue;
            }
            let error = match &message.destination {
                // That one destination is silent says nothing about the others.
                Some(destination) if error.kind == ErrorKind::Transport => error.clone().at(Arc::clone(destination)),
                _ => error.clone(),
            };
            self.report(place, Outcome::Failed(error));
        }
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The least wait of a message that fails without using attempts, so that its backoff never grows: by its age instead.
/// Else the messages of a partition that stays unavailable would be tried all the time, each for as long as the client
/// waits, and leave no room for others.
fn growing_wait(age: Duration, longest: Duration, random: f64) -> Duration {
    (age / 2).min(longest).mul_f64(0.5 + random.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_attempts_a_wait_grows_with_the_age_of_its_message_up_to_the_longest_backoff() {
        let (second, longest) = (Duration::from_secs(1), Duration::from_mins(5));
        let wait = |age, random| growing_wait(age, longest, random);
        assert_eq!(wait(Duration::ZERO, 1.0), Duration::ZERO);
        assert_eq!(wait(second * 20, 1.0), second * 10);
        assert_eq!(wait(second * 20, 0.0), second * 5);
        assert_eq!(wait(second * 3_600, 1.0), longest);
        assert_eq!(wait(second * 3_600, 0.0), longest / 2);
        // As old as can be, and the longest wait that a policy has.
        let most = posthaste_core::retry::MAX_DURATION;
        assert_eq!(growing_wait(Duration::MAX, most, 1.0), most);
    }
}
