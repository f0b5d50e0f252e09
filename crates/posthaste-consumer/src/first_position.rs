//! Where a group begins that has no offset and was told to begin with what comes from now on.
//!
//! "Now" must be one moment. Left to the client it is the moment of every start until the first commit: a consumer that
//! dies before that would begin behind all that came meanwhile. It would also be the moment in which an offset turns out
//! to be no longer there, because the group was down for longer than the brokers keep its topics, and all that is still
//! there would be passed over. So the client is told to begin with the oldest event, always, and the first position is
//! committed before anything is read.
//!
//! The moment is that of the first assignment, also for a partition that has no leader then and cannot say where it ends.
//! A partition that was added to its topic after that begins at its beginning: all that it holds came since.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use posthaste_kafka::error::explain_error;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::MetadataTopic;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::context::Context;
use crate::failpoint;
use crate::initial_partitions;

/// Longest wait for one answer, and for all the answers that one assignment needs.
pub(crate) const WITHIN: Duration = Duration::from_secs(10);

/// How much older than its arrival a record may say that it is: clocks differ, and records wait for a partition without
/// a leader, in the producer or in an outbox.
const EARLIER: Duration = Duration::from_hours(1);

/// Topic and partition.
pub(crate) type Key = (String, i32);

/// What is remembered of a partition without an offset until its first position is committed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstSeen {
    /// When it was assigned for the first time.
    at: SystemTime,
    /// Where the group begins.
    position: Option<i64>,
}

impl FirstSeen {
    pub(crate) fn now() -> Self {
        Self {
            at: SystemTime::now(),
            position: None,
        }
    }

    /// Takes note of where the group begins, unless that is known.
    pub(crate) fn found(&mut self, position: i64) {
        self.position.get_or_insert(position);
    }

    /// Kafka's time from which on records may have come after the first assignment.
    fn since(self) -> i64 {
        let since = (self.at - EARLIER).duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }
}

/// What is known of partitions.
#[derive(Debug, Default)]
pub(crate) struct Look {
    /// The group's offsets; nothing for a partition that it has none for.
    pub(crate) committed: HashMap<Key, Option<i64>>,
    /// Where the group begins with partitions that it has no offset for, or may have none for.
    pub(crate) first: HashMap<Key, i64>,
    /// Why something is not known.
    pub(crate) errors: BTreeMap<Key, String>,
}

/// Finds out where a group is. `seen` are partitions that were asked for before.
pub(crate) fn look(consumer: &BaseConsumer<Context>, wanted: &[Key], seen: &HashMap<Key, FirstSeen>) -> Look {
    let mut look = Look::default();
    match committed(consumer, &list(wanted, Offset::Invalid)) {
        Ok(known) => {
            for element in known.elements() {
                let key = (element.topic().to_owned(), element.partition());
                // An error of a partition comes with an answer that is a success, and looks like "no offset".
                match (element.error(), element.offset()) {
                    (Err(error), _) => drop(look.errors.insert(key, text(&error))),
                    (Ok(()), Offset::Offset(next)) => drop(look.committed.insert(key, Some(next))),
                    (Ok(()), _) => drop(look.committed.insert(key, None)),
                }
            }
        }
        Err(error) => {
            let all = wanted.iter().map(|key| (key.clone(), text(&error)));
            look.errors.extend(all);
        }
    }
    let has_offset = |key: &&Key| matches!(look.committed.get(*key), Some(Some(_)));
    let (_, open): (Vec<&Key>, Vec<&Key>) = wanted.iter().partition(has_offset);
    find_initial_partitions(consumer, wanted, &open, &mut look);
    let mut unknown = Vec::new();
    for key in open {
        match seen.get(key).and_then(|seen| seen.position) {
            Some(position) if !was_added(consumer, key) => drop(look.first.insert(key.clone(), position)),
            _ => unknown.push(key.clone()),
        }
    }
    find_ends(consumer, &unknown, seen, &mut look);
    look
}

/// Finds out how many partitions topics had when the group began with them, where that decides or is not known yet. Without
/// an answer it is not settled where the group begins with those that have no offset.
fn find_initial_partitions(consumer: &BaseConsumer<Context>, wanted: &[Key], open: &[&Key], look: &mut Look) {
    let known = &consumer.context().initial_partitions;
    let answered = wanted.iter().filter(|key| look.committed.contains_key(*key));
    let topics: BTreeSet<&str> = answered.map(|(topic, _)| topic.as_str()).collect();
    for topic in topics {
        let open = || open.iter().filter(|(of, _)| of == topic);
        if open().next().is_none() && known.get(topic).is_some() {
            continue;
        }
        match initial_partitions_of(consumer, topic) {
            Ok(Some(partitions)) => known.set(topic, partitions),
            Ok(None) => {}
            Err(error) => {
                for key in open() {
                    look.committed.remove(*key);
                    look.errors.insert((*key).clone(), text(&error));
                }
            }
        }
    }
}

/// Whether a partition is known to have been added to its topic after the group began with that.
fn was_added(consumer: &BaseConsumer<Context>, (topic, partition): &Key) -> bool {
    let initial = consumer.context().initial_partitions.get(topic);
    initial.is_some_and(|initial| *partition >= initial)
}

fn initial_partitions_of(consumer: &BaseConsumer<Context>, topic: &str) -> Result<Option<i32>, KafkaError> {
    let metadata = consumer.fetch_metadata(Some(topic), WITHIN)?;
    let partitions = metadata.topics().iter().flat_map(MetadataTopic::partitions);
    let all: Vec<Key> = partitions.map(|known| (topic.to_owned(), known.id())).collect();
    let known = committed(consumer, &list(&all, Offset::Invalid))?;
    let elements = known.elements();
    let mut offsets = Vec::with_capacity(elements.len());
    for element in &elements {
        element.error()?;
        offsets.push(matches!(element.offset(), Offset::Offset(_)).then(|| element.metadata()));
    }
    Ok(initial_partitions::initial(&offsets))
}

/// Reads the offsets that the group has for partitions.
pub(crate) fn committed(
    consumer: &BaseConsumer<Context>,
    partitions: &TopicPartitionList,
) -> Result<TopicPartitionList, KafkaError> {
    failpoint::fail("first_position", || {
        KafkaError::OffsetFetch(RDKafkaErrorCode::RequestTimedOut)
    })?;
    consumer.committed_offsets(partitions.clone(), WITHIN)
}

/// Commits first positions.
pub(crate) fn commit(consumer: &BaseConsumer<Context>, first: &HashMap<Key, i64>) -> Result<(), KafkaError> {
    if first.is_empty() {
        return Ok(());
    }
    commit_all(consumer, first.iter().map(|(key, position)| (key, *position)))
}

/// Commits offsets, with what is noted beside them, and waits for the answer.
pub(crate) fn commit_all<'a>(
    consumer: &BaseConsumer<Context>,
    offsets: impl Iterator<Item = (&'a Key, i64)>,
) -> Result<(), KafkaError> {
    let mut list = TopicPartitionList::new();
    for ((topic, partition), next) in offsets {
        let mut element = list.add_partition(topic, *partition);
        element.set_offset(Offset::Offset(next))?;
        let metadata = consumer.context().initial_partitions.metadata(topic);
        if !metadata.is_empty() {
            element.set_metadata(metadata);
        }
    }
    consumer.commit(&list, CommitMode::Sync)
}

/// Asks each leader for its own partitions, so that one that does not answer keeps no other partition waiting for long.
fn find_ends(consumer: &BaseConsumer<Context>, open: &[Key], seen: &HashMap<Key, FirstSeen>, look: &mut Look) {
    let deadline = Instant::now() + WITHIN;
    let left = || deadline.saturating_duration_since(Instant::now());
    for (leader, partitions) in by_leader(consumer, open, left(), look) {
        let asked = if leader < 0 {
            Err(KafkaError::MetadataFetch(RDKafkaErrorCode::LeaderNotAvailable))
        } else if left().is_zero() {
            Err(KafkaError::OffsetFetch(RDKafkaErrorCode::RequestTimedOut))
        } else {
            ends(consumer, &partitions, seen, left(), look)
        };
        if let Err(error) = asked {
            let all = partitions.into_iter().map(|key| (key, text(&error)));
            look.errors.extend(all);
        }
    }
}

/// Partitions by the broker that leads them; -1 for those without a leader.
fn by_leader(
    consumer: &BaseConsumer<Context>,
    open: &[Key],
    within: Duration,
    look: &mut Look,
) -> BTreeMap<i32, Vec<Key>> {
    let mut leaders: HashMap<&str, HashMap<i32, i32>> = HashMap::new();
    let mut found: BTreeMap<i32, Vec<Key>> = BTreeMap::new();
    for key @ (topic, partition) in open {
        if !leaders.contains_key(topic.as_str()) {
            let asked = consumer.fetch_metadata(Some(topic), within);
            let of_topic = asked.map(|metadata| {
                let partitions = metadata.topics().iter().flat_map(MetadataTopic::partitions);
                partitions.map(|known| (known.id(), known.leader())).collect()
            });
            match of_topic {
                Ok(of_topic) => drop(leaders.insert(topic, of_topic)),
                Err(error) => {
                    look.errors.insert(key.clone(), text(&error));
                    continue;
                }
            }
        }
        let leader = leaders[topic.as_str()].get(partition).copied().unwrap_or(-1);
        found.entry(leader).or_default().push(key.clone());
    }
    found
}

/// Where partitions end; for those that could not say so when they were first assigned, where they may have ended then.
fn ends(
    consumer: &BaseConsumer<Context>,
    partitions: &[Key],
    seen: &HashMap<Key, FirstSeen>,
    within: Duration,
    look: &mut Look,
) -> Result<(), KafkaError> {
    let (added, partitions): (Vec<&Key>, Vec<&Key>) = partitions.iter().partition(|key| was_added(consumer, key));
    begin_with_all(consumer, &added, within, look)?;
    // The end first: what comes between the two questions must not be passed over.
    let ends = offsets(consumer, list(partitions.iter().copied(), Offset::End), within, look)?;
    let mut since = TopicPartitionList::new();
    for key @ (topic, partition) in partitions {
        if let Some(seen) = seen.get(key) {
            since.add_partition_offset(topic, *partition, Offset::Offset(seen.since()))?;
        }
    }
    let came_since = offsets(consumer, since, within, look)?;
    for (key, end) in ends {
        let Offset::Offset(end) = end else { continue };
        let position = match (seen.get(&key), came_since.get(&key)) {
            (None, _) | (Some(_), Some(Offset::End)) => end,
            (Some(_), Some(Offset::Offset(position))) => end.min(*position),
            _ => continue,
        };
        look.first.insert(key, position);
    }
    Ok(())
}

/// Where partitions begin that were added after the group had begun.
fn begin_with_all(
    consumer: &BaseConsumer<Context>,
    added: &[&Key],
    within: Duration,
    look: &mut Look,
) -> Result<(), KafkaError> {
    let beginnings = offsets(consumer, list(added.iter().copied(), Offset::Beginning), within, look)?;
    for (key, beginning) in beginnings {
        if let Offset::Offset(beginning) = beginning {
            let (topic, partition) = &key;
            tracing::info!(
                topic,
                partition,
                "the partition was added after the group began; all of it is read"
            );
            look.first.insert(key, beginning);
        }
    }
    Ok(())
}

/// The offsets that a list of times stands for; the end for a time after which nothing came.
fn offsets(
    consumer: &BaseConsumer<Context>,
    times: TopicPartitionList,
    within: Duration,
    look: &mut Look,
) -> Result<HashMap<Key, Offset>, KafkaError> {
    let mut offsets = HashMap::new();
    if times.count() == 0 {
        return Ok(offsets);
    }
    let found = consumer.offsets_for_times(times, within)?;
    for element in found.elements() {
        let key = (element.topic().to_owned(), element.partition());
        match element.error() {
            Ok(()) => drop(offsets.insert(key, element.offset())),
            Err(error) => drop(look.errors.insert(key, text(&error))),
        }
    }
    Ok(offsets)
}

pub(crate) fn list<'a>(keys: impl IntoIterator<Item = &'a Key>, offset: Offset) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (topic, partition) in keys {
        let mut element = list.add_partition(topic, *partition);
        drop(element.set_offset(offset));
    }
    list
}

fn text(error: &KafkaError) -> String {
    explain_error(error, None).text
}
