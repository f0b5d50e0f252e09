//! The body of a message, and its default.

use std::fs;
use std::io::{Read, stdin};

use anyhow::Context;
use posthaste_core::Message;
use serde_json::value::RawValue;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Payload {
    bytes: Vec<u8>,
    content_type: &'static str,
}

impl Payload {
    /// Text, `@FILE`, or `-` for standard input.
    pub(super) fn from_argument(argument: &str) -> anyhow::Result<Self> {
        let bytes = if argument == "-" {
            let mut bytes = Vec::new();
            stdin()
                .lock()
                .read_to_end(&mut bytes)
                .context("--payload -: cannot read standard input")?;
            bytes
        } else if let Some(file) = argument.strip_prefix('@') {
            fs::read(file).with_context(|| format!("--payload @{file}: cannot read the file"))?
        } else {
            argument.as_bytes().to_owned()
        };
        Ok(Self::from_bytes(bytes))
    }

    /// A value inside a JSON document: a string stands for its text, anything else for its JSON, as it was written.
    pub(super) fn from_json(value: &RawValue) -> Result<Self, serde_json::Error> {
        if value.get().starts_with('"') {
            let text: String = serde_json::from_str(value.get())?;
            return Ok(Self::from_bytes(text.into_bytes()));
        }
        Ok(Self {
            bytes: value.get().as_bytes().to_owned(),
            content_type: "application/json",
        })
    }

    pub(super) fn from_bytes(bytes: Vec<u8>) -> Self {
        let content_type = if serde_json::from_slice::<&RawValue>(&bytes).is_ok() {
            "application/json"
        } else if std::str::from_utf8(&bytes).is_ok() {
            "text/plain"
        } else {
            "application/octet-stream"
        };
        Self { bytes, content_type }
    }

    pub(super) fn into_message(self, topic: String, content_type: Option<String>) -> Message {
        let content_type = content_type.unwrap_or_else(|| self.content_type.to_owned());
        Message::new(topic, self.bytes).content_type(content_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_without_a_media_type_gets_the_one_that_fits() {
        for (bytes, content_type) in [
            (r#"{"n": 1}"#.as_bytes(), "application/json"),
            (b"hello", "text/plain"),
            (b"\xff\x00", "application/octet-stream"),
        ] {
            assert_eq!(Payload::from_bytes(bytes.to_owned()).content_type, content_type);
        }
    }

    #[test]
    fn json_is_kept_as_it_was_written_and_a_string_is_its_text() {
        let payload = |json: &str| Payload::from_json(serde_json::from_str(json).unwrap()).unwrap();
        assert_eq!(payload(r#"{"b":  1.50, "a": 1}"#).bytes, br#"{"b":  1.50, "a": 1}"#);
        assert_eq!(payload(r#""h\u00e9""#).bytes, "hé".as_bytes());
    }
}
