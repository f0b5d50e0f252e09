//! A letter for people and for programs.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use posthaste_kafka::dead_letter;
use posthaste_kafka::dlq::DeadLetterRecord;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::terminal::harmless;

/// A letter as JSON.
#[derive(Debug, Serialize)]
pub(super) struct View<'a> {
    topic: &'a str,
    partition: i32,
    offset: i64,
    state: &'static str,
    time: Option<DateTime<Utc>>,
    id: Option<&'a str>,
    #[serde(rename = "type")]
    event_type: Option<&'a str>,
    origin: &'a str,
    origin_partition: Option<i32>,
    origin_offset: Option<i64>,
    group: Option<&'a str>,
    attempts: Option<u32>,
    error: Option<&'a str>,
    key: Option<Bytes<'a>>,
    headers: Vec<HeaderView<'a>>,
    payload: Option<Bytes<'a>>,
}

#[derive(Debug, Serialize)]
struct HeaderView<'a> {
    name: &'a str,
    value: Option<Bytes<'a>>,
}

/// What can be written as it is, and what cannot.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Bytes<'a> {
    Json(&'a RawValue),
    Text(&'a str),
    Base64 { base64: String },
}

impl<'a> Bytes<'a> {
    fn text(bytes: &'a [u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text),
            Err(_) => Self::Base64 {
                base64: STANDARD.encode(bytes),
            },
        }
    }

    fn payload(bytes: &'a [u8]) -> Self {
        serde_json::from_slice(bytes).map_or_else(|_| Self::text(bytes), Self::Json)
    }
}

impl<'a> View<'a> {
    pub(super) fn of(topic: &'a str, letter: &'a DeadLetterRecord) -> Self {
        let death = letter.death.as_ref();
        Self {
            topic,
            partition: letter.partition,
            offset: letter.offset,
            state: state(letter),
            time: letter.time(),
            id: letter.id.as_deref(),
            event_type: letter.event_type.as_deref(),
            origin: &letter.origin,
            origin_partition: death.map(|death| death.partition),
            origin_offset: death.map(|death| death.offset),
            group: death.map(|death| death.group.as_str()),
            attempts: death.map(|death| death.attempts),
            error: death.map(|death| death.error.as_str()),
            key: letter.key.as_deref().map(Bytes::text),
            headers: letter
                .headers
                .iter()
                .map(|(name, value)| HeaderView {
                    name,
                    value: value.as_deref().map(Bytes::text),
                })
                .collect(),
            payload: letter.payload.as_deref().map(Bytes::payload),
        }
    }
}

pub(super) fn state(letter: &DeadLetterRecord) -> &'static str {
    if letter.replayed { "replayed" } else { "open" }
}

pub(super) fn time(time: Option<DateTime<Utc>>) -> String {
    time.map_or_else(String::new, |time| time.format("%F %T").to_string())
}

/// So much of an error that a row of a table holds it.
pub(super) fn shortened(text: &str) -> String {
    const MAX_CHARS: usize = 60;
    let text = harmless(text);
    let line = text.lines().next().unwrap_or_default();
    if line.chars().count() <= MAX_CHARS && line.len() == text.trim_end().len() {
        return line.to_owned();
    }
    let start: String = line.chars().take(MAX_CHARS).collect();
    format!("{start}…")
}

/// Everything about a letter.
pub(super) fn text(topic: &str, letter: &DeadLetterRecord) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        writeln!(text, "{name:<10} {value}").expect("a String takes all that is written");
    };
    line(
        "letter",
        &format!("{topic}, partition {}, offset {}", letter.partition, letter.offset),
    );
    line("state", state(letter));
    line("time", &time(letter.time()));
    match &letter.death {
        Some(death) => {
            let (partition, offset) = (death.partition, death.offset);
            line(
                "from",
                &format!("{}, partition {partition}, offset {offset}", letter.origin),
            );
            line("group", &death.group);
            line("attempts", &death.attempts.to_string());
            line("error", &harmless(&death.error).replace('\n', "\n           "));
        }
        None => line("from", &format!("{} (by its name)", letter.origin)),
    }
    line("id", letter.id.as_deref().unwrap_or("none"));
    line("type", letter.event_type.as_deref().unwrap_or("none"));
    line(
        "key",
        &letter.key.as_deref().map_or_else(|| "none".to_owned(), readable),
    );
    // Those of the death were just told.
    let told = |name: &str| letter.death.is_some() && name.starts_with(dead_letter::PREFIX);
    for (name, value) in letter.headers.iter().filter(|(name, _)| !told(name)) {
        let value = value.as_deref().map_or_else(|| "none".to_owned(), readable);
        line("header", &format!("{name}: {value}"));
    }
    let payload = letter.payload.as_deref();
    line(
        "payload",
        &payload.map_or_else(|| "none".to_owned(), |bytes| format!("{} bytes", bytes.len())),
    );
    if let Some(bytes) = payload.filter(|bytes| !bytes.is_empty()) {
        text.push('\n');
        text.push_str(&body(bytes));
    }
    text
}

fn readable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => {
            let hex: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("0x{}", hex.concat())
        }
    }
}

/// The payload as it is, or in hexadecimal if it is no text.
fn body(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => format!("{}\n", harmless(text.trim_end_matches('\n'))),
        Err(_) => hexadecimal(bytes),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (number, row) in bytes.chunks(16).enumerate() {
        let hex: Vec<_> = row.iter().map(|byte| format!("{byte:02x}")).collect();
        let shown = |byte: &u8| {
            if byte.is_ascii_graphic() || *byte == b' ' {
                char::from(*byte)
            } else {
                '.'
            }
        };
        let letters: String = row.iter().map(shown).collect();
        writeln!(text, "{:08x}  {:<47}  {letters}", number * 16, hex.join(" "))
            .expect("a String takes all that is written");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_is_shown_as_what_it_is() {
        assert_eq!(body(br#"{"b":1}"#), "{\"b\":1}\n");
        assert_eq!(body(b"plain"), "plain\n");
        assert_eq!(
            body(&[0xff, 0, b'h', b'i']),
            "00000000  ff 00 68 69                                      ..hi\n"
        );
        assert_eq!(readable(&[1, 0xab]), "0x01ab");
        assert_eq!(body(b"\x1b[2Jgone\n"), "\u{fffd}[2Jgone\n");
        assert_eq!(shortened("\x1b[2Jgone"), "\u{fffd}[2Jgone");
    }

    #[test]
    fn a_long_error_is_one_short_line() {
        assert_eq!(shortened("boom"), "boom");
        assert_eq!(shortened("first\nsecond"), "first…");
        assert_eq!(shortened(&"é".repeat(100)).chars().count(), 61);
    }
}
