//! How long a topic keeps its records.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use humantime_serde::re::humantime::{format_duration, parse_duration};
use serde::de::{Deserialize, Deserializer, Error, Unexpected};

/// How long records are kept: `7d`, or `forever`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// At least this long.
    For(Duration),
    /// Until they are deleted.
    Forever,
}

impl Retention {
    /// So many days.
    pub const fn days(days: u64) -> Self {
        Self::For(Duration::from_secs(days * 24 * 60 * 60))
    }

    /// The value of `retention.ms`.
    pub(super) fn millis(self) -> String {
        match self {
            Self::For(time) => time.as_millis().to_string(),
            Self::Forever => "-1".to_owned(),
        }
    }
}

impl fmt::Display for Retention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(time) => format_duration(*time).fmt(f),
            Self::Forever => f.write_str("forever"),
        }
    }
}

impl FromStr for Retention {
    type Err = humantime_serde::re::humantime::DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "forever" => Ok(Self::Forever),
            time => parse_duration(time).map(Self::For),
        }
    }
}

impl<'de> Deserialize<'de> for Retention {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let text = String::deserialize(input)?;
        let wrong = || D::Error::invalid_value(Unexpected::Str(&text), &"a duration");
        text.parse().map_err(|_| wrong())
    }
}
