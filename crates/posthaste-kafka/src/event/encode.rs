//! From a message to a record.

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use posthaste_core::Message;
use posthaste_core::envelope::{Envelope, attribute_name};
use rdkafka::message::{Header, OwnedHeaders};
use thiserror::Error;

use super::format::{CONTENT_TYPE, Format, PREFIX, STRUCTURED, is_taken};

/// A message as a record.
#[derive(Debug)]
pub struct Encoded<'a> {
    /// What the partition is chosen by.
    pub key: Option<&'a str>,
    /// The record's headers.
    pub headers: OwnedHeaders,
    /// The record's value.
    pub payload: Cow<'a, [u8]>,
}

/// A message that cannot be written as a record.
#[derive(Debug, Error)]
#[error("the message cannot be written as JSON: {0}")]
pub struct EncodeError(#[from] serde_json::Error);

/// The record of a message that was enqueued at `time`.
pub fn encode(message: &Message, time: DateTime<Utc>, format: Format) -> Result<Encoded<'_>, EncodeError> {
    let envelope = Envelope::new(message, time);
    let (headers, payload) = match format {
        Format::Binary => (binary_headers(message, &envelope), Cow::Borrowed(&message.payload[..])),
        Format::Structured => {
            let media_type = format!("{STRUCTURED}; charset=UTF-8");
            let headers = add(OwnedHeaders::new(), CONTENT_TYPE, &media_type);
            (headers, Cow::Owned(envelope.to_json()?.into_bytes()))
        }
    };
    let own = message.headers.iter().filter(|(name, _)| !is_taken(name));
    let headers = own.fold(headers, |headers, (name, value)| add(headers, name, value));
    Ok(Encoded {
        key: key(message),
        headers,
        payload,
    })
}

/// The record's key: the ordering key, else the aggregate's id.
pub fn key(message: &Message) -> Option<&str> {
    message.ordering_key.as_deref().or(message.aggregate_id.as_deref())
}

fn binary_headers(message: &Message, envelope: &Envelope<'_>) -> OwnedHeaders {
    let attributes = envelope.own_attributes();
    let mut headers = OwnedHeaders::new_with_capacity(attributes.len() + message.headers.len());
    for (name, value) in attributes {
        headers = match &*name {
            "datacontenttype" => add(headers, CONTENT_TYPE, &value),
            name => add(headers, &format!("{PREFIX}{name}"), &value),
        };
    }
    let taken = message.headers.iter().filter(|(name, _)| is_taken(name));
    taken.fold(headers, |headers, (name, value)| match attribute_name(name) {
        Some(attribute) => add(headers, &format!("{PREFIX}{attribute}"), value),
        None => headers,
    })
}

fn add(headers: OwnedHeaders, name: &str, value: &str) -> OwnedHeaders {
    headers.insert(Header {
        key: name,
        value: Some(value),
    })
}
