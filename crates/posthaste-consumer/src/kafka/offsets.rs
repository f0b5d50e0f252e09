//! The offsets that a group has, read and committed.

use std::time::Duration;

use rdkafka::consumer::{CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::context::Client;
use super::initial_partitions::InitialPartitions;
use crate::guard::failpoint;
use crate::source::Lane;

/// Longest wait for one answer, and for all the answers that one assignment needs.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads the offsets that the group has for partitions.
pub(super) fn committed(client: &Client, partitions: &TopicPartitionList) -> Result<TopicPartitionList, KafkaError> {
    failpoint::fail("first_position", || {
        KafkaError::OffsetFetch(RDKafkaErrorCode::RequestTimedOut)
    })?;
    client.committed_offsets(partitions.clone(), REQUEST_TIMEOUT)
}

/// Commits offsets, with what is noted beside them, and waits for the answer.
pub(super) fn commit<'a>(
    client: &Client,
    initial_partitions: &InitialPartitions,
    offsets: impl Iterator<Item = (&'a Lane, i64)>,
) -> Result<(), KafkaError> {
    let mut list = TopicPartitionList::new();
    for (Lane { topic, partition }, next) in offsets {
        let mut element = list.add_partition(topic, *partition);
        element.set_offset(Offset::Offset(next))?;
        let metadata = initial_partitions.metadata(topic);
        if !metadata.is_empty() {
            element.set_metadata(metadata);
        }
    }
    if list.count() == 0 {
        return Ok(());
    }
    client.commit(&list, CommitMode::Sync)
}

/// Partitions, all with one offset.
pub(super) fn list<'a>(lanes: impl IntoIterator<Item = &'a Lane>, offset: Offset) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for Lane { topic, partition } in lanes {
        let mut element = list.add_partition(topic, *partition);
        drop(element.set_offset(offset));
    }
    list
}

/// The partitions of a list.
pub(super) fn lanes(partitions: &TopicPartitionList) -> Vec<Lane> {
    let elements = partitions.elements();
    let lanes = elements
        .iter()
        .map(|element| Lane::new(element.topic(), element.partition()));
    lanes.collect()
}
