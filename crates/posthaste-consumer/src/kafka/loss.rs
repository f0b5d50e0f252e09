//! Says which events the brokers deleted before the group had read them.

use std::sync::Weak;

use rdkafka::consumer::Consumer;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::context::Client;
use super::offsets::REQUEST_TIMEOUT;

/// Compares the offsets that the group has with those that are there. On a thread of its own, because nothing waits for it.
pub(super) fn report(client: Weak<Client>, known: TopicPartitionList) {
    let span = tracing::Span::current();
    let thread = std::thread::Builder::new().name("posthaste-consumer-loss".to_owned());
    let started = thread.spawn(move || {
        let _within = span.enter();
        for element in known.elements() {
            let (topic, partition) = (element.topic(), element.partition());
            let (Offset::Offset(next), Some(client)) = (element.offset(), client.upgrade()) else {
                continue;
            };
            match client.fetch_watermarks(topic, partition, REQUEST_TIMEOUT) {
                Ok((oldest, _)) if next < oldest => tracing::warn!(
                    topic,
                    partition,
                    lost = oldest - next,
                    "events were deleted before this group had read them, because the topic's retention was over; it goes \
                     on with the oldest that is there; raise retention.ms of the topic if the group may be stopped for so long"
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
