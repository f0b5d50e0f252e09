//! Baggage as a header.

use opentelemetry::KeyValue;
use opentelemetry::baggage::{Baggage, KeyValueMetadata};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// How long the header may be, as the standard has it.
pub(super) const MAX_BYTES: usize = 8_192;

/// How many entries it may have, as the standard has it.
const MAX_ENTRIES: usize = 64;

/// What cannot stand in a value as it is.
const RESERVED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'%')
    .add(b',')
    .add(b';')
    .add(b'=')
    .add(b'\\');

pub(super) fn encode(baggage: &Baggage) -> String {
    let entry = |(name, (value, metadata)): (&opentelemetry::Key, &(opentelemetry::StringValue, _))| {
        let metadata: &opentelemetry::baggage::BaggageMetadata = metadata;
        let separator = if metadata.as_str().is_empty() { "" } else { ";" };
        let value = utf8_percent_encode(value.as_str(), RESERVED);
        format!("{}={value}{separator}{}", name.as_str().trim(), metadata.as_str())
    };
    baggage.iter().map(entry).collect::<Vec<_>>().join(",")
}

pub(super) fn decode(header: &str) -> Vec<KeyValueMetadata> {
    if header.len() > MAX_BYTES {
        return Vec::new();
    }
    header.split(',').take(MAX_ENTRIES).filter_map(decode_entry).collect()
}

fn decode_entry(entry: &str) -> Option<KeyValueMetadata> {
    let (pair, metadata) = entry.split_once(';').unwrap_or((entry, ""));
    let (name, value) = pair.split_once('=')?;
    let value = percent_decode_str(value.trim()).decode_utf8().ok()?.into_owned();
    let KeyValue { key, value, .. } = KeyValue::new(name.trim().to_owned(), value);
    Some(KeyValueMetadata::new(key, value.as_str().into_owned(), metadata.trim()))
}
