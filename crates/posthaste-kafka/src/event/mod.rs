//! The record format: `CloudEvents` 1.0 by its
//! [Kafka protocol binding](https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md).
//!
//! - *Binary* mode: the attributes are headers `ce_…`, the media type is the header `content-type`, and the payload's
//!   bytes are the record's value, untouched.
//! - *Structured* mode: the value is the event in the JSON event format, and `content-type` says so.
//!
//! In both modes a message's own headers are headers of the record under their own names, `traceparent` among them:
//! that is where tracing agents and consumers that know nothing of `CloudEvents` look for it, and the distributed
//! tracing extension asks no more than that it travels. They are not repeated as `ce_…`. A header whose name would be
//! taken for one of the envelope's (`content-type`, `ce_…`, `posthaste_dlq_…`) travels as an extension attribute.

mod decode;
mod encode;
mod structured;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use posthaste_core::message::Headers;
use serde::{Deserialize, Serialize};

pub use self::decode::{DecodeError, decode};
pub use self::encode::{EncodeError, Encoded, encode, key};

/// The header with the media type.
pub const CONTENT_TYPE: &str = "content-type";

/// What the names of attributes begin with in binary mode.
pub const PREFIX: &str = "ce_";

/// The media type of structured mode.
pub const STRUCTURED: &str = "application/cloudevents+json";

/// How an event becomes a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Attributes as headers, the payload as it is.
    #[default]
    Binary,
    /// Attributes and payload in one JSON object.
    Structured,
}

/// An event as it came out of Kafka.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedEvent {
    /// Identity of the event, the same at every delivery.
    pub id: String,
    /// `{company}.{domain}.{action}.v{n}`.
    pub event_type: String,
    /// The service that spoke.
    pub source: Option<String>,
    /// What the event is about, in the words of `CloudEvents`. Posthaste writes the aggregate id.
    pub subject: Option<String>,
    /// Kind of thing the event is about.
    pub aggregate_type: Option<String>,
    /// Which one of them.
    pub aggregate_id: Option<String>,
    /// The key in whose order it was delivered.
    pub ordering_key: Option<String>,
    /// Whose event it is.
    pub tenant: Option<String>,
    /// When it was enqueued.
    pub time: Option<DateTime<Utc>>,
    /// Media type of the payload.
    pub content_type: Option<String>,
    /// Everything else: the producer's headers and further extension attributes. Headers that are no text are left out.
    pub headers: Headers,
    /// The body.
    pub payload: Bytes,
}

/// Whether a header's own name is one that readers take for something else.
fn is_taken(name: &str) -> bool {
    let begins_with = |prefix: &str| {
        name.get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    name.eq_ignore_ascii_case(CONTENT_TYPE) || begins_with(PREFIX) || begins_with(crate::dead_letter::PREFIX)
}

#[cfg(test)]
mod tests;
