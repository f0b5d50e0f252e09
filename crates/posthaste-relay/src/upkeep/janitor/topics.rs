//! Which topics are shown by name. Names are the producers', so there may be any number of them, and a series that was shown
//! once stays: what is beyond the bounds is shown as one, `other`.

use std::collections::BTreeMap;

use posthaste_core::store::TopicBacklog;

/// So many topics are shown at a time.
const MAX_SHOWN: usize = 20;

/// So many topics are ever shown by a relay.
const MAX_EVER_SHOWN: usize = 100;

/// All that are not shown by name.
const OTHER: &str = "other";

/// What is shown of a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Backlog {
    pub(super) pending: u64,
    pub(super) oldest_seconds: f64,
}

/// The topics that were shown so far, with what is pending of them; `other` from the start on.
#[derive(Debug)]
pub(super) struct ShownTopics(BTreeMap<String, Backlog>);

impl Default for ShownTopics {
    fn default() -> Self {
        Self([(OTHER.to_owned(), Backlog::default())].into())
    }
}

impl ShownTopics {
    /// Takes over what was counted, the most first.
    pub(super) fn update(&mut self, topics: &[TopicBacklog]) {
        self.clear();
        for (place, topic) in topics.iter().enumerate() {
            let has_room = self.0.contains_key(&topic.topic) || self.0.len() <= MAX_EVER_SHOWN;
            let name = if place < MAX_SHOWN && has_room {
                &topic.topic
            } else {
                OTHER
            };
            let backlog = self.0.entry(name.to_owned()).or_default();
            backlog.pending += topic.pending;
            backlog.oldest_seconds = backlog.oldest_seconds.max(topic.oldest_seconds);
        }
    }

    /// Nothing is pending, as far as this relay shows.
    pub(super) fn clear(&mut self) {
        self.0.values_mut().for_each(|backlog| *backlog = Backlog::default());
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, Backlog)> {
        self.0.iter().map(|(topic, backlog)| (topic.as_str(), *backlog))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str, pending: u64) -> TopicBacklog {
        TopicBacklog {
            topic: name.to_owned(),
            pending,
            oldest_seconds: 1.0,
        }
    }

    #[test]
    fn the_largest_are_shown_by_name_and_the_rest_as_one() {
        let mut shown = ShownTopics::default();
        let topics: Vec<_> = (0..25).map(|n| topic(&format!("t{n:02}"), 25 - n)).collect();
        shown.update(&topics);
        let shown: BTreeMap<_, _> = shown.iter().map(|(name, backlog)| (name, backlog.pending)).collect();
        assert_eq!(shown.len(), 21);
        assert_eq!((shown["t00"], shown["t19"], shown["other"]), (25, 6, 5 + 4 + 3 + 2 + 1));
    }

    #[test]
    fn a_topic_that_is_through_shows_nothing_and_stays() {
        let mut shown = ShownTopics::default();
        shown.update(&[topic("a", 1), topic("b", 1)]);
        shown.update(&[topic("b", 2)]);
        let shown: Vec<_> = shown.iter().map(|(name, backlog)| (name, backlog.pending)).collect();
        assert_eq!(shown, [("a", 0), ("b", 2), ("other", 0)]);
    }

    #[test]
    fn ever_new_topics_are_not_ever_new_series() {
        let mut shown = ShownTopics::default();
        for n in 0..1_000 {
            shown.update(&[topic(&n.to_string(), 1)]);
        }
        assert_eq!(shown.iter().count(), MAX_EVER_SHOWN + 1);
        let other = shown
            .iter()
            .find(|(name, _)| *name == OTHER)
            .map(|(_, backlog)| backlog.pending);
        assert_eq!(other, Some(1));
    }
}
