//! Where a group begins that has no offset and was told to begin with what comes from now on.
//!
//! "Now" must be one moment. Left to the client it is the moment of every start until the first commit: a consumer that
//! dies before that would begin behind all that came meanwhile. It would also be the moment in which an offset turns out
//! to be no longer there, because the group was down for longer than the brokers keep its topics, and all that is still
//! there would be passed over. So the client is told to begin with the oldest event, always, and the first position is
//! committed before anything is read.

use std::sync::Weak;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::context::Context;
use crate::failpoint;

/// Longest wait for one answer.
const WITHIN: Duration = Duration::from_secs(10);

/// Reads the offsets that the group has for partitions.
pub(crate) fn committed(
    consumer: &BaseConsumer<Context>,
    partitions: &TopicPartitionList,
) -> Result<TopicPartitionList, KafkaError> {
    failpoint::fail("first_position", || {
        KafkaError::OffsetFetch(rdkafka::error::RDKafkaErrorCode::RequestTimedOut)
    })?;
    let known = consumer.committed_offsets(partitions.clone(), WITHIN)?;
    // An error of a partition comes with an answer that is a success, and looks like "no offset".
    for element in known.elements() {
        element.error()?;
    }
    Ok(known)
}

/// Commits the present end of those partitions that the group has no offset for.
pub(crate) fn commit(consumer: &BaseConsumer<Context>, known: &TopicPartitionList) -> Result<(), KafkaError> {
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

/// Says which events the brokers deleted before the group had read them. On a thread of its own, because nothing waits
/// for it.
pub(crate) fn report_loss(consumer: Weak<BaseConsumer<Context>>, known: TopicPartitionList) {
    let span = tracing::Span::current();
    let thread = std::thread::Builder::new().name("posthaste-consumer-loss".to_owned());
    let started = thread.spawn(move || {
        let _within = span.enter();
        for element in known.elements() {
            let (topic, partition) = (element.topic(), element.partition());
            let (Offset::Offset(next), Some(consumer)) = (element.offset(), consumer.upgrade()) else {
                continue;
            };
            match consumer.fetch_watermarks(topic, partition, WITHIN) {
                Ok((oldest, _)) if next < oldest => tracing::warn!(
                    topic,
                    partition,
                    lost = oldest - next,
                    "events were deleted before this group had read them, because the topic's retention was over; it goes \
                     on with the oldest that is there; raise retention.ms of the topic if the group may be away for so long"
                ),
                Ok((_, end)) if next > end => tracing::warn!(
                    topic,
                    partition,
                    committed = next,
                    end,
                    "the topic ends before the group's offset, as if it had been created anew; the group begins with the \
                     oldest event that is there"
                ),
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, topic, partition, "the partition's oldest offset is not known"),
            }
        }
    });
    if let Err(error) = started {
        tracing::debug!(%error, "no thread to look for deleted events");
    }
}
