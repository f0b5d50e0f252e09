//! Durations for people who read a log.

use std::fmt;
use std::time::Duration;

/// A duration as a log line has it: `250ms`, `1.5s`, `2m 30s`, `7days`. Rounded, because nobody reads nanoseconds.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use posthaste_core::readable::Readable;
///
/// assert_eq!(Readable(Duration::from_millis(1_500)).to_string(), "1.5s");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Readable(pub Duration);

impl fmt::Display for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        match millis {
            0 if !self.0.is_zero() => f.write_str("<1ms"),
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{millis}ms"),
            1_000..60_000 => {
                let text = format!("{}.{:02}", millis / 1_000, millis % 1_000 / 10);
                write!(f, "{}s", text.trim_end_matches('0').trim_end_matches('.'))
            }
            _ => write!(
                f,
                "{}",
                humantime::format_duration(Duration::from_secs(self.0.as_secs()))
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_short_and_rounded() {
        let told = |duration| Readable(duration).to_string();
        assert_eq!(told(Duration::ZERO), "0s");
        assert_eq!(told(Duration::from_micros(7)), "<1ms");
        assert_eq!(told(Duration::from_nanos(250_123_456)), "250ms");
        assert_eq!(told(Duration::from_secs(10)), "10s");
        assert_eq!(told(Duration::from_millis(1_500)), "1.5s");
        assert_eq!(told(Duration::from_millis(1_057)), "1.05s");
        assert_eq!(told(Duration::from_millis(90_500)), "1m 30s");
        assert_eq!(told(Duration::from_hours(168)), "7days");
    }
}
