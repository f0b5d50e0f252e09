//! A batch sorted by lanes and topics.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use posthaste_core::publisher::{Delivery, PublishError};

use super::in_flight::ByLane;
use super::{acks, route};
use crate::routing::Route;

/// The messages of a batch lane by lane. A message without a key is a lane of its own.
pub(super) struct SortedLanes {
    /// The numbers of the batch's deliveries, lane by lane and in order within each.
    pub(super) order: Vec<u32>,
    /// Where each lane stands there.
    pub(super) lanes: Vec<Range<u32>>,
    /// Their names, by topic and key of their messages.
    pub(super) names: Vec<Option<u64>>,
}

impl SortedLanes {
    pub(super) fn new(deliveries: &[Delivery]) -> Self {
        let mut by_name: ByLane<u32> = ByLane::default();
        let mut names = Vec::new();
        let mut counts: Vec<u32> = Vec::new();
        let lane_of: Vec<u32> = deliveries
            .iter()
            .map(|delivery| {
                let next = u32::try_from(counts.len()).unwrap_or(u32::MAX);
                let name = delivery.message.lane().map(|(topic, key)| acks::lane(topic, key));
                let lane = name.map_or(next, |name| *by_name.entry(name).or_insert(next));
                if lane == next {
                    names.push(name);
                    counts.push(0);
                }
                counts[lane as usize] += 1;
                lane
            })
            .collect();
        let mut begin = 0;
        let lanes: Vec<Range<u32>> = counts
            .iter()
            .map(|count| {
                begin += count;
                begin - count..begin
            })
            .collect();
        let mut next: Vec<u32> = lanes.iter().map(|lane| lane.start).collect();
        let mut order = vec![0; deliveries.len()];
        for (number, lane) in (0..).zip(lane_of) {
            let position = &mut next[lane as usize];
            order[*position as usize] = number;
            *position += 1;
        }
        Self { order, lanes, names }
    }
}

/// Where the messages of a batch go.
pub(super) struct Targets<'a> {
    /// Each topic once, or why a message goes to none.
    pub(super) topics: Vec<Result<Cow<'a, str>, PublishError>>,
    /// Which of them, by the delivery's number.
    pub(super) of: Vec<u32>,
}

impl<'a> Targets<'a> {
    pub(super) fn new(routes: &[Route], deliveries: &'a [Delivery]) -> Self {
        let mut topics: Vec<Result<Cow<'a, str>, PublishError>> = Vec::new();
        let mut known: HashMap<Cow<'a, str>, usize> = HashMap::new();
        let mut last = 0;
        let of = deliveries
            .iter()
            .map(|delivery| {
                let same = |last: &Result<Cow<'a, str>, PublishError>| last.as_deref() == Ok(&*delivery.message.topic);
                // Most batches go to one topic.
                if !routes.is_empty() || !topics.get(last).is_some_and(same) {
                    let topic = route::topic(routes, &delivery.message);
                    let next = topics.len();
                    last = match &topic {
                        Ok(name) => *known.entry(name.clone()).or_insert(next),
                        Err(_) => next,
                    };
                    if last == next {
                        topics.push(topic);
                    }
                }
                u32::try_from(last).unwrap_or(u32::MAX)
            })
            .collect();
        Self { topics, of }
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use posthaste_core::Message;

    use super::*;

    #[test]
    fn lanes_stand_together_and_messages_without_a_key_alone() {
        let keyed = |key: &str| Message::new("t", "x").key(key);
        let messages = [
            keyed("a"),
            keyed("b"),
            Message::new("t", "x"),
            keyed("a"),
            Message::new("t", "x"),
        ];
        let deliveries = messages.map(|message| Delivery::new(message, DateTime::UNIX_EPOCH));
        let sorted = SortedLanes::new(&deliveries);
        assert_eq!(sorted.order, [0, 3, 1, 2, 4]);
        assert_eq!(sorted.lanes, [0..2, 2..3, 3..4, 4..5]);
        let named: Vec<bool> = sorted.names.iter().map(Option::is_some).collect();
        assert_eq!(named, [true, true, false, false]);
        let targets = Targets::new(&[], &deliveries);
        assert_eq!((targets.topics.len(), targets.of), (1, vec![0; 5]));
    }
}
