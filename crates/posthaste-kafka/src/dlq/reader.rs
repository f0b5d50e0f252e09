//! Reads a range of one partition, page by page.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};

use super::record::DeadLetterRecord;
use crate::cluster::{ErrorRecorder, explain_to_operator};
use crate::connection::Connection;
use crate::error::{Cause, Explanation};

const POLL_TIMEOUT: Duration = Duration::from_millis(100);

/// How many times in a row nothing may come. Time is not measured: a process that was halted has lost none.
const MAX_EMPTY_POLLS: u32 = 100;

/// Some records of a partition.
#[derive(Debug, Default)]
pub(super) struct Page {
    pub(super) letters: Vec<DeadLetterRecord>,
    /// What the last marker among them said.
    pub(super) marker: Option<Vec<u8>>,
    /// The offsets that were looked at: from here to below `to`. Not all of them need have been there.
    pub(super) from: i64,
    pub(super) to: i64,
}

/// Records of one partition, to be read once.
pub(super) struct Reader<'a> {
    consumer: &'a BaseConsumer<ErrorRecorder>,
    connection: &'a Connection,
    topic: &'a str,
    next: i64,
    end: i64,
}

impl<'a> Reader<'a> {
    /// Reads from `from` to below `end`. A consumer serves one reader at a time.
    pub(super) fn open(
        consumer: &'a BaseConsumer<ErrorRecorder>,
        connection: &'a Connection,
        topic: &'a str,
        partition: i32,
        (from, end): (i64, i64),
    ) -> Result<Self, Explanation> {
        let explain = |error: KafkaError| explain_to_operator(&error, Some(topic), connection);
        let mut range = TopicPartitionList::new();
        range
            .add_partition_offset(topic, partition, Offset::Offset(from))
            .map_err(explain)?;
        consumer.assign(&range).map_err(explain)?;
        Ok(Self {
            consumer,
            connection,
            topic,
            next: from,
            end,
        })
    }

    /// At most `most` records; `None` at the end.
    pub(super) fn page(&mut self, most: usize) -> Result<Option<Page>, Explanation> {
        if self.next >= self.end {
            return Ok(None);
        }
        let mut page = Page {
            from: self.next,
            ..Page::default()
        };
        let mut read = 0;
        let mut empty_polls = 0;
        while read < most && self.next < self.end {
            match self.consumer.poll(POLL_TIMEOUT) {
                Some(Ok(record)) if record.offset() >= self.end => self.next = self.end,
                Some(Ok(record)) => {
                    self.next = record.offset() + 1;
                    match DeadLetterRecord::of(&record) {
                        Some(letter) => page.letters.push(letter),
                        None => page.marker = record.payload().map(<[u8]>::to_vec),
                    }
                    read += 1;
                    empty_polls = 0;
                }
                // What lay between here and the end was deleted.
                Some(Err(KafkaError::PartitionEOF(_))) => self.next = self.end,
                Some(Err(error)) => self.tolerate(&error, &mut empty_polls)?,
                None => self.tolerate(&KafkaError::NoMessageReceived, &mut empty_polls)?,
            }
        }
        page.to = self.next;
        Ok(Some(page))
    }

    /// Brokers come and go; only what will not pass, or does not in time, ends the reading.
    fn tolerate(&self, error: &KafkaError, empty_polls: &mut u32) -> Result<(), Explanation> {
        let explanation = explain_to_operator(error, Some(self.topic), self.connection);
        let may_pass = matches!(error, KafkaError::NoMessageReceived)
            || matches!(
                explanation.cause,
                Cause::BrokerUnavailable | Cause::PartitionUnavailable
            );
        if may_pass && *empty_polls < MAX_EMPTY_POLLS {
            *empty_polls += 1;
            return Ok(());
        }
        if matches!(error, KafkaError::NoMessageReceived) {
            let text = format!(
                "Kafka topic {}: no broker sent its records within {} s; see the brokers' logs",
                self.topic,
                (POLL_TIMEOUT * MAX_EMPTY_POLLS).as_secs()
            );
            return Err(Explanation {
                cause: Cause::BrokerUnavailable,
                text,
            });
        }
        Err(explanation)
    }
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        // There is nothing to be done about a consumer that cannot let go of its partition.
        let _ = self.consumer.unassign();
    }
}
