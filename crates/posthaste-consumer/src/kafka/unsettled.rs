//! Partitions that are assigned, but not read yet, because it is not settled where the group begins with them.
//!
//! One without a leader must not keep the others waiting. So it is paused, and asked again while the others are read.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use posthaste_kafka::error::explain_error;
use rdkafka::consumer::Consumer;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::context::Client;
use super::first_position::{self, FirstAssigned, Group, Lookup};
use super::initial_partitions::InitialPartitions;
use super::offsets::{self, REQUEST_TIMEOUT, lanes};
use super::partitions::Partitions;
use crate::guard::RetryLogger;
use crate::source::Lane;

/// Longest wait between two lookups. Events that come to a partition between its leader's return and the next lookup are
/// told from older ones only by their time.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Partitions that wait for their first position. All of it is used by the polling thread.
pub(super) struct Unsettled {
    partitions: Arc<Partitions>,
    initial_partitions: Arc<InitialPartitions>,
    state: Mutex<State>,
    outage: RetryLogger,
}

#[derive(Default)]
struct State {
    waiting: BTreeSet<Lane>,
    seen: HashMap<Lane, FirstAssigned>,
    lookup: Option<JoinHandle<Lookup>>,
    next_lookup: Option<Instant>,
}

impl State {
    /// What was found out about partitions that may have another owner meanwhile is of no use.
    fn cancel_lookup(&mut self) {
        self.lookup = None;
        self.next_lookup = None;
    }

    /// Commits first positions and returns where to read, partition by partition.
    fn settle(&mut self, group: Group<'_>, mut lookup: Lookup) -> Settled {
        let mut first = HashMap::new();
        for (lane, position) in lookup.first {
            self.seen
                .entry(lane.clone())
                .or_insert_with(FirstAssigned::now)
                .found(position);
            if lookup.committed.get(&lane) == Some(&None) {
                first.insert(lane, position);
            }
        }
        let mut positions = HashMap::new();
        let offsets = first.iter().map(|(lane, position)| (lane, *position));
        match offsets::commit(group.client, group.initial_partitions, offsets) {
            Ok(()) => positions.extend(first),
            Err(error) => {
                let text = explain_error(&error, None).text;
                lookup.errors.extend(first.into_keys().map(|lane| (lane, text.clone())));
            }
        }
        let known = lookup
            .committed
            .into_iter()
            .filter_map(|(lane, next)| Some((lane, next?)));
        positions.extend(known);
        for lane in positions.keys() {
            self.seen.remove(lane);
        }
        Settled {
            positions,
            errors: lookup.errors,
        }
    }
}

struct Settled {
    positions: HashMap<Lane, i64>,
    errors: BTreeMap<Lane, String>,
}

impl Unsettled {
    pub(super) fn new(partitions: Arc<Partitions>, initial_partitions: Arc<InitialPartitions>) -> Self {
        Self {
            partitions,
            initial_partitions,
            state: Mutex::default(),
            outage: RetryLogger::new("settling where the group begins"),
        }
    }

    fn group<'a>(&'a self, client: &'a Client) -> Group<'a> {
        Group {
            client,
            initial_partitions: &self.initial_partitions,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Settles what can be settled at once, and returns that. The rest waits.
    pub(super) fn assign(&self, client: &Client, partitions: &TopicPartitionList) -> TopicPartitionList {
        let mut state = self.state();
        state.cancel_lookup();
        let wanted = lanes(partitions);
        let assigned = FirstAssigned::now();
        let lookup = first_position::lookup(self.group(client), &wanted, &state.seen);
        let settled = state.settle(self.group(client), lookup);
        for lane in wanted {
            if !settled.positions.contains_key(&lane) {
                state.seen.entry(lane.clone()).or_insert(assigned);
                state.waiting.insert(lane);
            }
        }
        self.report(&mut state, &settled.errors);
        list(&settled.positions)
    }

    /// Keeps the client from reading what waits.
    pub(super) fn pause(&self, client: &Client, assigned: &TopicPartitionList) {
        let state = self.state();
        let waiting = lanes(assigned).into_iter().filter(|lane| state.waiting.contains(lane));
        let waiting: Vec<Lane> = waiting.collect();
        if let Err(error) = client.pause(&offsets::list(&waiting, Offset::Invalid)) {
            tracing::debug!(%error, "partitions are not paused; what is read of them is dropped and read again");
        }
    }

    /// Gives up partitions that waited. The client would keep them paused when they come back.
    pub(super) fn revoke(&self, client: &Client, revoked: &TopicPartitionList) {
        let mut state = self.state();
        state.cancel_lookup();
        let waited: Vec<Lane> = lanes(revoked)
            .into_iter()
            .filter(|lane| state.waiting.remove(lane))
            .collect();
        if let Err(error) = client.resume(&offsets::list(&waited, Offset::Invalid)) {
            tracing::debug!(%error, "revoked partitions are not resumed");
        }
        if state.waiting.is_empty() {
            self.outage.recovered();
        }
    }

    /// Looks again at what waits, without waiting for the answer, and lets go of what is settled.
    pub(super) fn retry_lookup(&self, client: &Arc<Client>) {
        let mut state = self.state();
        if state.waiting.is_empty() {
            return;
        }
        match state.lookup.take() {
            Some(lookup) if lookup.is_finished() => {
                let lookup = lookup.join().unwrap_or_default();
                let mut settled = state.settle(self.group(client), lookup);
                let read = self.read(client, &mut settled);
                state.waiting.retain(|lane| !read.contains(lane));
                self.report(&mut state, &settled.errors);
            }
            Some(lookup) => state.lookup = Some(lookup),
            None if state.next_lookup.is_some_and(|time| Instant::now() < time) => {}
            None => state.lookup = self.start_lookup(client, &state),
        }
    }

    /// Begins to read partitions where it is settled, and returns them.
    fn read(&self, client: &Client, settled: &mut Settled) -> BTreeSet<Lane> {
        if settled.positions.is_empty() {
            return BTreeSet::new();
        }
        let moved = match client.seek_partitions(list(&settled.positions), REQUEST_TIMEOUT) {
            Ok(moved) => moved,
            Err(error) => {
                let text = explain_error(&error, None).text;
                let all = settled.positions.keys().map(|lane| (lane.clone(), text.clone()));
                settled.errors.extend(all);
                return BTreeSet::new();
            }
        };
        let mut read = BTreeSet::new();
        for element in moved.elements() {
            let lane = Lane::new(element.topic(), element.partition());
            match element.error() {
                Ok(()) => drop(read.insert(lane)),
                // Most likely the client itself does not have the partition's offset yet.
                Err(error) => drop(settled.errors.insert(lane, explain_error(&error, None).text)),
            }
        }
        let partitions = offsets::list(&read, Offset::Invalid);
        self.partitions.assign(&partitions);
        let names = read.iter().map(Lane::to_string).collect::<Vec<_>>().join(", ");
        if let Err(error) = client.resume(&partitions) {
            tracing::error!(%error, partitions = names, "partitions are not read; start the consumer again");
        }
        self.partitions.report_loss(moved);
        tracing::info!(partitions = names, "it is settled where the group begins");
        read
    }

    fn start_lookup(&self, client: &Arc<Client>, state: &State) -> Option<JoinHandle<Lookup>> {
        let (client, partitions) = (Arc::downgrade(client), Arc::clone(&self.partitions));
        let initial_partitions = Arc::clone(&self.initial_partitions);
        let (wanted, seen) = (state.waiting.iter().cloned().collect::<Vec<_>>(), state.seen.clone());
        let thread = std::thread::Builder::new().name("posthaste-first-position".to_owned());
        let started = thread.spawn(move || match client.upgrade() {
            Some(client) => {
                let group = Group {
                    client: &client,
                    initial_partitions: &initial_partitions,
                };
                let lookup = first_position::lookup(group, &wanted, &seen);
                partitions.wake();
                lookup
            }
            None => Lookup::default(),
        });
        started
            .inspect_err(|error| tracing::warn!(%error, "no thread to lookup for the end of partitions"))
            .ok()
    }

    fn report(&self, state: &mut State, errors: &BTreeMap<Lane, String>) {
        let Some(lane @ Lane { topic, partition }) = state.waiting.first() else {
            self.outage.recovered();
            return;
        };
        let text = errors.get(lane).map_or("no broker said where it ends", String::as_str);
        let wait = self.outage.failed(format!(
            "the group's first position is not settled for {} partitions, such as {topic}/{partition}, which are not read \
             meanwhile: {text}",
            state.waiting.len()
        ));
        state.next_lookup = Some(Instant::now() + wait.min(MAX_RETRY_DELAY));
    }
}

fn list(positions: &HashMap<Lane, i64>) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (Lane { topic, partition }, position) in positions {
        drop(
            list.add_partition(topic, *partition)
                .set_offset(Offset::Offset(*position)),
        );
    }
    list
}
