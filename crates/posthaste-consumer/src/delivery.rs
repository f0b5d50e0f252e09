//! A record on its way through the consumer.

use posthaste_kafka::event::{self, DecodeError, ReceivedEvent};
use rdkafka::Message;
use rdkafka::message::{OwnedHeaders, OwnedMessage};

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

    pub(crate) fn headers(&self) -> Option<&OwnedHeaders> {
        self.0.headers()
    }

    pub(crate) fn event(&self) -> Result<ReceivedEvent, DecodeError> {
        event::decode(self.headers().map(OwnedHeaders::as_borrowed), self.payload())
    }
}
