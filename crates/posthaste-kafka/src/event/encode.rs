//! From a message to a record.

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use posthaste_core::Message;
use posthaste_core::envelope::{Envelope, attribute_name};
use rdkafka::message::{Header, OwnedHeaders};
use thiserror::Error;

use super::format::{CONTENT_TYPE, Format, PREFIX, STRUCTURED, is_taken};
use super::{size, time};

/// A message as a record.
#[derive(Debug)]
pub struct Encoded<'a> {
    /// What the partition is chosen by.
    pub key: Option<&'a str>,
    /// The record's headers.
    pub headers: OwnedHeaders,
    /// How many headers it has.
    pub header_count: usize,
    /// The bytes that they have in a record, with names and lengths.
    pub header_bytes: usize,
    /// The record's value.
    pub payload: Cow<'a, [u8]>,
}

/// A message that cannot be written as a record.
#[derive(Debug, Error)]
#[error("the message cannot be written as JSON: {0}")]
pub struct EncodeError(#[from] serde_json::Error);

/// The record of a message that was enqueued at `time`.
pub fn encode(message: &Message, time: DateTime<Utc>, format: Format) -> Result<Encoded<'_>, EncodeError> {
    Encoder::new(format, None).encode(message, time)
}

/// The record's key: the ordering key, else the aggregate's id.
pub fn key(message: &Message) -> Option<&str> {
    message.ordering_key.as_deref().or(message.aggregate_id.as_deref())
}

/// Encodes many messages. Headers that are the same for all messages of a kind are made once and copied.
#[derive(Debug)]
pub struct Encoder<'a> {
    format: Format,
    id_header: Option<&'a str>,
    templates: Vec<(Kind<'a>, Building)>,
    /// Which of them was used last.
    last: usize,
}

/// More are not remembered.
const MAX_TEMPLATES: usize = 16;

/// What the same headers are made of.
#[derive(Debug, PartialEq, Eq)]
struct Kind<'a> {
    event_type: &'a str,
    source: &'a str,
    content_type: &'a str,
    aggregate_type: Option<&'a str>,
    tenant: Option<&'a str>,
}

impl<'a> Kind<'a> {
    fn of(message: &'a Message) -> Self {
        Self {
            event_type: message.event_type.as_deref().unwrap_or(&message.topic),
            source: message
                .source
                .as_deref()
                .or(message.namespace.as_deref())
                .unwrap_or("posthaste"),
            content_type: &message.content_type,
            aggregate_type: message.aggregate_type.as_deref(),
            tenant: message.tenant.as_deref(),
        }
    }

    fn headers(&self) -> Building {
        let mut headers = Building::new();
        headers.add("ce_specversion", "1.0");
        headers.add("ce_source", self.source);
        headers.add("ce_type", self.event_type);
        headers.add(CONTENT_TYPE, self.content_type);
        headers.add_some("ce_aggregatetype", self.aggregate_type);
        headers.add_some("ce_tenant", self.tenant);
        headers
    }
}

impl<'a> Encoder<'a> {
    /// An encoder for records of this format, with a header of this name that has the message's id a second time.
    pub fn new(format: Format, id_header: Option<&'a str>) -> Self {
        Self {
            format,
            id_header,
            templates: Vec::new(),
            last: 0,
        }
    }

    /// The record of a message that was enqueued at `time`.
    ///
    /// # Errors
    ///
    /// If it cannot be written as JSON, in structured mode.
    pub fn encode(&mut self, message: &'a Message, time: DateTime<Utc>) -> Result<Encoded<'a>, EncodeError> {
        let (mut headers, payload) = match self.format {
            Format::Binary => (self.binary(message, time), Cow::Borrowed(&message.payload[..])),
            Format::Structured => {
                let mut headers = Building::new();
                headers.add(CONTENT_TYPE, &format!("{STRUCTURED}; charset=UTF-8"));
                let json = Envelope::new(message, time).to_json()?;
                (headers, Cow::Owned(json.into_bytes()))
            }
        };
        for (name, value) in &message.headers {
            // The producer's own header of the id's name would contradict it.
            if !is_taken(name) && self.id_header != Some(name) {
                headers.add(name, value);
            }
        }
        if let Some(name) = self.id_header {
            headers.add(name, &message.id.to_string());
        }
        Ok(Encoded {
            key: key(message),
            headers: headers.native.unwrap_or_default(),
            header_count: headers.count,
            header_bytes: headers.bytes,
            payload,
        })
    }

    fn binary(&mut self, message: &'a Message, time: DateTime<Utc>) -> Building {
        let mut headers = self.template(message).clone();
        headers.add_id(message);
        time::with_text(time, |text| headers.add("ce_time", text));
        headers.add_some("ce_subject", message.aggregate_id.as_deref());
        headers.add_some("ce_partitionkey", message.ordering_key.as_deref());
        headers.add_some("ce_aggregateid", message.aggregate_id.as_deref());
        for (name, value) in message.headers.iter().filter(|(name, _)| is_taken(name)) {
            if let Some(attribute) = attribute_name(name) {
                headers.add(&format!("{PREFIX}{attribute}"), value);
            }
        }
        headers
    }

    fn template(&mut self, message: &'a Message) -> &Building {
        let kind = Kind::of(message);
        if self.templates.get(self.last).is_none_or(|(known, _)| *known != kind) {
            let found = self.templates.iter().position(|(known, _)| *known == kind);
            self.last = found.unwrap_or_else(|| {
                if self.templates.len() >= MAX_TEMPLATES {
                    self.templates.clear();
                }
                let headers = kind.headers();
                self.templates.push((kind, headers));
                self.templates.len() - 1
            });
        }
        &self.templates[self.last].1
    }
}

/// Headers with their size.
#[derive(Clone, Debug)]
struct Building {
    /// Always there; taken out only to be added to.
    native: Option<OwnedHeaders>,
    count: usize,
    bytes: usize,
}

impl Building {
    fn new() -> Self {
        Self {
            native: Some(OwnedHeaders::new_with_capacity(12)),
            count: 0,
            bytes: 0,
        }
    }

    fn add(&mut self, name: &str, value: &str) {
        let header = Header {
            key: name,
            value: Some(value),
        };
        self.native = self.native.take().map(|native| native.insert(header));
        self.count += 1;
        self.bytes += size::header(name, value);
    }

    fn add_some(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.add(name, value);
        }
    }

    fn add_id(&mut self, message: &Message) {
        match (&message.event_id, message.id.uuid()) {
            (None, Some(id)) => {
                let mut text = uuid::Uuid::encode_buffer();
                self.add("ce_id", id.as_hyphenated().encode_lower(&mut text));
            }
            _ => self.add("ce_id", &message.effective_event_id()),
        }
    }
}
