//! Where dead letters go that the database does not take.

use std::path::PathBuf;
use std::time::Duration;

use posthaste_core::alert::AlertKind;
use posthaste_publishers::HttpUrl;
use posthaste_publishers::http::AlertFormat;
use posthaste_relay::{AlertPolicy, SpoolConfig};
use serde::Deserialize;

/// Where dead letters go that the database does not take.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SafetyNetConfig {
    /// The file that holds them, one for each outbox. Defaults to none.
    pub file: Option<PathBuf>,
    /// See [`SpoolConfig::rotate_bytes`].
    pub rotate_bytes: u64,
    /// See [`SpoolConfig::max_bytes`].
    pub max_bytes: u64,
    /// Who is told of those that the file does not take either.
    pub alert: AlertConfig,
}

/// Who is told, of what, and how often.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlertConfig {
    /// The webhook. Defaults to none: then nobody is told.
    pub url: Option<HttpUrl>,
    /// How an alert looks. Defaults to `discord`.
    pub format: AlertFormat,
    /// See [`AlertPolicy::on`].
    pub on: Vec<AlertKind>,
    /// See [`AlertPolicy::min_interval`].
    #[serde(with = "humantime_serde")]
    pub min_interval: Duration,
    /// See [`AlertPolicy::max_per_minute`].
    pub max_per_minute: u32,
}

impl Default for SafetyNetConfig {
    fn default() -> Self {
        let SpoolConfig {
            rotate_bytes,
            max_bytes,
            ..
        } = SpoolConfig::new("");
        Self {
            file: None,
            rotate_bytes,
            max_bytes,
            alert: AlertConfig::default(),
        }
    }
}

impl Default for AlertConfig {
    fn default() -> Self {
        let policy = AlertPolicy::default();
        Self {
            url: None,
            format: AlertFormat::default(),
            on: policy.on.into_iter().collect(),
            min_interval: policy.min_interval,
            max_per_minute: policy.max_per_minute,
        }
    }
}

impl SafetyNetConfig {
    /// The file, as the relay takes it.
    pub fn spool(&self) -> Option<SpoolConfig> {
        self.file.as_ref().map(|file| self.spool_in(file.clone()))
    }

    /// The same limits for another file.
    pub fn spool_in(&self, file: PathBuf) -> SpoolConfig {
        let mut config = SpoolConfig::new(file);
        (config.rotate_bytes, config.max_bytes) = (self.rotate_bytes, self.max_bytes);
        config
    }
}

impl AlertConfig {
    /// What is told, as the relay takes it.
    pub fn policy(&self) -> AlertPolicy {
        AlertPolicy {
            on: self.on.iter().copied().collect(),
            min_interval: self.min_interval,
            max_per_minute: self.max_per_minute,
        }
    }
}
