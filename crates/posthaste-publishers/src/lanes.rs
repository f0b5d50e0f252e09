//! A batch taken apart into the lanes in which order holds.

use std::collections::HashMap;
#[cfg(any(feature = "file", feature = "log", feature = "stdout"))]
use std::collections::HashSet;

#[cfg(any(feature = "file", feature = "log", feature = "stdout"))]
use posthaste_core::Message;
use posthaste_core::publisher::Delivery;

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

/// A set of lanes; messages without one are never in it.
#[cfg(any(feature = "file", feature = "log", feature = "stdout"))]
#[derive(Default)]
pub(crate) struct LaneSet<'a>(HashSet<(&'a str, &'a str)>);

#[cfg(any(feature = "file", feature = "log", feature = "stdout"))]
impl<'a> LaneSet<'a> {
    pub(crate) fn contains(&self, message: &Message) -> bool {
        message.lane().is_some_and(|lane| self.0.contains(&lane))
    }

    pub(crate) fn insert(&mut self, message: &'a Message) {
        self.0.extend(message.lane());
    }
}
