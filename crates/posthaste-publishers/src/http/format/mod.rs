//! What a request looks like.

mod cloudevents;
mod content;
mod discord;
mod discord_options;

use posthaste_core::publisher::{Delivery, PublishError};
use serde::{Deserialize, Serialize};

use self::content::Content;
use self::discord::Notice;
pub use self::discord_options::{DiscordOptions, Field, Style};
use crate::options::InvalidOption;

/// How events are written into requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum HttpFormat {
    /// One `CloudEvents` event per request: attributes as headers, the payload as body.
    #[default]
    Binary,
    /// One `CloudEvents` event per request, as JSON.
    Structured,
    /// Several `CloudEvents` events per request, as a JSON array.
    Batch,
    /// One notification per request, in Discord's format.
    Discord,
}

/// Writes requests.
#[derive(Clone, Debug)]
pub(super) enum Writer {
    Binary,
    Structured,
    Batch,
    Discord(Notice),
}

impl Writer {
    pub(super) fn new(format: HttpFormat, notification: &DiscordOptions) -> Result<Self, InvalidOption> {
        Ok(match format {
            HttpFormat::Binary => Self::Binary,
            HttpFormat::Structured => Self::Structured,
            HttpFormat::Batch => Self::Batch,
            HttpFormat::Discord => Self::Discord(Notice::new(notification)?),
        })
    }

    /// The content of a request with these events; only [`HttpFormat::Batch`] takes more than one.
    pub(super) fn content(&self, deliveries: &[&Delivery]) -> Result<Content, PublishError> {
        match (self, deliveries) {
            (Self::Batch, deliveries) => cloudevents::batch(deliveries),
            (Self::Structured, [delivery]) => cloudevents::structured(delivery),
            (Self::Binary, [delivery]) => cloudevents::binary(delivery),
            (Self::Discord(notice), [delivery]) => Ok(notice.content(delivery)),
            _ => Err(PublishError::permanent(
                "a request of this format has exactly one event",
            )),
        }
    }
}
