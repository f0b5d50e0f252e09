//! Durations for people who read a log.

use std::fmt;
use std::time::Duration;

const DAY: u64 = 24 * 60 * 60;

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
            _ => {
                // Days are the longest unit: humantime's months have 30.44 of them.
                let (days, rest) = (self.0.as_secs() / DAY, self.0.as_secs() % DAY);
                match days {
                    0 => {}
                    1 => f.write_str("1day")?,
                    days => write!(f, "{days}days")?,
                }
                if rest == 0 {
                    return Ok(());
                }
                let space = if days > 0 { " " } else { "" };
                write!(f, "{space}{}", humantime::format_duration(Duration::from_secs(rest)))
            }
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
        assert_eq!(told(Duration::from_hours(24)), "1day");
        assert_eq!(told(Duration::from_hours(168)), "7days");
        assert_eq!(told(Duration::from_hours(90 * 24)), "90days");
        assert_eq!(told(Duration::from_hours(365 * 24)), "365days");
        assert_eq!(told(Duration::from_hours(49)), "2days 1h");
        assert_eq!(told(Duration::from_secs(90 * 86_400 + 61)), "90days 1m 1s");
    }
}
