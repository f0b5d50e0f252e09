//! The partitions that are assigned to the client, each with a queue of its own.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use rdkafka::Message;
use rdkafka::consumer::Consumer;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::error::KafkaError;
use rdkafka::message::BorrowedMessage;
use rdkafka::topic_partition_list::TopicPartitionList;

use super::context::{Client, Context};
use super::loss;
use super::offsets;
use super::record::KafkaRecord;
use crate::source::{Lane, RebalanceListener, SourceError};

/// What was fetched of a partition.
struct Queue {
    fetched: PartitionQueue<Context>,
    /// Read before the partition had a queue of its own.
    early: VecDeque<KafkaRecord>,
}

/// The partitions that are assigned. Their queues hold the client, and it holds them, until they are
/// [cleared](Self::clear).
#[derive(Default)]
pub(super) struct Partitions {
    client: OnceLock<Weak<Client>>,
    listener: OnceLock<Arc<dyn RebalanceListener>>,
    queues: Mutex<HashMap<Lane, Queue>>,
}

impl Partitions {
    /// Takes note of the client, which can be told only once it is there.
    pub(super) fn belong_to(&self, client: &Arc<Client>) {
        self.client.get_or_init(|| Arc::downgrade(client));
    }

    pub(super) fn report_to(&self, listener: Arc<dyn RebalanceListener>) {
        self.listener.get_or_init(|| listener);
    }

    pub(super) fn is_closing(&self) -> bool {
        self.listener.get().is_none_or(|listener| listener.is_closing())
    }

    pub(super) fn wake(&self) {
        if let Some(listener) = self.listener.get() {
            listener.wake();
        }
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<Lane, Queue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn holds(&self, lane: &Lane) -> bool {
        self.queues().contains_key(lane)
    }

    /// Prepares for partitions that are about to be assigned.
    ///
    /// Each gets a queue of its own within librdkafka, so that a partition whose worker is behind can be left alone: its
    /// queue fills up and is no longer fetched for. (To pause it would throw away what was fetched.)
    pub(super) fn assign(self: &Arc<Self>, partitions: &TopicPartitionList) {
        let client = self.client.get().and_then(Weak::upgrade);
        let (Some(client), Some(listener)) = (client, self.listener.get()) else {
            return;
        };
        if listener.is_closing() {
            return;
        }
        for element in partitions.elements() {
            let lane = Lane::new(element.topic(), element.partition());
            let Some(mut fetched) = client.split_partition_queue(&lane.topic, lane.partition) else {
                let Lane { topic, partition } = lane;
                tracing::error!(topic, partition, "the partition has no queue and is not read");
                continue;
            };
            let wake = Arc::downgrade(self);
            fetched.set_nonempty_callback(move || {
                if let Some(partitions) = wake.upgrade() {
                    partitions.wake();
                }
            });
            let early = VecDeque::new();
            let before = self.queues().insert(lane.clone(), Queue { fetched, early });
            listener.assigned(&lane);
            drop(before);
        }
    }

    /// Gives partitions up. What their workers did is committed when this returns, unless another consumer may have the
    /// partitions already.
    pub(super) fn revoke(&self, client: &Client, partitions: &TopicPartitionList) {
        let lanes = offsets::lanes(partitions);
        let queues: Vec<_> = {
            let mut queues = self.queues();
            lanes.iter().filter_map(|lane| queues.remove(lane)).collect()
        };
        if let Some(listener) = self.listener.get() {
            if client.assignment_lost() {
                listener.lost(&lanes);
            } else {
                listener.revoked(&lanes);
            }
        }
        drop(queues);
    }

    /// Says what was deleted before it was read, given the offsets that the group had when it got the partitions.
    pub(super) fn report_loss(&self, known: TopicPartitionList) {
        if let Some(client) = self.client.get() {
            loss::report(Weak::clone(client), known);
        }
    }

    /// Keeps a record that did not come by its partition's own queue.
    pub(super) fn keep(&self, record: &BorrowedMessage<'_>) {
        let lane = Lane::new(record.topic(), record.partition());
        if let Some(queue) = self.queues().get_mut(&lane) {
            queue.early.push_back(KafkaRecord::new(record.detach()));
        }
    }

    /// The next record of a partition that was fetched.
    pub(super) fn receive(&self, lane: &Lane) -> Result<Option<KafkaRecord>, SourceError> {
        let mut queues = self.queues();
        let Some(queue) = queues.get_mut(lane) else {
            return Ok(None);
        };
        if let Some(record) = queue.early.pop_front() {
            return Ok(Some(record));
        }
        loop {
            match queue.fetched.poll(Duration::ZERO) {
                Some(Ok(record)) => return Ok(Some(KafkaRecord::new(record.detach()))),
                Some(Err(KafkaError::MessageConsumptionFatal(code))) => {
                    return Err(SourceError(format!("{lane}: {code}; start the consumer again")));
                }
                // The context has been told.
                Some(Err(_)) => {}
                None => return Ok(None),
            }
        }
    }

    /// Lets go of the queues.
    pub(super) fn clear(&self) {
        let queues = std::mem::take(&mut *self.queues());
        drop(queues);
    }
}
