//! Sends letters back where they came from.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{DeliveryFuture, FutureProducer, FutureRecord};
use rdkafka::{Offset, TopicPartitionList};

use super::error::DlqError;
use super::marker;
use super::progress::{MAX_METADATA_BYTES, Progress};
use super::reader::Page;
use super::record::{DeadLetterRecord, MARKER_HEADER};
use super::replay_lock::{ReplayLock, current_member};
use super::selection::Selection;
use super::topic::{DeadLetterTopic, PAGE_SIZE};
use crate::cluster::{ClusterMetadata, ErrorRecorder};
use crate::dead_letter;

/// What came of a replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// How many letters were sent.
    pub letters: u64,
    /// To which topics.
    pub topics: BTreeMap<String, u64>,
}

/// Settings that a replay is built on.
const OWNED: [(&str, &str); 1] = [("transactional.id", "a replay has no transactions; leave it out")];

/// How long the marker may wait for room in the producer's queue.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(10);

impl DeadLetterTopic {
    /// Sends open letters back to their topics, oldest first, and returns when the brokers have them. `sent` is called
    /// for each that they acknowledged.
    ///
    /// Letters that come in meanwhile are left for the next time, those that die again among them.
    pub async fn replay(
        &self,
        selection: &Selection,
        mut sent: impl FnMut(&DeadLetterRecord),
    ) -> Result<Replayed, DlqError> {
        self.ensure_partition(selection.partition)?;
        self.refuse_replayed(selection).await?;
        let producer = self.producer()?;
        let mut run = ReplaySession::begin(self, producer).await?;
        let result = run.replay(selection, &mut sent).await;
        let ended = run.end().await;
        result?;
        ended?;
        Ok(run.replayed)
    }

    /// Refuses a letter that was named and has been replayed already.
    async fn refuse_replayed(&self, selection: &Selection) -> Result<(), DlqError> {
        for offset in &selection.offsets {
            let letter = self.letter(selection.partition.unwrap_or(0), *offset).await?;
            if letter.replayed {
                let topic = self.name.clone();
                return Err(DlqError::AlreadyReplayed { topic, offset: *offset });
            }
        }
        Ok(())
    }

    pub(super) fn producer(&self) -> Result<FutureProducer<ErrorRecorder>, DlqError> {
        self.cluster.connection().refuse(&OWNED)?;
        // As Java's clients do, and as the relay does, so that a key stays in its partition.
        let partitioner = [("partitioner", "murmur2_random")];
        let config = dead_letter::producer_config(self.cluster.connection(), &partitioner)?;
        let producer = config.create_with_context(ErrorRecorder::default());
        Ok(producer.map_err(crate::InvalidConnection::from)?)
    }
}

/// One replay, from taking the right to giving it back.
pub(super) struct ReplaySession<'a> {
    topic: &'a DeadLetterTopic,
    producer: FutureProducer<ErrorRecorder>,
    pub(super) lock: Arc<ReplayLock>,
    bounds: BTreeMap<i32, (i64, i64)>,
    progress: BTreeMap<i32, Progress>,
    metadata: ClusterMetadata,
    replayed: Replayed,
}

impl<'a> ReplaySession<'a> {
    pub(super) async fn begin(
        topic: &'a DeadLetterTopic,
        producer: FutureProducer<ErrorRecorder>,
    ) -> Result<Self, DlqError> {
        if let Some(who) = current_member(topic).await {
            return Err(DlqError::ReplayInProgress {
                topic: topic.name.clone(),
                who: Some(who),
            });
        }
        let locked = topic.clone();
        let lock = tokio::task::spawn_blocking(move || ReplayLock::acquire(&locked)).await;
        let lock = lock.unwrap_or_else(|_| Err(topic.cluster.explain(&KafkaError::Canceled, None).into()))?;
        // Only now: the previous holder may have gone on until a moment ago.
        let bounds = topic.bounds().await?;
        let progress = topic.progress(&bounds).await?;
        let metadata = topic.cluster.fetch_metadata().await?;
        Ok(Self {
            topic,
            producer,
            lock: Arc::new(lock),
            bounds,
            progress,
            metadata,
            replayed: Replayed::default(),
        })
    }

    pub(super) async fn replay(
        &mut self,
        selection: &Selection,
        sent: &mut impl FnMut(&DeadLetterRecord),
    ) -> Result<(), DlqError> {
        let limit = selection.limit.unwrap_or(u64::MAX);
        for (partition, (_, high)) in self.bounds.clone() {
            let mut next = self.progress[&partition].position;
            while next < high && self.replayed.letters < limit {
                let range = (next, high);
                let page = self
                    .topic
                    .read(partition, range, |reader| reader.page(PAGE_SIZE))
                    .await?;
                let Some(page) = page else { break };
                next = page.to;
                self.page(partition, page, selection, limit, sent).await?;
            }
        }
        Ok(())
    }

    /// Replays what is meant of a page, and records it.
    async fn page(
        &mut self,
        partition: i32,
        page: Page,
        selection: &Selection,
        limit: u64,
        sent: &mut impl FnMut(&DeadLetterRecord),
    ) -> Result<(), DlqError> {
        let before = &self.progress[&partition];
        let open: Vec<DeadLetterRecord> = page
            .letters
            .into_iter()
            .filter(|letter| !before.includes(letter.offset))
            .collect();
        let left = usize::try_from(limit - self.replayed.letters).unwrap_or(usize::MAX);
        let meant: Vec<&DeadLetterRecord> = open
            .iter()
            .filter(|letter| selection.includes(letter))
            .take(left)
            .collect();
        if meant.is_empty() {
            return Ok(());
        }
        let after = |done: &[&DeadLetterRecord]| {
            let mut after = before.clone();
            let mut from = page.from;
            // What is no open letter, or no letter at all, is nothing to wait for.
            for kept in open
                .iter()
                .filter(|letter| !done.iter().any(|done| done.offset == letter.offset))
            {
                after.add(from, kept.offset);
                from = kept.offset + 1;
            }
            after.add(from, page.to);
            after
        };
        if after(&meant).above().len() > MAX_METADATA_BYTES {
            return Err(DlqError::Scattered {
                topic: self.topic.name.clone(),
                position: before.position,
                replayed: self.replayed.letters,
            });
        }
        if !self.lock.is_held() {
            return Err(self.displaced());
        }
        let (done, failure) = self.send(&meant).await;
        let progress = after(&done);
        self.record(partition, progress).await?;
        for letter in done {
            self.replayed.letters += 1;
            *self.replayed.topics.entry(letter.origin.clone()).or_default() += 1;
            sent(letter);
        }
        match failure {
            None => Ok(()),
            Some((offset, reason)) => Err(DlqError::Unsendable {
                topic: self.topic.name.clone(),
                offset,
                replayed: self.replayed.letters,
                reason,
            }),
        }
    }

    /// Sends letters, and returns those that were acknowledged and the first that was not. Those of one key go one after
    /// the other, and none of a key after one that failed.
    pub(super) async fn send<'l>(
        &self,
        letters: &[&'l DeadLetterRecord],
    ) -> (Vec<&'l DeadLetterRecord>, Option<(i64, String)>) {
        let mut lanes = lanes(letters);
        let (mut done, mut failures) = (Vec::new(), Vec::new());
        while !lanes.is_empty() {
            let mut heads = Vec::new();
            let mut stopped = false;
            for letter in lanes.iter_mut().filter_map(VecDeque::pop_front) {
                let handed_over = self.hand_over(letter);
                stopped = handed_over.is_err();
                heads.push((letter, handed_over));
                if stopped {
                    break;
                }
            }
            let mut going_on = Vec::new();
            for ((letter, handed_over), lane) in heads.into_iter().zip(lanes) {
                match self.acknowledged(letter, handed_over).await {
                    Ok(()) => {
                        done.push(letter);
                        going_on.push(lane);
                    }
                    Err(reason) => failures.push((letter.offset, reason)),
                }
            }
            // What cannot even be handed over is for the operator to look at first.
            if stopped {
                break;
            }
            lanes = going_on.into_iter().filter(|lane| !lane.is_empty()).collect();
        }
        done.sort_by_key(|letter| letter.offset);
        (done, failures.into_iter().min_by_key(|(offset, _)| *offset))
    }

    async fn acknowledged(
        &self,
        letter: &DeadLetterRecord,
        handed_over: Result<DeliveryFuture, String>,
    ) -> Result<(), String> {
        let error = match handed_over?.await {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err((error, _))) => error,
            Err(_) => KafkaError::Canceled,
        };
        Err(self.topic.cluster.explain(&error, Some(&letter.origin)).text)
    }

    fn hand_over(&self, letter: &DeadLetterRecord) -> Result<DeliveryFuture, String> {
        let origin = &letter.origin;
        if letter.is_stub() {
            let place = letter.death.as_ref().map_or_else(
                || "in its topic".to_owned(),
                |death| format!("at offset {} of {}/{}", death.offset, death.topic, death.partition),
            );
            return Err(format!(
                "it is a stub, because the record was too large for the dead-letter topic; the record is {place}, as long as \
                 brokers keep it: fix its handler and set the group back to it with kafka-consumer-groups.sh, then leave \
                 the stub out by naming offsets"
            ));
        }
        let Some(target) = self.metadata.topic(origin) else {
            return Err(format!(
                "there is no topic {origin}; create it with `posthaste topics apply` or kafka-topics.sh"
            ));
        };
        // Where its key has been all the time, whichever partitioner put it there.
        let partition = letter.death.as_ref().map(|death| death.partition);
        let is_there = |partition: &i32| target.partitions.iter().any(|there| there.id == *partition);
        let record = FutureRecord {
            topic: origin,
            partition: partition.filter(is_there),
            payload: letter.payload.as_deref(),
            key: letter.key.as_deref(),
            // Now: with the time of its death it might be past the topic's retention.
            timestamp: None,
            headers: Some(letter.headers_to_send()),
        };
        let sent = self.producer.send_result(record);
        sent.map_err(|(error, _)| self.topic.cluster.explain(&error, Some(origin)).text)
    }

    /// Commits how far a partition was replayed.
    pub(super) async fn record(&mut self, partition: i32, progress: Progress) -> Result<(), DlqError> {
        self.progress.insert(partition, progress);
        let offsets = self
            .offsets()
            .map_err(|error| self.topic.cluster.explain(&error, None))?;
        let lock = Arc::clone(&self.lock);
        let committed = tokio::task::spawn_blocking(move || lock.commit(&offsets)).await;
        let error = match committed {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => KafkaError::Canceled,
        };
        match error.rdkafka_error_code() {
            Some(
                Code::UnknownMemberId | Code::IllegalGeneration | Code::RebalanceInProgress | Code::AssignmentLost,
            ) => Err(self.displaced()),
            _ => Err(self.topic.cluster.explain(&error, Some(&self.topic.name)).into()),
        }
    }

    fn offsets(&self) -> Result<TopicPartitionList, KafkaError> {
        let mut offsets = TopicPartitionList::new();
        for (partition, progress) in &self.progress {
            let mut element = offsets.add_partition(&self.topic.name, *partition);
            element.set_offset(Offset::Offset(progress.position))?;
            element.set_metadata(progress.above());
        }
        Ok(offsets)
    }

    fn displaced(&self) -> DlqError {
        DlqError::Displaced {
            topic: self.topic.name.clone(),
            replayed: self.replayed.letters,
        }
    }

    /// Writes down in the topic what was replayed.
    async fn end(&mut self) -> Result<(), DlqError> {
        if self.replayed.letters == 0 {
            return Ok(());
        }
        // What a successor has written since must not be followed by what we knew.
        if !self.lock.is_held() {
            return Err(self.displaced());
        }
        let text = marker::write(&self.progress);
        let first = self.topic.partitions.first().copied().unwrap_or_default();
        let mark = Header {
            key: MARKER_HEADER,
            value: Some("1"),
        };
        let record = FutureRecord::to(&self.topic.name)
            .partition(first)
            .key(MARKER_HEADER)
            .payload(&text)
            .headers(OwnedHeaders::new().insert(mark));
        let written = self.producer.send(record, QUEUE_TIMEOUT).await;
        let delivery = written.map_err(|(error, _)| self.topic.cluster.explain(&error, Some(&self.topic.name)))?;
        // The marker is not a letter that waits.
        let mut progress = self.progress[&first].clone();
        progress.add(delivery.offset, delivery.offset + 1);
        self.record(first, progress).await
    }
}

/// The letters of each key in their order. One without a key is alone.
fn lanes<'l>(letters: &[&'l DeadLetterRecord]) -> Vec<VecDeque<&'l DeadLetterRecord>> {
    let mut lanes: Vec<VecDeque<&DeadLetterRecord>> = Vec::new();
    let mut by_key = HashMap::new();
    for letter in letters {
        let next = lanes.len();
        let lane = match &letter.key {
            Some(key) => *by_key.entry((&letter.origin, key)).or_insert(next),
            None => next,
        };
        if lane == next {
            lanes.push(VecDeque::new());
        }
        lanes[lane].push_back(letter);
    }
    lanes
}
