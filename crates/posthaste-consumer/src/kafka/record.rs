//! A record of a topic.

use posthaste_core::envelope::ReceivedEvent;
use posthaste_kafka::event;
use rdkafka::Message;
use rdkafka::message::{Headers, OwnedHeaders, OwnedMessage};

use crate::source::Record;

/// A record, byte for byte as it came.
#[derive(Debug)]
pub(crate) struct KafkaRecord(OwnedMessage);

impl KafkaRecord {
    pub(super) fn new(record: OwnedMessage) -> Self {
        Self(record)
    }

    pub(super) fn payload(&self) -> Option<&[u8]> {
        self.0.payload()
    }

    pub(super) fn headers(&self) -> Option<&OwnedHeaders> {
        self.0.headers()
    }
}

impl Record for KafkaRecord {
    fn topic(&self) -> &str {
        self.0.topic()
    }

    fn partition(&self) -> i32 {
        self.0.partition()
    }

    fn offset(&self) -> i64 {
        self.0.offset()
    }

    fn key(&self) -> Option<&[u8]> {
        self.0.key()
    }

    /// How many bytes its key, value and headers have.
    fn size(&self) -> usize {
        let headers = self.headers().into_iter().flat_map(Headers::iter);
        let headers = headers.map(|header| header.key.len() + header.value.map_or(0, <[u8]>::len));
        self.key().map_or(0, <[u8]>::len) + self.payload().map_or(0, <[u8]>::len) + headers.sum::<usize>()
    }

    /// A record with an event's headers says more than that its key is deleted.
    fn is_tombstone(&self) -> bool {
        let mut headers = self.headers().into_iter().flat_map(Headers::iter);
        self.payload().is_none() && !headers.any(|header| header.key == "ce_id")
    }

    fn event(&self) -> Result<ReceivedEvent, String> {
        let decoded = event::decode(self.headers().map(OwnedHeaders::as_borrowed), self.payload());
        decoded.map_err(|error| error.to_string())
    }
}
