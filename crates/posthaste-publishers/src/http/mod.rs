//! HTTP: each event posted to an address, as a `CloudEvents` event or in a format that people read.
//!
//! `CloudEvents` in binary, structured and batch mode, signed as Standard Webhooks asks for where secrets are given, and
//! notifications in Discord's format: see `docs/http.md`.

mod alert;
mod answer;
mod client;
mod connector;
mod format;
mod options;
mod publisher;
mod redaction;
mod secret;
mod sign;
mod url;

pub use self::alert::{AlertFormat, WebhookAlerts};
pub use self::format::{DiscordOptions, Field, HttpFormat, Style};
pub use self::options::{BatchOptions, HttpOptions, TlsOptions};
pub use self::publisher::HttpPublisher;
pub use self::secret::Secret;
pub use self::url::HttpUrl;
