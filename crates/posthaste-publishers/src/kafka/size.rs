//! How large a record is to a broker.

use posthaste_kafka::event::{Encoded, varint, with_length};

/// A record batch's head (format 2, since Kafka 0.11), from its base offset to its count of records.
const BATCH_HEAD: usize = 61;

/// A record's attributes, and the differences of its time and offset to those of the batch, which it begins.
const RECORD_HEAD: usize = 3;

/// The bytes of a request's record batch that holds this record alone, uncompressed. It is what a broker compares with
/// `max.message.bytes`, to the byte: what fits must not be refused here.
pub(super) fn of_record(encoded: &Encoded<'_>) -> usize {
    let record = RECORD_HEAD
        + encoded.key.map_or(1, |key| with_length(key.len()))
        + with_length(encoded.payload.len())
        + varint(encoded.header_count)
        + encoded.header_bytes;
    BATCH_HEAD + with_length(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_record_has_a_head_and_the_lengths_of_nothing() {
        let nothing = Encoded {
            key: None,
            headers: rdkafka::message::OwnedHeaders::new(),
            header_count: 0,
            header_bytes: 0,
            payload: b"".into(),
        };
        assert_eq!(of_record(&nothing), 61 + 1 + 3 + 1 + 1 + 1);
    }
}
