//! Which lanes may be handed over in one go.
//!
//! Brokers refuse a record that follows a lost one by its sequence number, but only once they have seen the producer in
//! that partition: the first numbers of a producer they take as they come. So of a lane whose partition has not yet
//! acknowledged anything to this producer only the first message is handed over, and the rest after its answer.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Brokers forget an idle producer after a day (`producer.id.expiration.ms`).
const LASTS: Duration = Duration::from_mins(10);

/// Most lanes that are remembered. Beyond it they are learnt anew.
const MOST_LANES: usize = 10_000;

#[derive(Default)]
pub(super) struct Warmth {
    state: Mutex<State>,
    /// Whether any topic is doubted, so that a success need not take the lock to find out.
    doubts: AtomicBool,
}

#[derive(Default)]
struct State {
    generation: u64,
    lanes: HashMap<u64, Instant>,
    partitions: HashMap<String, HashMap<i32, Instant>>,
    doubted: HashSet<String>,
}

/// A lane's name in few bytes.
pub(super) fn lane(topic: &str, key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (topic, key).hash(&mut hasher);
    hasher.finish()
}

impl Warmth {
    /// Whether the broker has acknowledged something to this producer in the lane's partition.
    pub(super) fn is_warm(&self, generation: u64, lane: u64, topic: &str, partitions: usize) -> bool {
        let state = self.state();
        let fresh = |since: &Instant| since.elapsed() < LASTS;
        if state.generation != generation {
            return false;
        }
        let all =
            |of_topic: &HashMap<i32, Instant>| of_topic.values().filter(|since| fresh(since)).count() >= partitions;
        state.lanes.get(&lane).is_some_and(fresh) || (partitions > 0 && state.partitions.get(topic).is_some_and(all))
    }

    /// Takes note of an acknowledgement.
    pub(super) fn warmed(&self, generation: u64, lane: u64, topic: &str, partition: i32) {
        let mut state = self.state();
        if generation < state.generation {
            return;
        }
        if generation > state.generation {
            state.generation = generation;
            state.lanes.clear();
            state.partitions.clear();
        }
        if state.lanes.len() >= MOST_LANES {
            state.lanes.clear();
        }
        let now = Instant::now();
        state.lanes.insert(lane, now);
        match state.partitions.get_mut(topic) {
            Some(of_topic) => {
                of_topic.insert(partition, now);
            }
            None => {
                state
                    .partitions
                    .insert(topic.to_owned(), HashMap::from([(partition, now)]));
            }
        }
    }

    /// Something of the topic failed: until something of it succeeds, its lanes go out one message at a time. Otherwise
    /// a topic that refuses everything would end the producer that serves all lanes again and again.
    pub(super) fn doubt(&self, topic: &str) {
        let mut state = self.state();
        state.doubted.insert(topic.to_owned());
        self.doubts.store(true, Ordering::Relaxed);
    }

    /// Something of the topic succeeded.
    pub(super) fn trust(&self, topic: &str) {
        if self.doubts.load(Ordering::Relaxed) {
            let mut state = self.state();
            state.doubted.remove(topic);
            self.doubts.store(!state.doubted.is_empty(), Ordering::Relaxed);
        }
    }

    pub(super) fn is_doubted(&self, topic: &str) -> bool {
        self.state().doubted.contains(topic)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_warm_by_itself_or_by_all_partitions() {
        let warmth = Warmth::default();
        let (a, b) = (lane("t", "a"), lane("t", "b"));
        assert!(!warmth.is_warm(1, a, "t", 2));
        warmth.warmed(1, a, "t", 0);
        assert!(warmth.is_warm(1, a, "t", 2));
        assert!(!warmth.is_warm(1, b, "t", 2), "it may be in the other partition");
        warmth.warmed(1, a, "t", 1);
        assert!(warmth.is_warm(1, b, "t", 2));
        assert!(!warmth.is_warm(1, b, "t", 3), "partitions were added");
        assert!(!warmth.is_warm(1, b, "u", 2));
        assert!(!warmth.is_warm(1, b, "t", 0), "how many there are is not known");
    }

    #[test]
    fn a_new_producer_is_a_stranger_everywhere() {
        let warmth = Warmth::default();
        let a = lane("t", "a");
        warmth.warmed(1, a, "t", 0);
        assert!(!warmth.is_warm(2, a, "t", 1));
        warmth.warmed(2, lane("t", "b"), "t", 0);
        warmth.warmed(1, a, "t", 1);
        assert!(
            !warmth.is_warm(2, a, "t", 2),
            "a late answer to the old one does not count"
        );
    }

    #[test]
    fn doubt_lasts_until_something_succeeds() {
        let warmth = Warmth::default();
        warmth.doubt("t");
        warmth.trust("u");
        assert!(warmth.is_doubted("t") && !warmth.is_doubted("u"));
        warmth.trust("t");
        assert!(!warmth.is_doubted("t"));
    }
}
