//! How long something is kept.

use std::time::Duration;

use humantime_serde::re::humantime::{format_duration, parse_duration};
use posthaste_core::readable::Readable;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How long something is kept before it is removed. Written as a duration, `on` (30 days) or `off`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retention {
    /// For good.
    #[default]
    Off,
    /// For so long.
    For(Duration),
}

impl Retention {
    /// 30 days.
    pub const ON: Self = Self::For(Duration::from_hours(24 * 30));

    /// The age at which it is removed, if ever.
    pub fn age(self) -> Option<Duration> {
        match self {
            Self::Off => None,
            Self::For(age) => Some(age),
        }
    }
}

impl Serialize for Retention {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_str("off"),
            // Exact, and in days.
            Self::For(age) if age.subsec_nanos() == 0 => serializer.collect_str(&Readable(*age)),
            Self::For(age) => serializer.collect_str(&format_duration(*age)),
        }
    }
}

impl<'de> Deserialize<'de> for Retention {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match text.as_str() {
            "off" => Ok(Self::Off),
            "on" => Ok(Self::ON),
            age => parse_duration(age).map(Self::For).map_err(|error| {
                D::Error::custom(format_args!(
                    "give a duration such as \"30days\", \"on\" or \"off\": {error}"
                ))
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RelayConfig;

    fn read(text: &str) -> Result<Retention, serde_json::Error> {
        serde_json::from_value(text.into())
    }

    /// Proves A8.
    #[test]
    fn delivered_and_dead_messages_are_kept_unless_that_is_wished_and_then_for_thirty_days() {
        let config = RelayConfig::default();
        assert_eq!(
            (config.retention, config.dead_retention),
            (Retention::Off, Retention::Off)
        );
        assert_eq!(config.retention.age(), None);
        let days = Duration::from_hours(30 * 24);
        assert_eq!(read("on").unwrap().age(), Some(days));
    }

    #[test]
    fn it_is_read_as_it_is_written() {
        for retention in [Retention::Off, Retention::ON, Retention::For(Duration::from_secs(90))] {
            let text = serde_json::to_string(&retention).unwrap();
            assert_eq!(serde_json::from_str::<Retention>(&text).unwrap(), retention, "{text}");
        }
        let error = read("a while").unwrap_err().to_string();
        assert!(error.contains("30days") && error.contains("off"), "{error}");
    }
}
