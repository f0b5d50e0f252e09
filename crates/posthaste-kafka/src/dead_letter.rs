//! What is added to a record on its way to `{topic}.dlq`, and taken off again on its way back.

use chrono::{DateTime, SecondsFormat, Utc};
use rdkafka::ClientConfig;
use rdkafka::message::{Header, Headers, OwnedHeaders};

use crate::connection::{Connection, InvalidConnection, MESSAGE_MAX_BYTES};

/// What the names of all these headers begin with.
pub const PREFIX: &str = "posthaste_dlq_";
/// Why the record was given up.
pub const ERROR: &str = "posthaste_dlq_error";
/// How often it was tried.
pub const ATTEMPTS: &str = "posthaste_dlq_attempts";
/// The topic it came from.
pub const TOPIC: &str = "posthaste_dlq_topic";
/// The partition it came from.
pub const PARTITION: &str = "posthaste_dlq_partition";
/// Its offset there.
pub const OFFSET: &str = "posthaste_dlq_offset";
/// When it was given up.
pub const TIME: &str = "posthaste_dlq_time";
/// The consumer group that gave it up.
pub const GROUP: &str = "posthaste_dlq_group";

/// Says that a record is only a stub: how many bytes the record has whose place it takes, because it was too large for the
/// dead-letter topic. The record is where it was, as long as brokers keep it.
pub const STUB: &str = "posthaste_dlq_stub";

/// Longest error that is kept, in bytes: brokers limit a record's size, and the record may be close to it already.
const MAX_ERROR_BYTES: usize = 2_000;

const SUFFIX: &str = ".dlq";

/// The dead-letter topic of a topic.
pub fn topic_for(topic: &str) -> String {
    format!("{topic}{SUFFIX}")
}

/// The topic whose dead letters a topic holds, if that is what it is for.
pub fn origin_of(topic: &str) -> Option<&str> {
    topic.strip_suffix(SUFFIX).filter(|origin| !origin.is_empty())
}

/// The settings of a producer that writes letters or sends them back. The connection's properties override these
/// defaults and `others`.
///
/// Each letter goes out in a request of its own, whatever the properties say: a request that is too large for the topic is
/// refused with all that is in it.
pub fn producer_config(connection: &Connection, others: &[(&str, &str)]) -> Result<ClientConfig, InvalidConnection> {
    let defaults = [
        ("delivery.timeout.ms", "30000"),
        ("message.max.bytes", MESSAGE_MAX_BYTES),
    ];
    let mut config = connection.client_config(&[&defaults, others].concat())?;
    config.set("acks", "all").set("enable.idempotence", "true");
    config.set("batch.num.messages", "1");
    Ok(config)
}

/// Why and whence a record was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Why.
    pub error: String,
    /// How often it was tried.
    pub attempts: u32,
    /// The topic it came from.
    pub topic: String,
    /// The partition it came from.
    pub partition: i32,
    /// Its offset there.
    pub offset: i64,
    /// When it was given up.
    pub time: DateTime<Utc>,
    /// The consumer group that gave it up.
    pub group: String,
}

impl DeadLetter {
    /// The record's headers with these added, and with those of an earlier death removed.
    pub fn add_to(&self, headers: Option<&impl Headers>) -> OwnedHeaders {
        let error = &self.error[..self.error.floor_char_boundary(MAX_ERROR_BYTES)];
        [
            (ERROR, error),
            (ATTEMPTS, &self.attempts.to_string()),
            (TOPIC, &self.topic),
            (PARTITION, &self.partition.to_string()),
            (OFFSET, &self.offset.to_string()),
            (TIME, &self.time.to_rfc3339_opts(SecondsFormat::Millis, true)),
            (GROUP, &self.group),
        ]
        .into_iter()
        .fold(strip(headers), |headers, (key, value)| {
            headers.insert(Header {
                key,
                value: Some(value),
            })
        })
    }

    /// The headers of a stub for a record of so many bytes: none of its own, which may be what made it large.
    pub fn stub(&self, bytes: usize) -> OwnedHeaders {
        let headers = self.add_to(None::<&OwnedHeaders>);
        headers.insert(Header {
            key: STUB,
            value: Some(&bytes.to_string()),
        })
    }

    /// What the headers tell of a death; `None` if they do not tell all of it.
    pub fn read(headers: &impl Headers) -> Option<Self> {
        let text = |name: &str| {
            let found = headers.iter().filter(|header| header.key == name).last()?;
            std::str::from_utf8(found.value?).ok()
        };
        Some(Self {
            error: text(ERROR)?.to_owned(),
            attempts: text(ATTEMPTS)?.parse().ok()?,
            topic: text(TOPIC)?.to_owned(),
            partition: text(PARTITION)?.parse().ok()?,
            offset: text(OFFSET)?.parse().ok()?,
            time: DateTime::parse_from_rfc3339(text(TIME)?).ok()?.to_utc(),
            group: text(GROUP)?.to_owned(),
        })
    }
}

/// The record's own headers, as they were before it died.
pub fn strip(headers: Option<&impl Headers>) -> OwnedHeaders {
    let Some(headers) = headers else {
        return OwnedHeaders::new();
    };
    let own = headers.iter().filter(|header| !header.key.starts_with(PREFIX));
    own.fold(OwnedHeaders::new(), OwnedHeaders::insert)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdkafka::message::BorrowedHeaders;

    fn letter(error: &str) -> DeadLetter {
        DeadLetter {
            error: error.to_owned(),
            attempts: 3,
            topic: "order-events".to_owned(),
            partition: 2,
            offset: 41,
            time: DateTime::from_timestamp_millis(1_700_000_000_123).unwrap(),
            group: "statistics".to_owned(),
        }
    }

    fn plain() -> OwnedHeaders {
        let text = Header {
            key: "ce_id",
            value: Some(&b"1"[..]),
        };
        let bytes = Header {
            key: "raw",
            value: Some(&[0xff, 0][..]),
        };
        let none = Header {
            key: "none",
            value: None::<&[u8]>,
        };
        OwnedHeaders::new().insert(text).insert(bytes).insert(none)
    }

    fn list(headers: &impl Headers) -> Vec<(String, Option<Vec<u8>>)> {
        let owned = |header: Header<'_, &[u8]>| (header.key.to_owned(), header.value.map(<[u8]>::to_vec));
        headers.iter().map(owned).collect()
    }

    #[test]
    fn what_was_added_is_read_back_and_stripped() {
        let dead = letter("boom").add_to(Some(&plain()));
        assert_eq!(DeadLetter::read(&dead), Some(letter("boom")));
        assert_eq!(list(&strip(Some(&dead))), list(&plain()));
        assert_eq!(DeadLetter::read(&plain()), None);
        assert_eq!(list(&strip(None::<&BorrowedHeaders>)), []);
    }

    #[test]
    fn a_second_death_replaces_the_first() {
        let dead = letter("first").add_to(Some(&plain()));
        let again = letter("second").add_to(Some(&dead));
        assert_eq!(again.count(), dead.count());
        assert_eq!(DeadLetter::read(&again).unwrap().error, "second");
    }

    #[test]
    fn a_long_error_is_cut_between_characters() {
        let dead = letter(&"é".repeat(3_000)).add_to(None::<&BorrowedHeaders>);
        let error = DeadLetter::read(&dead).unwrap().error;
        assert!(error.len() <= 2_000 && error.len() > 1_990, "{}", error.len());
    }

    #[test]
    fn topics_have_dead_letter_topics() {
        assert_eq!(topic_for("order-events"), "order-events.dlq");
        assert_eq!(origin_of("order-events.dlq"), Some("order-events"));
        assert_eq!(origin_of("order-events"), None);
        assert_eq!(origin_of(".dlq"), None);
    }
}
