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
use rdkafka::consumer::Consumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::MetadataTopic;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::context::Client;
use super::initial_partitions::{self, InitialPartitions};
use super::offsets::{self, REQUEST_TIMEOUT, list};
use crate::source::Lane;

/// How much older than its arrival a record may say that it is: clocks differ, and records wait for a partition without
/// a leader, in the producer or in an outbox.
const CLOCK_TOLERANCE: Duration = Duration::from_hours(1);

/// What is remembered of a partition without an offset until its first position is committed.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstAssigned {
    /// When it was assigned for the first time.
    at: SystemTime,
    /// Where the group begins.
    position: Option<i64>,
}

impl FirstAssigned {
    pub(super) fn now() -> Self {
        Self {
            at: SystemTime::now(),
            position: None,
        }
    }

    /// Takes note of where the group begins, unless that is known.
    pub(super) fn found(&mut self, position: i64) {
        self.position.get_or_insert(position);
    }

    /// Kafka's time from which on records may have come after the first assignment.
    fn since(self) -> i64 {
        let since = (self.at - CLOCK_TOLERANCE)
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }
}

/// A group of consumers, and what is noted beside its offsets.
#[derive(Clone, Copy)]
pub(super) struct Group<'a> {
    pub(super) client: &'a Client,
    pub(super) initial_partitions: &'a InitialPartitions,
}

/// What is known of partitions.
#[derive(Debug, Default)]
pub(super) struct Lookup {
    /// The group's offsets; nothing for a partition that it has none for.
    pub(super) committed: HashMap<Lane, Option<i64>>,
    /// Where the group begins with partitions that it has no offset for, or may have none for.
    pub(super) first: HashMap<Lane, i64>,
    /// Why something is not known.
    pub(super) errors: BTreeMap<Lane, String>,
}

/// Finds out where a group is. `seen` are partitions that were asked for before.
pub(super) fn lookup(group: Group<'_>, wanted: &[Lane], seen: &HashMap<Lane, FirstAssigned>) -> Lookup {
    let mut lookup = Lookup::default();
    match offsets::committed(group.client, &list(wanted, Offset::Invalid)) {
        Ok(known) => {
            for element in known.elements() {
                let lane = Lane::new(element.topic(), element.partition());
                // An error of a partition comes with an answer that is a success, and looks like "no offset".
                match (element.error(), element.offset()) {
                    (Err(error), _) => drop(lookup.errors.insert(lane, text(&error))),
                    (Ok(()), Offset::Offset(next)) => drop(lookup.committed.insert(lane, Some(next))),
                    (Ok(()), _) => drop(lookup.committed.insert(lane, None)),
                }
            }
        }
        Err(error) => {
            let all = wanted.iter().map(|lane| (lane.clone(), text(&error)));
            lookup.errors.extend(all);
        }
    }
    let has_offset = |lane: &&Lane| matches!(lookup.committed.get(*lane), Some(Some(_)));
    let (_, open): (Vec<&Lane>, Vec<&Lane>) = wanted.iter().partition(has_offset);
    find_initial_partitions(group, wanted, &open, &mut lookup);
    let mut unknown = Vec::new();
    for lane in open {
        match seen.get(lane).and_then(|seen| seen.position) {
            Some(position) if !was_added(group, lane) => drop(lookup.first.insert(lane.clone(), position)),
            _ => unknown.push(lane.clone()),
        }
    }
    find_ends(group, &unknown, seen, &mut lookup);
    lookup
}

/// Finds out how many partitions topics had when the group began with them, where that decides or is not known yet. Without
/// an answer it is not settled where the group begins with those that have no offset.
fn find_initial_partitions(group: Group<'_>, wanted: &[Lane], open: &[&Lane], lookup: &mut Lookup) {
    let known = group.initial_partitions;
    let answered = wanted.iter().filter(|lane| lookup.committed.contains_key(*lane));
    let topics: BTreeSet<&str> = answered.map(|lane| lane.topic.as_str()).collect();
    for topic in topics {
        let open = || open.iter().filter(|lane| lane.topic == topic);
        if open().next().is_none() && known.get(topic).is_some() {
            continue;
        }
        match initial_partitions_of(group, topic) {
            Ok(Some(partitions)) => known.set(topic, partitions),
            Ok(None) => {}
            Err(error) => {
                for lane in open() {
                    lookup.committed.remove(*lane);
                    lookup.errors.insert((*lane).clone(), text(&error));
                }
            }
        }
    }
}

/// Whether a partition is known to have been added to its topic after the group began with that.
fn was_added(group: Group<'_>, Lane { topic, partition }: &Lane) -> bool {
    let initial = group.initial_partitions.get(topic);
    initial.is_some_and(|initial| *partition >= initial)
}

fn initial_partitions_of(group: Group<'_>, topic: &str) -> Result<Option<i32>, KafkaError> {
    let metadata = group.client.fetch_metadata(Some(topic), REQUEST_TIMEOUT)?;
    let partitions = metadata.topics().iter().flat_map(MetadataTopic::partitions);
    let all: Vec<Lane> = partitions.map(|known| Lane::new(topic, known.id())).collect();
    let known = offsets::committed(group.client, &list(&all, Offset::Invalid))?;
    let elements = known.elements();
    let mut offsets = Vec::with_capacity(elements.len());
    for element in &elements {
        element.error()?;
        offsets.push(matches!(element.offset(), Offset::Offset(_)).then(|| element.metadata()));
    }
    Ok(initial_partitions::initial(&offsets))
}

/// Asks each leader for its own partitions, so that one that does not answer keeps no other partition waiting for long.
fn find_ends(group: Group<'_>, open: &[Lane], seen: &HashMap<Lane, FirstAssigned>, lookup: &mut Lookup) {
    let deadline = Instant::now() + REQUEST_TIMEOUT;
    let left = || deadline.saturating_duration_since(Instant::now());
    for (leader, partitions) in by_leader(group, open, left(), lookup) {
        let asked = if leader < 0 {
            Err(KafkaError::MetadataFetch(RDKafkaErrorCode::LeaderNotAvailable))
        } else if left().is_zero() {
            Err(KafkaError::OffsetFetch(RDKafkaErrorCode::RequestTimedOut))
        } else {
            ends(group, &partitions, seen, left(), lookup)
        };
        if let Err(error) = asked {
            let all = partitions.into_iter().map(|lane| (lane, text(&error)));
            lookup.errors.extend(all);
        }
    }
}

/// Partitions by the broker that leads them; -1 for those without a leader.
fn by_leader(group: Group<'_>, open: &[Lane], within: Duration, lookup: &mut Lookup) -> BTreeMap<i32, Vec<Lane>> {
    let mut leaders: HashMap<&str, HashMap<i32, i32>> = HashMap::new();
    let mut found: BTreeMap<i32, Vec<Lane>> = BTreeMap::new();
    for lane @ Lane { topic, partition } in open {
        if !leaders.contains_key(topic.as_str()) {
            let asked = group.client.fetch_metadata(Some(topic), within);
            let of_topic = asked.map(|metadata| {
                let partitions = metadata.topics().iter().flat_map(MetadataTopic::partitions);
                partitions.map(|known| (known.id(), known.leader())).collect()
            });
            match of_topic {
                Ok(of_topic) => drop(leaders.insert(topic, of_topic)),
                Err(error) => {
                    lookup.errors.insert(lane.clone(), text(&error));
                    continue;
                }
            }
        }
        let leader = leaders[topic.as_str()].get(partition).copied().unwrap_or(-1);
        found.entry(leader).or_default().push(lane.clone());
    }
    found
}

/// Where partitions end; for those that could not say so when they were first assigned, where they may have ended then.
fn ends(
    group: Group<'_>,
    partitions: &[Lane],
    seen: &HashMap<Lane, FirstAssigned>,
    within: Duration,
    lookup: &mut Lookup,
) -> Result<(), KafkaError> {
    let (added, partitions): (Vec<&Lane>, Vec<&Lane>) = partitions.iter().partition(|lane| was_added(group, lane));
    begin_with_all(group, &added, within, lookup)?;
    // The end first: what comes between the two questions must not be passed over.
    let ends = offsets(group, list(partitions.iter().copied(), Offset::End), within, lookup)?;
    let mut since = TopicPartitionList::new();
    for lane @ Lane { topic, partition } in partitions {
        if let Some(seen) = seen.get(lane) {
            since.add_partition_offset(topic, *partition, Offset::Offset(seen.since()))?;
        }
    }
    let came_since = offsets(group, since, within, lookup)?;
    for (lane, end) in ends {
        let Offset::Offset(end) = end else { continue };
        let position = match (seen.get(&lane), came_since.get(&lane)) {
            (None, _) | (Some(_), Some(Offset::End)) => end,
            (Some(_), Some(Offset::Offset(position))) => end.min(*position),
            _ => continue,
        };
        lookup.first.insert(lane, position);
    }
    Ok(())
}

/// Where partitions begin that were added after the group had begun.
fn begin_with_all(group: Group<'_>, added: &[&Lane], within: Duration, lookup: &mut Lookup) -> Result<(), KafkaError> {
    let beginnings = offsets(group, list(added.iter().copied(), Offset::Beginning), within, lookup)?;
    for (lane, beginning) in beginnings {
        if let Offset::Offset(beginning) = beginning {
            let Lane { topic, partition } = &lane;
            tracing::info!(
                topic,
                partition,
                "the partition was added after the group began; all of it is read"
            );
            lookup.first.insert(lane, beginning);
        }
    }
    Ok(())
}

/// The offsets that a list of times stands for; the end for a time after which nothing came.
fn offsets(
    group: Group<'_>,
    times: TopicPartitionList,
    within: Duration,
    lookup: &mut Lookup,
) -> Result<HashMap<Lane, Offset>, KafkaError> {
    let mut offsets = HashMap::new();
    if times.count() == 0 {
        return Ok(offsets);
    }
    let found = group.client.offsets_for_times(times, within)?;
    for element in found.elements() {
        let lane = Lane::new(element.topic(), element.partition());
        match element.error() {
            Ok(()) => drop(offsets.insert(lane, element.offset())),
            Err(error) => drop(lookup.errors.insert(lane, text(&error))),
        }
    }
    Ok(offsets)
}

fn text(error: &KafkaError) -> String {
    explain_error(error, None).text
}
