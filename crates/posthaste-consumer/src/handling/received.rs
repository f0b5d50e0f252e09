//! An event as a handler gets it.

use std::error::Error;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use posthaste_core::envelope::ReceivedEvent;
use posthaste_core::message::Headers;
use serde::de::DeserializeOwned;

use crate::source::Record;

/// An event with its payload decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received<T> {
    /// Identity of the event within its source, the same at every delivery. See [`Received::identity`].
    pub id: String,
    /// `{company}.{domain}.{action}.v{n}`.
    pub event_type: String,
    /// The service that spoke.
    pub source: Option<String>,
    /// What the event is about, in the words of CloudEvents.
    pub subject: Option<String>,
    /// Kind of thing the event is about.
    pub aggregate_type: Option<String>,
    /// Which one of them.
    pub aggregate_id: Option<String>,
    /// Whose event it is.
    pub tenant: Option<String>,
    /// When it was enqueued.
    pub time: Option<DateTime<Utc>>,
    /// The producer's headers, such as `traceparent`, and further extension attributes.
    pub headers: Headers,
    /// The body.
    pub payload: T,
    /// The record's key; events with equal keys come in order.
    pub key: Option<Bytes>,
    /// The topic it came from.
    pub topic: String,
    /// The partition it came from.
    pub partition: i32,
    /// Its offset there.
    pub offset: i64,
    /// Which attempt of this process this is, from 1.
    pub attempt: u32,
}

impl<T> Received<T> {
    /// What tells this event from all others, as one text: its source and its id. In CloudEvents an id is unique only
    /// within its source, and many sources number their events from 1.
    ///
    /// It reads `{source}#{id}`, or `{id}` for an event without a source. `%`, `#` and `/` are written `%25`, `%23` and
    /// `%2F`, so that no two events share it, and none has that of an effect on an aggregate.
    pub fn identity(&self) -> String {
        let plain = |part: &str| part.replace('%', "%25").replace('#', "%23").replace('/', "%2F");
        match &self.source {
            Some(source) => format!("{}#{}", plain(source), plain(&self.id)),
            None => plain(&self.id),
        }
    }
}

impl<T> Received<T> {
    pub(crate) fn new(event: ReceivedEvent, payload: T, origin: Origin, attempt: u32) -> Self {
        Self {
            id: event.id,
            event_type: event.event_type,
            source: event.source,
            subject: event.subject,
            aggregate_type: event.aggregate_type,
            aggregate_id: event.aggregate_id,
            tenant: event.tenant,
            time: event.time,
            headers: event.headers,
            payload,
            key: origin.key,
            topic: origin.topic,
            partition: origin.partition,
            offset: origin.offset,
            attempt,
        }
    }
}

/// Where an event came from.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    key: Option<Bytes>,
    topic: String,
    partition: i32,
    offset: i64,
}

impl Origin {
    pub(crate) fn of(record: &impl Record) -> Self {
        Self {
            key: record.key().map(Bytes::copy_from_slice),
            topic: record.topic().to_owned(),
            partition: record.partition(),
            offset: record.offset(),
        }
    }
}

/// A payload that can be decoded: anything that serde reads from JSON, [`Raw`] bytes, or a type of your own that is
/// neither, such as a Protobuf message.
pub trait Payload: Sized + Send + 'static {
    /// Decodes the bytes. What cannot be decoded goes to the dead-letter topic without another attempt.
    fn decode(content_type: Option<&str>, bytes: &Bytes) -> Result<Self, Box<dyn Error + Send + Sync>>;
}

impl<T: DeserializeOwned + Send + 'static> Payload for T {
    fn decode(_: Option<&str>, bytes: &Bytes) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Ok(serde_json::from_slice(bytes)?)
    }
}

/// A payload that is taken as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raw(pub Bytes);

impl Payload for Raw {
    fn decode(_: Option<&str>, bytes: &Bytes) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Ok(Self(bytes.clone()))
    }
}
