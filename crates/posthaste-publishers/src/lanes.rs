//! A batch taken apart into the lanes in which order holds, and the one place that decides what a failure means for the
//! rest of its lane.

use std::collections::{HashMap, HashSet};

use posthaste_core::publisher::{Batch, Delivery, Outcome, PublishError, Receipt, Report};

/// The deliveries of each lane in order, the lanes by their first delivery. A message without a key is a lane of its own.
pub(crate) fn lanes(deliveries: &[Delivery]) -> Vec<Vec<&Delivery>> {
    let mut lanes: Vec<Vec<&Delivery>> = Vec::new();
    let mut places = HashMap::new();
    for delivery in deliveries {
        let next = lanes.len();
        let place = match delivery.message.lane() {
            Some(lane) => *places.entry(lane).or_insert(next),
            None => next,
        };
        if place == next {
            lanes.push(Vec::new());
        }
        lanes[place].push(delivery);
    }
    lanes
}

/// Reports the outcomes of a batch, or of some lanes of it. The first failure of a lane takes the blame and stops it: what
/// follows is reported as not attempted, and uses up no attempt.
pub(crate) struct LaneReport<'a> {
    batch: &'a Batch,
    report: &'a Report,
    stopped: HashSet<(&'a str, &'a str)>,
}

impl<'a> LaneReport<'a> {
    pub(crate) fn new(batch: &'a Batch, report: &'a Report) -> Self {
        Self {
            batch,
            report,
            stopped: HashSet::new(),
        }
    }

    /// Whether the message may be sent now; else it is reported, and its lane is stopped.
    pub(crate) fn admit(&mut self, delivery: &'a Delivery) -> bool {
        let admitted = !self.is_stopped(delivery) && self.batch.may_send(delivery.place);
        if !admitted {
            self.outcome(delivery, Outcome::NotAttempted);
        }
        admitted
    }

    /// What became of a message that was admitted.
    pub(crate) fn answer(&mut self, delivery: &'a Delivery, result: Result<Receipt, PublishError>) {
        let outcome = match result {
            Ok(receipt) => Outcome::Delivered(receipt),
            Err(_) if self.is_stopped(delivery) => Outcome::NotAttempted,
            Err(error) => Outcome::Failed(error),
        };
        self.outcome(delivery, outcome);
    }

    /// Reports an outcome; all but a delivery stop the lane.
    pub(crate) fn outcome(&mut self, delivery: &'a Delivery, outcome: Outcome) {
        if !outcome.is_delivered() {
            self.stopped.extend(delivery.message.lane());
        }
        self.report.outcome(delivery.place, outcome);
    }

    /// Whether something of the message's lane did not go out.
    pub(crate) fn is_stopped(&self, delivery: &Delivery) -> bool {
        // A message without a key is never held back by another.
        !self.stopped.is_empty() && delivery.message.lane().is_some_and(|lane| self.stopped.contains(&lane))
    }
}
