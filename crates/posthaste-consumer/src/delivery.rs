//! A record on its way through the consumer.

use posthaste_kafka::event::{self, DecodeError, ReceivedEvent};
use rdkafka::Message;
use rdkafka::message::{Headers, OwnedHeaders, OwnedMessage};

/// A record, byte for byte as it came.
#[derive(Debug)]
pub(crate) struct Delivery(OwnedMessage);

impl Delivery {
    pub(crate) fn new(record: OwnedMessage) -> Self {
        Self(record)
    }

    pub(crate) fn topic(&self) -> &str {
        self.0.topic()
    }

    pub(crate) fn partition(&self) -> i32 {
        self.0.partition()
    }

    pub(crate) fn offset(&self) -> i64 {
        self.0.offset()
    }

    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.0.key()
    }

    pub(crate) fn payload(&self) -> Option<&[u8]> {
        self.0.payload()
    }

    /// How many bytes its key, value and headers have.
    pub(crate) fn size(&self) -> usize {
        let headers = self.headers().into_iter().flat_map(Headers::iter);
        let headers = headers.map(|header| header.key.len() + header.value.map_or(0, <[u8]>::len));
        self.key().map_or(0, <[u8]>::len) + self.payload().map_or(0, <[u8]>::len) + headers.sum::<usize>()
    }

    pub(crate) fn headers(&self) -> Option<&OwnedHeaders> {
        self.0.headers()
    }

    /// Whether it says only that its key is deleted. A record with an event's headers says more.
    pub(crate) fn is_tombstone(&self) -> bool {
        let mut headers = self.headers().into_iter().flat_map(Headers::iter);
        self.payload().is_none() && !headers.any(|header| header.key == "ce_id")
    }

    pub(crate) fn event(&self) -> Result<ReceivedEvent, DecodeError> {
        event::decode(self.headers().map(OwnedHeaders::as_borrowed), self.payload())
    }
}
