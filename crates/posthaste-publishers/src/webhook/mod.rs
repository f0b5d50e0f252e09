//! Notifications to a webhook that speaks Discord's format.
//!
//! For people who want to see events as they happen; services that want events themselves are better served by a broker.
//! Receivers limit how fast they take notifications, and here that costs no attempts: see `docs/webhook.md`.

mod answer;
mod client;
mod notice;
mod options;

mod publisher;
mod template;
mod url;

pub use self::options::{Field, InvalidWebhookOptions, Style, WebhookOptions};
pub use self::publisher::WebhookPublisher;
pub use self::url::WebhookUrl;
