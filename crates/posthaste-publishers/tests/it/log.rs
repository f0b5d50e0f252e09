//! Messages as log events.

use std::io;
use std::sync::{Arc, Mutex};

use posthaste_core::publisher::{ErrorKind, Outcome};
use posthaste_core::{Message, Publisher};
use posthaste_publishers::{LogLevel, LogOptions, LogPublisher};
use serde_json::Value;
use tracing_subscriber::EnvFilter;

use crate::support::{message, publish, publish_without_lease};

/// What was logged while it was installed.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// Begins to log to here, in this thread.
    fn install(filter: &str) -> (Self, tracing::subscriber::DefaultGuard) {
        let lines = Self::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .with_writer(move || writer.clone())
            .with_env_filter(EnvFilter::new(filter))
            .finish();
        (lines, tracing::subscriber::set_default(subscriber))
    }

    fn events(&self) -> Vec<Value> {
        let bytes = self.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn at(level: LogLevel) -> LogPublisher {
    LogPublisher::new(LogOptions::default().level(level))
}

/// Proves D10.
#[tokio::test]
async fn each_message_is_one_event_at_the_configured_level_in_order() {
    let (lines, _guard) = Lines::install("trace");
    for (level, name) in [
        (LogLevel::Error, "ERROR"),
        (LogLevel::Warn, "WARN"),
        (LogLevel::Info, "INFO"),
        (LogLevel::Debug, "DEBUG"),
        (LogLevel::Trace, "TRACE"),
    ] {
        let before = lines.events().len();
        let first = Message::new("donations", "{\"amount\":\n5}")
            .event_type("DONATION_COMPLETED")
            .key("g-1");
        let messages = [first.clone(), message("", "two")];
        assert_eq!(publish(&at(level), &messages).await, vec![Outcome::DELIVERED; 2]);
        let events = lines.events().split_off(before);
        assert_eq!(events.len(), 2, "{events:?}");
        assert_eq!(events[0]["level"], name);
        assert_eq!(events[0]["target"], "posthaste::message");
        let fields = &events[0]["fields"];
        assert_eq!(fields["id"], first.id.to_string());
        assert_eq!(fields["topic"], "donations");
        assert_eq!(fields["event_type"], "DONATION_COMPLETED");
        assert_eq!(fields["key"], "g-1");
        assert_eq!(fields["payload"], "{\"amount\":\n5}");
        assert_eq!(events[1]["fields"]["payload"], "two");
        assert_eq!(events[1]["fields"].get("event_type"), None);
    }
    assert_eq!(LogPublisher::default().name(), "log");
}

#[tokio::test]
async fn a_message_that_the_filter_would_drop_is_not_delivered() {
    let (lines, _guard) = Lines::install("warn");
    let outcomes = publish(
        &at(LogLevel::Info),
        &[message("a", "1"), message("a", "2"), message("", "3")],
    )
    .await;
    for head in [0, 2] {
        let Outcome::Failed(error) = &outcomes[head] else {
            panic!("{outcomes:?}");
        };
        assert_eq!(error.kind, ErrorKind::Transport);
        assert!(error.message.contains("log.level = \"info\""), "{error}");
    }
    assert_eq!(outcomes[1], Outcome::NotAttempted);
    assert!(lines.events().is_empty());
    assert_eq!(
        publish(&at(LogLevel::Warn), &[message("", "4")]).await,
        [Outcome::DELIVERED]
    );
    let (_, _guard) = Lines::install("warn,posthaste::message=info");
    assert_eq!(
        publish(&at(LogLevel::Info), &[message("", "5")]).await,
        [Outcome::DELIVERED]
    );
}

#[tokio::test]
async fn payloads_are_cut_or_left_out_as_asked() {
    let (lines, _guard) = Lines::install("info");
    for payload_limit in [3, 0] {
        let options = LogOptions::default().payload_limit(payload_limit);
        publish(&LogPublisher::new(options), &[message("", "äöüß")]).await;
    }
    let events = lines.events();
    assert_eq!(events[0]["fields"]["payload"], "äöü…");
    assert_eq!(events[1]["fields"].get("payload"), None);
}

#[tokio::test]
async fn what_may_not_be_sent_is_not_logged_nor_is_the_rest_of_its_lane() {
    let (lines, _guard) = Lines::install("info");
    let messages = [message("a", "1"), message("a", "2"), message("b", "3")];
    let outcomes = publish_without_lease(&LogPublisher::default(), &messages, &[0]).await;
    assert_eq!(
        outcomes,
        [Outcome::NotAttempted, Outcome::NotAttempted, Outcome::DELIVERED]
    );
    assert_eq!(lines.events().len(), 1);
}
