//! The transport's side: a message as a `CloudEvents` 1.0 event.
//!
//! Written by the specification rather than through an SDK's event type, because that would parse the payload and
//! write it anew: here the payload's bytes travel untouched. The tests read the result back with the SDK.

use std::borrow::Cow;
use std::collections::HashSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::message::{Headers, Message};
use crate::publisher::Delivery;

/// A message as a `CloudEvents` event. Serialises to the JSON event format (structured mode); [`Envelope::attributes`]
/// are the headers of binary mode.
#[derive(Debug)]
pub struct Envelope<'a> {
    message: &'a Message,
    time: DateTime<Utc>,
}

/// An event as a consumer received it, from whichever broker.
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

/// Attributes that the envelope itself sets, so that no header may have their names.
const RESERVED: [&str; 14] = [
    "specversion",
    "id",
    "source",
    "type",
    "time",
    "subject",
    "datacontenttype",
    "dataschema",
    "data",
    "data_base64",
    "partitionkey",
    "aggregatetype",
    "aggregateid",
    "tenant",
];

/// Whether an attribute belongs to the envelope.
pub fn is_reserved(attribute: &str) -> bool {
    // `database64` is what `data_base64` would become.
    RESERVED.contains(&attribute) || attribute == "database64"
}

/// The attribute under which a header travels. `CloudEvents` allows lower-case letters and digits only, so
/// `X-Request-Id` becomes `xrequestid`. `None` if the name has characters that cannot be carried.
pub fn attribute_name(header: &str) -> Option<String> {
    let carried = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let attribute: String = header
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect();
    (header.chars().all(carried) && !attribute.is_empty()).then_some(attribute)
}

impl<'a> Envelope<'a> {
    /// The envelope of a message that was enqueued at `time`.
    pub fn new(message: &'a Message, time: DateTime<Utc>) -> Self {
        Self { message, time }
    }

    /// The envelope of a message on its way to the broker.
    pub fn of(delivery: &'a Delivery) -> Self {
        Self::new(&delivery.message, delivery.created_at)
    }

    /// The context attributes with their values, extensions and headers included, in a fixed order. Each name is there
    /// once: a header never stands for one of the envelope's own attributes, see [`Envelope::left_out`].
    pub fn attributes(&self) -> Vec<(Cow<'a, str>, Cow<'a, str>)> {
        let mut attributes = self.own_attributes();
        attributes.extend(
            self.headers()
                .filter_map(|(name, value)| Some((name.ok()?.into(), value.into()))),
        );
        attributes
    }

    /// The names of headers that are not among the attributes, because they have the name of one of the envelope's own,
    /// differ from another header only in case or punctuation, or cannot be carried. Rows that an application wrote
    /// itself may have them; enqueueing refuses them.
    pub fn left_out(&self) -> Vec<&'a str> {
        self.headers().filter_map(|(name, _)| name.err()).collect()
    }

    /// The headers, each with its attribute or else with its own name.
    fn headers(&self) -> impl Iterator<Item = (Result<String, &'a str>, &'a str)> {
        let mut taken = HashSet::new();
        self.message.headers.iter().map(move |(name, value)| {
            let attribute = attribute_name(name).filter(|attribute| !is_reserved(attribute));
            let attribute = attribute.filter(|attribute| taken.insert(attribute.clone()));
            (attribute.ok_or(name.as_str()), value.as_str())
        })
    }

    /// The attributes without the headers, for transports that carry headers under their own names.
    pub fn own_attributes(&self) -> Vec<(Cow<'a, str>, Cow<'a, str>)> {
        let message = self.message;
        let event_type = message.event_type.as_deref().unwrap_or(&message.topic);
        let source = message
            .source
            .as_deref()
            .or(message.namespace.as_deref())
            .unwrap_or("posthaste");
        let mut attributes: Vec<(Cow<'a, str>, Cow<'a, str>)> = vec![
            ("specversion".into(), "1.0".into()),
            ("id".into(), message.effective_event_id().into_owned().into()),
            ("source".into(), source.into()),
            ("type".into(), event_type.into()),
            (
                "time".into(),
                self.time.to_rfc3339_opts(SecondsFormat::Micros, true).into(),
            ),
            ("datacontenttype".into(), message.content_type.as_str().into()),
        ];
        for (name, value) in [
            ("subject", &message.aggregate_id),
            ("partitionkey", &message.ordering_key),
            ("aggregatetype", &message.aggregate_type),
            ("aggregateid", &message.aggregate_id),
            ("tenant", &message.tenant),
        ] {
            attributes.extend(value.as_deref().map(|value| (name.into(), value.into())));
        }
        attributes
    }

    /// The event as one line of JSON.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string(self)
    }

    fn data(&self) -> (&'static str, Data<'a>) {
        let payload: &'a [u8] = &self.message.payload;
        let text = std::str::from_utf8(payload).ok();
        if is_json(&self.message.content_type)
            && let Some(raw) = text.and_then(one_line_json)
        {
            return ("data", Data::Json(raw));
        }
        match text {
            Some(text) if self.message.content_type.starts_with("text/") => ("data", Data::Text(text)),
            _ => ("data_base64", Data::Base64(BASE64.encode(payload))),
        }
    }
}

impl Serialize for Envelope<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let attributes = self.attributes();
        let mut map = out.serialize_map(Some(attributes.len() + 1))?;
        for (name, value) in &attributes {
            map.serialize_entry(name, value)?;
        }
        let (member, data) = self.data();
        map.serialize_entry(member, &data)?;
        map.end()
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum Data<'a> {
    Json(Cow<'a, RawValue>),
    Text(&'a str),
    Base64(String),
}

/// Whether a media type is JSON, so that its text stands in the JSON event format as it is.
pub fn is_json(content_type: &str) -> bool {
    let media_type = content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase();
    media_type.ends_with("/json") || media_type.ends_with("+json")
}

/// The JSON text as it stands, or without its line breaks where it has any: one event must stay one line.
fn one_line_json(text: &str) -> Option<Cow<'_, RawValue>> {
    let raw: &RawValue = serde_json::from_str(text).ok()?;
    if !raw.get().contains(['\n', '\r']) {
        return Some(Cow::Borrowed(raw));
    }
    // Line breaks inside JSON strings are escaped, so those found are white space between tokens.
    RawValue::from_string(raw.get().replace(['\n', '\r'], " "))
        .ok()
        .map(Cow::Owned)
}
