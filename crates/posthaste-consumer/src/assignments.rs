//! The partitions that this consumer owns, and what it commits for them.
//!
//! All of it runs on the polling thread. Commits are made only there, and only for partitions in this table, and a
//! revoked partition leaves the table before it is given up: no offset is committed after its revocation.

mod commit;
mod committer;

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use rdkafka::Message;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::BorrowedMessage;
use rdkafka::topic_partition_list::TopicPartitionList;
use tokio::sync::mpsc;

use self::committer::{Committed, Committer};
use crate::config::ConsumerConfig;
use crate::context::Context;
use crate::delivery::Delivery;
use crate::instrument;
use crate::loss;
use crate::outage::Outage;
use crate::partition::Partition;
use crate::signal::Signal;

/// How long an abandoned handler gets to be dropped. It takes longer only if it blocks its thread.
const ABANDONING: Duration = Duration::from_secs(1);

/// Starts the worker of a partition.
pub(crate) type StartWorker = Box<dyn Fn(Arc<Partition>, mpsc::Receiver<Delivery>) + Send + Sync>;

/// A partition that this consumer owns.
struct Assigned {
    partition: Arc<Partition>,
    sender: mpsc::Sender<Delivery>,
    queue: PartitionQueue<Context>,
    /// Read before the partition had a queue of its own.
    early: VecDeque<Delivery>,
    /// The queue has no room, so the partition is not read.
    paused: bool,
    commit: commit::Progress,
}

/// The partitions that this consumer owns.
pub(crate) struct Assignments {
    owned: Mutex<HashMap<(String, i32), Assigned>>,
    consumer: OnceLock<Weak<BaseConsumer<Context>>>,
    committer: OnceLock<Committer>,
    start_worker: StartWorker,
    pub(crate) signal: Arc<Signal>,
    queue_size: usize,
    queue_bytes: usize,
    revoke_grace: Duration,
    commits: Outage,
    closing: AtomicBool,
}

impl Assignments {
    pub(crate) fn new(start_worker: StartWorker, signal: Arc<Signal>, config: &ConsumerConfig) -> Self {
        Self {
            owned: Mutex::new(HashMap::new()),
            consumer: OnceLock::new(),
            committer: OnceLock::new(),
            start_worker,
            signal,
            queue_size: config.queue_size as usize,
            queue_bytes: usize::try_from(config.prefetch_bytes).unwrap_or(usize::MAX),
            revoke_grace: config.revoke_grace,
            commits: Outage::new("committing offsets"),
            closing: AtomicBool::new(false),
        }
    }

    /// Takes note of the consumer, which can be told only once it is there.
    pub(crate) fn belong_to(&self, consumer: &Arc<BaseConsumer<Context>>) -> std::io::Result<()> {
        let consumer = Arc::downgrade(consumer);
        let committer = Committer::start(Weak::clone(&consumer), Arc::clone(&self.signal))?;
        self.consumer.get_or_init(|| consumer);
        self.committer.get_or_init(|| committer);
        Ok(())
    }

    fn owned(&self) -> MutexGuard<'_, HashMap<(String, i32), Assigned>> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn holds(&self, topic: &str, partition: i32) -> bool {
        self.owned().contains_key(&(topic.to_owned(), partition))
    }

    /// Prepares for partitions that are about to be assigned.
    ///
    /// Each gets a queue of its own within librdkafka, so that a partition whose worker is behind can be left alone: its
    /// queue fills up and is no longer fetched for. (To pause it would throw away what was fetched.)
    pub(crate) fn assign(&self, partitions: &TopicPartitionList) {
        let consumer = self.consumer.get().and_then(Weak::upgrade);
        let Some(consumer) = consumer.filter(|_| !self.closing.load(Ordering::Acquire)) else {
            return;
        };
        for element in partitions.elements() {
            let (topic, number) = (element.topic(), element.partition());
            let Some(mut queue) = consumer.split_partition_queue(topic, number) else {
                tracing::error!(topic, partition = number, "the partition has no queue and is not read");
                continue;
            };
            let signal = Arc::clone(&self.signal);
            queue.set_nonempty_callback(move || signal.give());
            let partition = Arc::new(Partition::new(topic, number, Arc::clone(&self.signal)));
            let (sender, receiver) = mpsc::channel(self.queue_size);
            (self.start_worker)(Arc::clone(&partition), receiver);
            tracing::debug!(topic, partition = number, "assigned");
            let assigned = Assigned {
                partition,
                sender,
                queue,
                early: VecDeque::new(),
                paused: false,
                commit: commit::Progress::default(),
            };
            let before = self.owned().insert((topic.to_owned(), number), assigned);
            // Nobody told us that it was taken away; two workers of one partition would run side by side.
            self.stop(&before, Duration::ZERO);
        }
        self.signal.give();
    }

    /// Says what was deleted before it was read, given the offsets that the group had when it got the partitions.
    pub(crate) fn report_loss(&self, known: TopicPartitionList) {
        if let Some(consumer) = self.consumer.get() {
            loss::report(Weak::clone(consumer), known);
        }
    }

    /// Gives partitions up: lets their workers finish the event in hand, and commits what they did.
    pub(crate) fn revoke(&self, consumer: &BaseConsumer<Context>, partitions: &TopicPartitionList) {
        // They may have a new owner already, whose commits ours would undo.
        let lost = consumer.assignment_lost();
        let revoked: Vec<Assigned> = {
            let mut owned = self.owned();
            let key = |topic: &str, number| (topic.to_owned(), number);
            let elements = partitions.elements();
            elements
                .iter()
                .filter_map(|element| owned.remove(&key(element.topic(), element.partition())))
                .collect()
        };
        tracing::debug!(partitions = revoked.len(), lost, "giving up partitions");
        let grace = if lost { Duration::ZERO } else { self.revoke_grace };
        self.stop(&revoked, grace);
        if lost {
            tracing::debug!("the partitions are lost; what was not committed comes again, to their new owners");
        } else {
            self.commit_last(consumer, revoked.iter());
        }
        for assigned in &revoked {
            instrument::lag(&assigned.partition.topic, assigned.partition.number, 0);
        }
    }

    /// Stops workers, at last by dropping what they do.
    fn stop<'a>(&self, assigned: impl IntoIterator<Item = &'a Assigned>, grace: Duration) {
        let partitions: Vec<_> = assigned.into_iter().map(|assigned| &assigned.partition).collect();
        for partition in &partitions {
            partition.stop.cancel();
        }
        if !self.wait_for(&partitions, grace) {
            for partition in &partitions {
                partition.abandon.cancel();
            }
            self.wait_for(&partitions, ABANDONING);
        }
    }

    /// Whether all of them finished in time.
    fn wait_for(&self, partitions: &[&Arc<Partition>], longest: Duration) -> bool {
        let deadline = Instant::now() + longest;
        loop {
            if partitions.iter().all(|partition| partition.is_finished()) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.signal.wait(left);
        }
    }

    /// Hands over what was fetched, as far as the workers' queues have room. Whether there was anything.
    pub(crate) fn fill(&self, kafka: &Outage) -> Result<bool, String> {
        let (mut some, mut paused, mut queued) = (false, 0, 0);
        for assigned in self.owned().values_mut() {
            let Partition { topic, number, .. } = &*assigned.partition;
            let has_room =
                |assigned: &Assigned| assigned.sender.capacity() > 0 && assigned.partition.held() < self.queue_bytes;
            while has_room(assigned) {
                let delivery = match assigned.early.pop_front() {
                    Some(delivery) => delivery,
                    None => match assigned.queue.poll(Duration::ZERO) {
                        Some(Ok(record)) => Delivery::new(record.detach()),
                        Some(Err(KafkaError::MessageConsumptionFatal(code))) => {
                            return Err(format!("{topic}/{number}: {code}; start the consumer again"));
                        }
                        // The context has been told.
                        Some(Err(_)) => continue,
                        None => break,
                    },
                };
                some = true;
                assigned.partition.took(delivery.size());
                if assigned.sender.try_send(delivery).is_err() {
                    return Err(format!(
                        "the worker of {topic}/{number} has died; start the consumer again"
                    ));
                }
            }
            let is_full = !has_room(assigned);
            if is_full != assigned.paused {
                tracing::debug!(topic, partition = number, is_full, "the partition's queue");
                assigned.paused = is_full;
            }
            paused += usize::from(is_full);
            queued += assigned.sender.max_capacity() - assigned.sender.capacity();
        }
        instrument::waiting(queued, paused);
        if some {
            kafka.over();
        }
        Ok(some)
    }

    /// Keeps a record that did not come by its partition's own queue.
    pub(crate) fn keep(&self, record: &BorrowedMessage<'_>) {
        let key = (record.topic().to_owned(), record.partition());
        if let Some(assigned) = self.owned().get_mut(&key) {
            assigned.early.push_back(Delivery::new(record.detach()));
        }
    }

    /// Commits the batches that are over.
    pub(crate) fn commit_batches(&self) {
        let Some(committer) = self.committer.get() else { return };
        if let Some(last) = self.take_answer(committer) {
            commit::report(&last, &self.commits);
        }
        commit::batches(committer, self.owned().values_mut());
    }

    /// Makes the last commit of partitions, after the commit under way has been answered, so that none comes later.
    fn commit_last<'a>(&self, consumer: &BaseConsumer<Context>, assigned: impl Iterator<Item = &'a Assigned>) {
        let Some(committer) = self.committer.get() else { return };
        while committer.is_waiting() {
            self.signal.wait(Duration::from_millis(100));
        }
        match self.take_answer(committer) {
            // Nobody answers: the next one would only wait as long.
            Some(last) if last.is_in_vain() => commit::report_loss(&last.result),
            _ => commit::now(consumer, assigned),
        }
    }

    /// What the last commit came to, once, with note taken of it. It may be about partitions that stay, too.
    fn take_answer(&self, committer: &Committer) -> Option<Committed> {
        let last = committer.answer()?;
        let mut owned = self.owned();
        for (partition, offset) in &last.offsets {
            if let Some(assigned) = owned.get_mut(partition) {
                assigned.commit.answered(*offset, last.result.is_ok());
            }
        }
        Some(last)
    }

    /// Asks all workers to finish what they have in hand, and takes no more partitions.
    pub(crate) fn begin_closing(&self) {
        self.closing.store(true, Ordering::Release);
        for assigned in self.owned().values() {
            assigned.partition.stop.cancel();
        }
    }

    pub(crate) fn all_finished(&self) -> bool {
        self.owned().values().all(|assigned| assigned.partition.is_finished())
    }

    /// Abandons what is not finished, commits what is, and lets go of all partitions.
    pub(crate) fn close(&self, consumer: &BaseConsumer<Context>) {
        let owned = std::mem::take(&mut *self.owned());
        let open = owned.values().filter(|assigned| !assigned.partition.is_finished());
        let open = open.count();
        if open > 0 {
            tracing::warn!(
                open,
                "stopped in the middle of events; their transactions are rolled back and they come again"
            );
        }
        self.stop(owned.values(), Duration::ZERO);
        self.commit_last(consumer, owned.values());
    }

    /// Lets go of all partitions at once, without a commit; they hold the consumer, and it holds them.
    pub(crate) fn clear(&self) {
        self.begin_closing();
        let owned = std::mem::take(&mut *self.owned());
        self.stop(owned.values(), Duration::ZERO);
        if let Some(committer) = self.committer.get() {
            committer.end();
        }
    }
}
