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
mod error;
mod format;
mod size;
mod structured;
mod time;

pub use posthaste_core::envelope::ReceivedEvent;

pub use self::decode::decode;
pub use self::encode::{EncodeError, Encoded, Encoder, encode, key};
pub use self::error::DecodeError;
pub use self::format::{CONTENT_TYPE, Format, PREFIX, STRUCTURED};
pub use self::size::{varint, with_length};

#[cfg(test)]
mod tests;
