//! How many bytes the parts of a record have.

/// The bytes of a number in zigzag encoding, seven bits in each.
pub fn varint(number: usize) -> usize {
    let bits = usize::BITS - (number << 1).leading_zeros();
    bits.div_ceil(7).max(1) as usize
}

/// So many bytes, and their number before them.
pub fn with_length(bytes: usize) -> usize {
    varint(bytes) + bytes
}

/// A header with its name.
pub(super) fn header(name: &str, value: &str) -> usize {
    with_length(name.len()) + with_length(value.len())
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
}
