//! Log events: one per message.

use std::sync::Arc;

use async_trait::async_trait;
use posthaste_core::publisher::{Batch, Capabilities, Delivery, LaneOrder, PublishError, Publisher, Receipt, Report};
use serde::Deserialize;
use tracing::Level;

use crate::lanes::LaneReport;
use crate::options::{InvalidOption, PublisherContext, PublisherOptions};

/// Writes each message to the program's log, as an event of `tracing` with the target `posthaste::message`.
///
/// `Delivered` means that the log's filter let the event through. One that would be filtered out is not delivered: it
/// waits until the filter lets it through.
#[derive(Clone, Debug, Default)]
pub struct LogPublisher(LogOptions);

/// How messages are logged.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct LogOptions {
    /// The events' level. Defaults to `info`.
    pub level: LogLevel,
    /// How many characters of a payload are written; with 0 none are. Defaults to 4096.
    pub payload_limit: usize,
}

/// The level of a log event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Something failed.
    Error,
    /// Something may need attention.
    Warn,
    /// Something happened.
    #[default]
    Info,
    /// For debugging.
    Debug,
    /// For tracing step by step.
    Trace,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            level: LogLevel::default(),
            payload_limit: 4_096,
        }
    }
}

impl LogOptions {
    /// The events' level.
    #[must_use]
    pub fn level(mut self, level: LogLevel) -> Self {
        self.level = level;
        self
    }

    /// How many characters of a payload are written.
    #[must_use]
    pub fn payload_limit(mut self, characters: usize) -> Self {
        self.payload_limit = characters;
        self
    }
}

impl PublisherOptions for LogOptions {
    fn validate(&self, _: &PublisherContext) -> Result<(), InvalidOption> {
        Ok(())
    }

    fn build(self, _: &PublisherContext) -> Result<Arc<dyn Publisher>, InvalidOption> {
        Ok(Arc::new(LogPublisher::new(self)))
    }
}

impl LogPublisher {
    /// A publisher with these options.
    pub fn new(options: LogOptions) -> Self {
        Self(options)
    }

    /// Whether the log takes events of this level now; the error says what to do.
    fn enabled(&self) -> Result<(), PublishError> {
        let enabled = match self.0.level {
            LogLevel::Error => tracing::enabled!(target: TARGET, Level::ERROR),
            LogLevel::Warn => tracing::enabled!(target: TARGET, Level::WARN),
            LogLevel::Info => tracing::enabled!(target: TARGET, Level::INFO),
            LogLevel::Debug => tracing::enabled!(target: TARGET, Level::DEBUG),
            LogLevel::Trace => tracing::enabled!(target: TARGET, Level::TRACE),
        };
        if enabled {
            return Ok(());
        }
        let level = self.0.level.name();
        // It is about every message, and costs none of them an attempt once the circuit has opened.
        Err(PublishError::transport(format!(
            "the log drops events of level {level} from {TARGET}; let them through, for instance with log.level = \"{level}\", \
             or raise publisher.level"
        )))
    }

    fn write(&self, delivery: &Delivery) {
        let message = &delivery.message;
        let payload = payload(&message.payload, self.0.payload_limit);
        macro_rules! write {
            ($level:ident) => {
                tracing::event!(
                    target: TARGET,
                    Level::$level,
                    id = %message.effective_event_id(),
                    topic = message.topic.as_str(),
                    event_type = message.event_type.as_deref(),
                    key = message.ordering_key.as_deref(),
                    tenant = message.tenant.as_deref(),
                    created_at = %delivery.created_at,
                    attempt = delivery.attempt,
                    payload,
                    "message"
                )
            };
        }
        match self.0.level {
            LogLevel::Error => write!(ERROR),
            LogLevel::Warn => write!(WARN),
            LogLevel::Info => write!(INFO),
            LogLevel::Debug => write!(DEBUG),
            LogLevel::Trace => write!(TRACE),
        }
    }
}

const TARGET: &str = "posthaste::message";

#[async_trait]
impl Publisher for LogPublisher {
    async fn publish(&self, batch: Batch, report: Report) {
        let enabled = self.enabled();
        let mut report = LaneReport::new(&batch, &report);
        for delivery in &batch.deliveries {
            if report.admit(delivery) {
                let written = enabled.clone().map(|()| self.write(delivery));
                report.answer(delivery, written.map(Receipt::from));
            }
        }
    }

    fn name(&self) -> &'static str {
        "log"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(LaneOrder::Pipelined)
    }

    async fn check(&self) -> Result<String, PublishError> {
        self.enabled().map(|()| self.name().to_owned())
    }
}

impl LogLevel {
    /// The level as it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// The payload as text, if any of it is wanted.
fn payload(bytes: &[u8], limit: usize) -> Option<String> {
    if limit == 0 {
        return None;
    }
    let text = String::from_utf8_lossy(bytes);
    match text.char_indices().nth(limit) {
        Some((end, _)) => Some(format!("{}…", &text[..end])),
        None => Some(text.into_owned()),
    }
}
