//! One record of a dead-letter topic.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use rdkafka::message::{BorrowedMessage, Header, Headers as _, Message as _, OwnedHeaders};

use crate::dead_letter::{self, DeadLetter};
use crate::event;

/// The header that counts how often a record was replayed.
pub const REPLAYED: &str = "posthaste_replayed";

/// The header of a record that is no letter, but tells what was replayed.
pub(super) const MARKER_HEADER: &str = "posthaste_dlq_replayed";

/// A record that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterRecord {
    /// The partition of the dead-letter topic.
    pub partition: i32,
    /// Its offset there.
    pub offset: i64,
    /// When it was written there.
    pub written: Option<DateTime<Utc>>,
    /// Its key.
    pub key: Option<Bytes>,
    /// Its value.
    pub payload: Option<Bytes>,
    /// All its headers, in their order.
    pub headers: Vec<(String, Option<Bytes>)>,
    /// Why and whence it was given up; `None` if another program put it there.
    pub death: Option<DeadLetter>,
    /// Identity of the event, if it is one.
    pub id: Option<String>,
    /// Type of the event, if it is one.
    pub event_type: Option<String>,
    /// The topic to which it goes back.
    pub origin: String,
    /// Whether it was replayed.
    pub replayed: bool,
}

impl DeadLetterRecord {
    /// What was read, unless it is a marker.
    pub(super) fn of(record: &BorrowedMessage<'_>) -> Option<Self> {
        let found = record.headers();
        let owned = |header: Header<'_, &[u8]>| (header.key.to_owned(), header.value.map(Bytes::copy_from_slice));
        let headers: Vec<_> = found
            .into_iter()
            .flat_map(|headers| headers.iter())
            .map(owned)
            .collect();
        if headers.iter().any(|(name, _)| name == MARKER_HEADER) {
            return None;
        }
        let event = event::decode(found, record.payload()).ok();
        let (id, event_type) = event.map(|event| (event.id, event.event_type)).unzip();
        Some(Self {
            partition: record.partition(),
            offset: record.offset(),
            written: record.timestamp().to_millis().and_then(DateTime::from_timestamp_millis),
            key: record.key().map(Bytes::copy_from_slice),
            payload: record.payload().map(Bytes::copy_from_slice),
            death: found.and_then(DeadLetter::read),
            id,
            event_type,
            origin: origin(&headers, record.topic()),
            headers,
            replayed: false,
        })
    }

    /// When it was given up, or else written.
    pub fn time(&self) -> Option<DateTime<Utc>> {
        self.death.as_ref().map(|death| death.time).or(self.written)
    }

    /// Whether it only says where the record is.
    pub fn is_stub(&self) -> bool {
        self.headers.iter().any(|(name, _)| name == dead_letter::STUB)
    }

    /// Its headers as they were before it died, and how often it was replayed.
    pub(super) fn headers_to_send(&self) -> OwnedHeaders {
        let before = self.headers.iter().rev().find(|(name, _)| name == REPLAYED);
        let count = before
            .and_then(|(_, value)| std::str::from_utf8(value.as_deref()?).ok()?.parse::<u32>().ok())
            .unwrap_or_default();
        let own = self.headers.iter().filter(|(name, _)| {
            let added = name.starts_with(dead_letter::PREFIX) || name == REPLAYED;
            !added
        });
        let headers = own.fold(OwnedHeaders::new(), |headers, (key, value)| {
            let value = value.as_deref();
            headers.insert(Header { key, value })
        });
        let count = count.saturating_add(1).to_string();
        headers.insert(Header {
            key: REPLAYED,
            value: Some(&count),
        })
    }
}

fn origin(headers: &[(String, Option<Bytes>)], topic: &str) -> String {
    let told = headers.iter().rev().find(|(name, _)| name == dead_letter::TOPIC);
    let told = told.and_then(|(_, value)| std::str::from_utf8(value.as_deref()?).ok());
    let told = told.filter(|told| !told.is_empty());
    told.or_else(|| dead_letter::origin_of(topic))
        .unwrap_or(topic)
        .to_owned()
}
