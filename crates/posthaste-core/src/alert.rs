//! Alerts: what an operator has to hear of at once, and where it is sent.

use std::fmt;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::message::MessageId;
use crate::publisher::PublishError;

/// What an alert is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AlertKind {
    /// Dead letters that no place takes: neither the table nor the file.
    Net,
    /// Messages whose bytes do not match their hash.
    Integrity,
    /// Messages that died.
    Dead,
}

impl AlertKind {
    /// Its name in settings and alerts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Net => "net",
            Self::Integrity => "integrity",
            Self::Dead => "dead",
        }
    }
}

impl fmt::Display for AlertKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Net => "dead letters that no place takes",
            Self::Integrity => "messages whose bytes do not match their hash",
            Self::Dead => "dead messages",
        })
    }
}

/// One of the messages that an alert is about. Never their payload, which is not for a chat room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AlertMessage {
    /// Its row.
    pub id: MessageId,
    /// Its ordering key.
    pub key: Option<String>,
    /// What it died of.
    pub error: String,
}

/// What an operator has to hear of at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Alert {
    /// What it is about.
    pub kind: AlertKind,
    /// Whose outbox.
    pub namespace: String,
    /// The topic of the messages, where they are known.
    pub topic: Option<String>,
    /// Why.
    pub cause: String,
    /// How many messages.
    pub count: u64,
    /// How many of them were not told at once, because the same had been told shortly before.
    pub suppressed: u64,
    /// Some of them.
    pub messages: Vec<AlertMessage>,
    /// When the first of them came up.
    pub since: DateTime<Utc>,
}

impl Alert {
    /// An alert about nothing yet.
    pub fn new(kind: AlertKind, namespace: impl Into<String>, cause: impl Into<String>, since: DateTime<Utc>) -> Self {
        Self {
            kind,
            namespace: namespace.into(),
            topic: None,
            cause: cause.into(),
            count: 0,
            suppressed: 0,
            messages: Vec::new(),
            since,
        }
    }

    /// Its first sentence.
    pub fn title(&self) -> String {
        let topic = self.topic.as_deref().map(|topic| format!(" of topic {topic}"));
        let more = match self.suppressed {
            0 => String::new(),
            suppressed => format!(", {suppressed} of them since the last alert"),
        };
        format!(
            "{}: {} {}{}{more}",
            self.namespace,
            self.count,
            self.kind,
            topic.unwrap_or_default()
        )
    }
}

/// Where alerts go. What sends them too often or twice is not its business.
#[async_trait]
pub trait AlertSink: Send + Sync + 'static {
    /// Sends one. The caller gives up after some seconds.
    ///
    /// # Errors
    /// If it was not taken; it is sent again later.
    async fn send(&self, alert: &Alert) -> Result<(), PublishError>;

    /// Whether alerts can be expected to arrive, in a sentence; sends none.
    ///
    /// # Errors
    /// If they cannot.
    async fn check(&self) -> Result<String, PublishError>;
}
