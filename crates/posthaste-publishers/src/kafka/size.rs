//! How large a record is to a broker.

use rdkafka::message::{Headers as _, OwnedHeaders};

/// A record batch's head (format 2, since Kafka 0.11), from its base offset to its count of records.
const BATCH_HEAD: usize = 61;

/// A record's attributes, and the differences of its time and offset to those of the batch, which it begins.
const RECORD_HEAD: usize = 3;

/// The bytes of a request's record batch that holds this record alone, uncompressed. It is what a broker compares with
/// `max.message.bytes`, to the byte: what fits must not be refused here.
pub(super) fn of_record(key: Option<&str>, headers: &OwnedHeaders, payload: &[u8]) -> usize {
    let of_headers: usize = headers
        .iter()
        .map(|header| with_length(header.key.len()) + header.value.map_or(1, |value| with_length(value.len())))
        .sum();
    let record = RECORD_HEAD
        + key.map_or(1, |key| with_length(key.len()))
        + with_length(payload.len())
        + varint(headers.count())
        + of_headers;
    BATCH_HEAD + with_length(record)
}

/// So many bytes, and their number before them.
fn with_length(bytes: usize) -> usize {
    varint(bytes) + bytes
}

/// The bytes of a number in zigzag encoding, seven bits in each.
fn varint(number: usize) -> usize {
    let bits = usize::BITS - (number << 1).leading_zeros();
    bits.div_ceil(7).max(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_seven_bits_a_byte_and_one_for_the_sign() {
        for (number, bytes) in [
            (0, 1),
            (63, 1),
            (64, 2),
            (8_191, 2),
            (8_192, 3),
            (1_048_575, 3),
            (1_048_576, 4),
        ] {
            assert_eq!(varint(number), bytes, "{number}");
        }
    }

    #[test]
    fn an_empty_record_has_a_head_and_the_lengths_of_nothing() {
        assert_eq!(of_record(None, &OwnedHeaders::new(), b""), 61 + 1 + 3 + 1 + 1 + 1);
    }
}
