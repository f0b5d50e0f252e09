//! Times as headers have them.

use chrono::{DateTime, Datelike, SecondsFormat, Timelike, Utc};

/// The length of a time with microseconds.
const LENGTH: usize = "2026-11-18T01:02:03.000004Z".len();

/// A time as RFC 3339 has it, with microseconds: digit by digit, because it is written for every message.
pub(super) fn with_text<T>(time: DateTime<Utc>, use_it: impl FnOnce(&str) -> T) -> T {
    let year = u32::try_from(time.year()).unwrap_or(u32::MAX);
    // A leap second has more than a second's nanoseconds.
    let micros = time.nanosecond() / 1_000;
    if year > 9_999 || micros > 999_999 {
        return use_it(&time.to_rfc3339_opts(SecondsFormat::Micros, true));
    }
    let mut text = *b"0000-00-00T00:00:00.000000Z";
    let mut write = |at: std::ops::Range<usize>, mut number: u32| {
        for digit in text[at].iter_mut().rev() {
            *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
            number /= 10;
        }
    };
    write(0..4, year);
    write(5..7, time.month());
    write(8..10, time.day());
    write(11..13, time.hour());
    write(14..16, time.minute());
    write(17..19, time.second());
    write(20..LENGTH - 1, micros);
    use_it(std::str::from_utf8(&text).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn same(time: DateTime<Utc>) {
        let expected = time.to_rfc3339_opts(SecondsFormat::Micros, true);
        assert_eq!(with_text(time, str::to_owned), expected);
    }

    #[test]
    fn odd_times_are_written_as_well() {
        for text in [
            "0000-01-01T00:00:00Z",
            "9999-12-31T23:59:59.999999999Z",
            "2016-12-31T23:59:60.5Z",
        ] {
            same(text.parse().unwrap());
        }
        same(DateTime::<Utc>::MAX_UTC);
        same(DateTime::<Utc>::MIN_UTC);
    }

    proptest! {
        #[test]
        fn digits_are_those_of_the_library(seconds in -62_167_219_200_i64..253_402_300_800, nanos in 0_u32..1_000_000_000) {
            same(DateTime::from_timestamp(seconds, nanos).unwrap());
        }
    }
}
