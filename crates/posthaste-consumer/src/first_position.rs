//! Where a group begins that has no offset and was told to begin with what comes from now on.
//!
//! "Now" must be one moment. Left to the client it is the moment of every start until the first commit: a consumer that
//! dies before that would begin behind all that came meanwhile. So the first position is committed before anything is
//! read.

use std::time::Duration;

use posthaste_kafka::error::explain_error;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::context::Context;

/// Longest wait for one answer.
const WITHIN: Duration = Duration::from_secs(10);

/// Commits the present end of those partitions that the group has no offset for.
pub(crate) fn commit(consumer: &BaseConsumer<Context>, partitions: &TopicPartitionList) {
    if let Err(error) = try_commit(consumer, partitions) {
        tracing::warn!(
            error = explain_error(&error, None).text,
            "the group's first position could not be committed; if this consumer dies before its first commit, events \
             that came meanwhile are passed over"
        );
    }
}

fn try_commit(consumer: &BaseConsumer<Context>, partitions: &TopicPartitionList) -> Result<(), KafkaError> {
    let known = consumer.committed_offsets(partitions.clone(), WITHIN)?;
    let mut first = TopicPartitionList::new();
    for element in known.elements() {
        if element.offset() == Offset::Invalid {
            let (topic, partition) = (element.topic(), element.partition());
            let (_, end) = consumer.fetch_watermarks(topic, partition, WITHIN)?;
            first.add_partition_offset(topic, partition, Offset::Offset(end))?;
        }
    }
    if first.count() == 0 {
        return Ok(());
    }
    consumer.commit(&first, CommitMode::Sync)
}
