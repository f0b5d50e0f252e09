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

use super::in_flight::ByLane;

/// Brokers forget an idle producer after a day (`producer.id.expiration.ms`).
const SUSPICION_TTL: Duration = Duration::from_mins(10);

/// Most lanes, and most topics, that are remembered. Beyond it they are learnt anew.
const MAX_LANES: usize = 10_000;
const MAX_TOPICS: usize = 10_000;

/// In place of a partition that is not known.
const NO_PARTITION: i32 = -1;

#[derive(Default)]
pub(super) struct AckTracker {
    state: Mutex<State>,
    /// Whether any partition is doubted, so that a success need not take the lock to find out.
    doubts: AtomicBool,
}

#[derive(Default)]
struct State {
    generation: u64,
    lanes: ByLane<Acknowledged>,
    partitions: HashMap<String, HashMap<i32, Instant>>,
    doubted: HashMap<String, HashSet<i32>>,
}

/// A lane's latest acknowledgement.
struct Acknowledged {
    partition: i32,
    /// The producer for lanes that got it, if it was one.
    generation: Option<u64>,
    since: Instant,
}

/// A lane's name in few bytes: the topic that is written to, and the record's key.
pub(super) fn lane(topic: &str, key: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (topic, key).hash(&mut hasher);
    hasher.finish()
}

impl AckTracker {
    /// Whether the broker has acknowledged something to this producer in the lane's partition.
    pub(super) fn is_warm(&self, generation: u64, lane: u64, topic: &str, partitions: usize) -> bool {
        let state = self.state();
        if state.generation != generation {
            return false;
        }
        let by_itself = |lane: &Acknowledged| lane.generation == Some(generation) && is_fresh(&lane.since);
        state.lanes.get(&lane).is_some_and(by_itself) || state.is_all_warm(topic, partitions)
    }

    /// Takes note of an acknowledgement to the producer for lanes, or (without a generation) to the other one, which
    /// tells no more than where the lane goes.
    pub(super) fn warmed(&self, generation: Option<u64>, lane: u64, topic: &str, partition: i32) {
        let mut state = self.state();
        let now = Instant::now();
        let acknowledged = Acknowledged {
            partition,
            generation,
            since: now,
        };
        let Some(generation) = generation else {
            match state.lanes.get(&lane) {
                Some(known) if known.partition == partition => {}
                // What was acknowledged where the lane went before says nothing about where it goes now.
                _ => state.remember(lane, acknowledged),
            }
            return;
        };
        if generation < state.generation {
            return;
        }
        if generation > state.generation {
            state.generation = generation;
            state.partitions.clear();
        }
        state.remember(lane, acknowledged);
        if let Some(of_topic) = state.partitions.get_mut(topic) {
            of_topic.insert(partition, now);
            return;
        }
        if state.partitions.len() >= MAX_TOPICS {
            state.partitions.clear();
        }
        state
            .partitions
            .insert(topic.to_owned(), HashMap::from([(partition, now)]));
    }

    /// Something of the partition failed: until something of it succeeds, its lanes go out one message at a time, by the
    /// other producer. Otherwise a partition that refuses everything, or that has no leader, would end the producer that
    /// serves all lanes again and again.
    pub(super) fn mark_suspect(&self, topic: &str, partition: i32) {
        let mut state = self.state();
        if let Some(of_topic) = state.doubted.get_mut(topic) {
            of_topic.insert(partition);
        } else {
            if state.doubted.len() >= MAX_TOPICS {
                state.doubted.clear();
            }
            state.doubted.insert(topic.to_owned(), HashSet::from([partition]));
        }
        self.doubts.store(true, Ordering::Relaxed);
    }

    /// Something of the partition succeeded.
    pub(super) fn clear_suspect(&self, topic: &str, partition: i32) {
        if !self.doubts.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state();
        if let Some(of_topic) = state.doubted.get_mut(topic) {
            of_topic.remove(&partition);
            of_topic.remove(&NO_PARTITION);
            if of_topic.is_empty() {
                state.doubted.remove(topic);
            }
        }
        self.doubts.store(!state.doubted.is_empty(), Ordering::Relaxed);
    }

    /// Whether any partition is doubted.
    pub(super) fn has_suspects(&self) -> bool {
        self.doubts.load(Ordering::Relaxed)
    }

    /// Whether every partition of the topic has acknowledged something to this producer.
    pub(super) fn is_all_warm(&self, generation: u64, topic: &str, partitions: usize) -> bool {
        let state = self.state();
        state.generation == generation && state.is_all_warm(topic, partitions)
    }

    /// How many partitions of the topic are doubted.
    pub(super) fn doubted(&self, topic: &str) -> usize {
        let state = self.state();
        state.doubted.get(topic).map_or(0, HashSet::len)
    }

    /// Whether the lane goes, or may go, to a partition that is doubted.
    pub(super) fn is_doubted(&self, topic: &str, lane: u64) -> bool {
        if !self.doubts.load(Ordering::Relaxed) {
            return false;
        }
        let state = self.state();
        state.doubted.get(topic).is_some_and(|of_topic| {
            let partition = state.lanes.get(&lane).map(|lane| lane.partition);
            of_topic.contains(&NO_PARTITION) || partition.is_none_or(|partition| of_topic.contains(&partition))
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while holding the lock, and the data would be sound if it did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_fresh(since: &Instant) -> bool {
    since.elapsed() < SUSPICION_TTL
}

impl State {
    fn is_all_warm(&self, topic: &str, partitions: usize) -> bool {
        let all = |of_topic: &HashMap<i32, Instant>| of_topic.values().filter(|at| is_fresh(at)).count() >= partitions;
        partitions > 0 && self.partitions.get(topic).is_some_and(all)
    }

    fn remember(&mut self, lane: u64, acknowledged: Acknowledged) {
        if self.lanes.len() >= MAX_LANES {
            self.lanes.clear();
        }
        self.lanes.insert(lane, acknowledged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_warm_by_itself_or_by_all_partitions() {
        let acks = AckTracker::default();
        let (a, b) = (lane("t", "a"), lane("t", "b"));
        assert!(!acks.is_warm(1, a, "t", 2));
        acks.warmed(Some(1), a, "t", 0);
        assert!(acks.is_warm(1, a, "t", 2));
        assert!(!acks.is_warm(1, b, "t", 2), "it may be in the other partition");
        acks.warmed(Some(1), a, "t", 1);
        assert!(acks.is_warm(1, b, "t", 2));
        assert!(!acks.is_warm(1, b, "t", 3), "partitions were added");
        assert!(!acks.is_warm(1, b, "u", 2));
        assert!(!acks.is_warm(1, b, "t", 0), "how many there are is not known");
    }

    #[test]
    fn a_new_producer_is_a_stranger_everywhere() {
        let acks = AckTracker::default();
        let a = lane("t", "a");
        acks.warmed(Some(1), a, "t", 0);
        assert!(!acks.is_warm(2, a, "t", 1));
        acks.warmed(Some(2), lane("t", "b"), "t", 0);
        acks.warmed(Some(1), a, "t", 1);
        assert!(
            !acks.is_warm(2, a, "t", 2),
            "a late answer to the old one does not count"
        );
    }

    #[test]
    fn doubt_lasts_until_something_of_the_partition_succeeds() {
        let acks = AckTracker::default();
        let (a, b, new) = (lane("t", "a"), lane("t", "b"), lane("t", "new"));
        acks.warmed(Some(1), a, "t", 0);
        acks.warmed(None, b, "t", 1);
        acks.mark_suspect("t", 0);
        acks.clear_suspect("u", 0);
        acks.clear_suspect("t", 1);
        assert!(acks.is_doubted("t", a) && !acks.is_doubted("t", b));
        assert!(acks.is_doubted("t", new), "it may go there as well");
        assert!(!acks.is_doubted("u", a));
        acks.clear_suspect("t", 0);
        assert!(!acks.is_doubted("t", a) && !acks.is_doubted("t", new));
        acks.mark_suspect("t", NO_PARTITION);
        assert!(acks.is_doubted("t", b), "it is not known where it failed");
        acks.clear_suspect("t", 1);
        assert!(!acks.is_doubted("t", b));
    }

    /// As when partitions were added to the topic.
    #[test]
    fn a_lane_that_moved_is_judged_by_where_it_goes_now() {
        let acks = AckTracker::default();
        let a = lane("t", "a");
        acks.warmed(Some(1), a, "t", 0);
        acks.warmed(None, a, "t", 0);
        assert!(acks.is_warm(1, a, "t", 3), "it went there before");
        acks.mark_suspect("t", 0);
        acks.warmed(None, a, "t", 2);
        assert!(!acks.is_doubted("t", a));
        assert!(!acks.is_warm(1, a, "t", 3), "the other producer had the answer");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let acks = AckTracker::default();
        for n in 0..25_000 {
            let topic = n.to_string();
            acks.warmed(Some(1), lane(&topic, "k"), &topic, 0);
            acks.mark_suspect(&topic, 0);
        }
        let state = acks.state();
        assert!(state.lanes.len() <= MAX_LANES && state.partitions.len() <= MAX_TOPICS);
        assert!(state.doubted.len() <= MAX_TOPICS);
    }
}
