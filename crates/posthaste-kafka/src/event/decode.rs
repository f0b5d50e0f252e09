//! From a record to an event.

use std::collections::BTreeMap;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use posthaste_core::envelope::{ReceivedEvent, attribute_name};
use posthaste_core::message::Headers;
use rdkafka::message::{BorrowedHeaders, Headers as _};

use super::error::DecodeError;
use super::format::{CONTENT_TYPE, PREFIX, STRUCTURED};
use super::structured;

/// The event of a record, in binary or in structured mode.
pub fn decode(headers: Option<&BorrowedHeaders>, payload: Option<&[u8]>) -> Result<ReceivedEvent, DecodeError> {
    let payload = payload.ok_or(DecodeError::NoPayload)?;
    let mut record = Record::read(headers)?;
    match record.content_type.as_deref().map(media_type) {
        Some(STRUCTURED) => {
            let (attributes, data) = structured::read(payload)?;
            // A header of the record is the same header's original; the attribute has lost case and punctuation.
            let originals: Vec<String> = record.plain.keys().filter_map(|name| attribute_name(name)).collect();
            record.attributes = attributes;
            record.attributes.retain(|name, _| !originals.contains(name));
            record.content_type = record.attributes.remove("datacontenttype");
            record.into_event("", data)
        }
        Some(other) if other.starts_with("application/cloudevents") => {
            Err(DecodeError::UnknownFormat(other.to_owned()))
        }
        _ => record.into_event(PREFIX, Bytes::copy_from_slice(payload)),
    }
}

fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// A record's headers, sorted. Of several with one name the last counts.
#[derive(Default)]
struct Record {
    content_type: Option<String>,
    attributes: BTreeMap<String, String>,
    plain: Headers,
}

impl Record {
    fn read(headers: Option<&BorrowedHeaders>) -> Result<Self, DecodeError> {
        let mut record = Self::default();
        for header in headers.into_iter().flat_map(|headers| headers.iter()) {
            let Some(value) = header.value else { continue };
            let text = std::str::from_utf8(value);
            let attribute = header.key.strip_prefix(PREFIX);
            match (attribute, text) {
                (Some(name), Ok(text)) => {
                    record.attributes.insert(name.to_owned(), text.to_owned());
                }
                (Some(_), Err(error)) => {
                    return Err(DecodeError::Malformed {
                        name: header.key.to_owned(),
                        value: String::from_utf8_lossy(value).into_owned(),
                        reason: error.to_string(),
                    });
                }
                (None, Ok(text)) if header.key.eq_ignore_ascii_case(CONTENT_TYPE) => {
                    record.content_type = Some(text.to_owned());
                }
                (None, Ok(text)) => {
                    record.plain.insert(header.key.to_owned(), text.to_owned());
                }
                // Other programs' headers may be bytes; they are no reason to refuse the event.
                (None, Err(_)) => {}
            }
        }
        Ok(record)
    }

    /// `prefix` is what names of attributes have in this mode, for messages.
    fn into_event(self, prefix: &str, payload: Bytes) -> Result<ReceivedEvent, DecodeError> {
        let Self {
            content_type,
            mut attributes,
            plain,
        } = self;
        let named = |name: &str| format!("{prefix}{name}");
        match attributes.remove("specversion").as_deref() {
            None | Some("1.0") => {}
            Some(other) => {
                return Err(DecodeError::Malformed {
                    name: named("specversion"),
                    value: other.to_owned(),
                    reason: "only version 1.0 is understood".to_owned(),
                });
            }
        }
        let mut required = |name: &str| {
            let value = attributes.remove(name).filter(|value| !value.is_empty());
            value.ok_or_else(|| DecodeError::Missing { name: named(name) })
        };
        let (id, event_type) = (required("id")?, required("type")?);
        let time = attributes
            .remove("time")
            .map(|text| time(named("time"), text))
            .transpose()?;
        let event = ReceivedEvent {
            id,
            event_type,
            source: attributes.remove("source"),
            subject: attributes.remove("subject"),
            aggregate_type: attributes.remove("aggregatetype"),
            aggregate_id: attributes.remove("aggregateid"),
            ordering_key: attributes.remove("partitionkey"),
            tenant: attributes.remove("tenant"),
            time,
            content_type,
            headers: Headers::new(),
            payload,
        };
        let mut headers = plain;
        for (name, value) in attributes {
            headers.entry(name).or_insert(value);
        }
        Ok(ReceivedEvent { headers, ..event })
    }
}

fn time(name: String, text: String) -> Result<DateTime<Utc>, DecodeError> {
    match DateTime::parse_from_rfc3339(&text) {
        Ok(time) => Ok(time.to_utc()),
        Err(error) => Err(DecodeError::Malformed {
            name,
            value: text,
            reason: format!("{error}; write it as RFC 3339 has it"),
        }),
    }
}
