//! Alerts to a webhook: as Discord shows them, or as JSON for programs.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::SecondsFormat;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use posthaste_core::alert::{Alert, AlertKind, AlertSink};
use posthaste_core::publisher::PublishError;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::client::Client;
use super::options::HttpOptions;
use super::url::HttpUrl;
use crate::options::InvalidOption;
use crate::template::cut;

/// How an alert looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AlertFormat {
    /// A card in a channel of Discord.
    #[default]
    Discord,
    /// One JSON object with the fields of [`Alert`], and `title`.
    Json,
}

/// How long a receiver may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(8);

/// Discord's limits.
const TITLE: usize = 256;
const DESCRIPTION: usize = 2_048;
const FIELD_NAME: usize = 256;
const FIELD_VALUE: usize = 500;

const RED: u32 = 0x00d9_2d20;
const ORANGE: u32 = 0x00f7_9009;

/// Posts alerts to one address.
pub struct WebhookAlerts {
    client: Client,
    format: AlertFormat,
    /// The address, or a variant of it that is answered when the alert is stored.
    to: String,
}

impl WebhookAlerts {
    /// Alerts to this address. Connects to nothing yet.
    ///
    /// # Errors
    /// Names the setting that cannot work.
    pub fn new(url: HttpUrl, format: AlertFormat) -> Result<Self, InvalidOption> {
        let to = match format {
            AlertFormat::Discord => url.confirmed(),
            AlertFormat::Json => url.reveal().to_owned(),
        };
        let options = HttpOptions::new(url).answer_within(ANSWER_WITHIN);
        options.validate()?;
        Ok(Self {
            client: Client::new(&options)?,
            format,
            to,
        })
    }

    fn body(&self, alert: &Alert) -> Value {
        match self.format {
            AlertFormat::Discord => discord(alert),
            AlertFormat::Json => {
                let mut body = json!(alert);
                body["title"] = json!(alert.title());
                body
            }
        }
    }
}

#[async_trait]
impl AlertSink for WebhookAlerts {
    async fn send(&self, alert: &Alert) -> Result<(), PublishError> {
        let json = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, json)]);
        let body = Bytes::from(self.body(alert).to_string());
        let posted = timeout(ANSWER_WITHIN, self.client.post(&self.to, headers, body)).await;
        let answer = posted.unwrap_or_else(|_| Err(self.client.unavailable("gave no answer in time")))?;
        answer.outcome(self.client.url().host(), self.client.redaction())
    }

    async fn check(&self) -> Result<String, PublishError> {
        let asked = timeout(ANSWER_WITHIN, self.client.get()).await;
        let answer = asked.unwrap_or_else(|_| Err(self.client.unavailable("gave no answer in time")))?;
        let url = self.client.url();
        if url.is_discord() {
            answer.outcome(url.host(), self.client.redaction())?;
        }
        Ok(format!("{} answers {}", url.host(), answer.status()))
    }
}

impl fmt::Debug for WebhookAlerts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebhookAlerts({})", self.client.url().host())
    }
}

fn discord(alert: &Alert) -> Value {
    let field = |name: &str, value: &str| json!({ "name": cut(name, FIELD_NAME), "value": cut(value, FIELD_VALUE) });
    let mut fields = Vec::new();
    for message in &alert.messages {
        let key = message.key.as_deref().map(|key| format!(", key {key}"));
        let name = format!("{}{}", message.id, key.unwrap_or_default());
        // Blank ones would have the whole alert refused.
        let error = match message.error.trim() {
            "" => "no error was given",
            error => error,
        };
        fields.push(field(&name, error));
    }
    json!({
        "username": "Posthaste",
        "embeds": [{
            "title": cut(&alert.title(), TITLE),
            "description": cut(&alert.cause, DESCRIPTION),
            "color": match alert.kind {
                AlertKind::Net | AlertKind::Integrity => RED,
                _ => ORANGE,
            },
            "fields": fields,
            "timestamp": alert.since.to_rfc3339_opts(SecondsFormat::Millis, true),
        }],
        // Nothing that an application puts into a key may call people.
        "allowed_mentions": { "parse": [] },
    })
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use posthaste_core::MessageId;
    use posthaste_core::alert::AlertMessage;

    use super::*;

    fn alert(error: &str) -> Alert {
        let mut alert = Alert::new(AlertKind::Net, "shop", "disk full", DateTime::UNIX_EPOCH);
        alert.topic = Some("orders".to_owned());
        (alert.count, alert.suppressed) = (7, 6);
        alert.messages = vec![AlertMessage {
            id: MessageId::Number(42),
            key: Some("k".to_owned()),
            error: error.to_owned(),
        }];
        alert
    }

    /// Proves D7.
    #[test]
    fn a_card_says_what_where_why_and_of_which_messages() {
        assert_eq!(
            discord(&alert("too large")),
            json!({
                "username": "Posthaste",
                "embeds": [{
                    "title": "shop: 7 dead letters that no place takes of topic orders, 6 of them since the last alert",
                    "description": "disk full",
                    "color": 14_232_864,
                    "fields": [{"name": "42, key k", "value": "too large"}],
                    "timestamp": "1970-01-01T00:00:00.000Z",
                }],
                "allowed_mentions": {"parse": []},
            })
        );
    }

    #[test]
    fn texts_keep_to_the_limits_of_the_receiver_and_none_is_blank() {
        let long = discord(&alert(&"x".repeat(10_000)));
        let value = long["embeds"][0]["fields"][0]["value"].as_str().unwrap();
        assert!(value.chars().count() <= FIELD_VALUE, "{}", value.len());
        assert_eq!(
            discord(&alert(" "))["embeds"][0]["fields"][0]["value"],
            "no error was given"
        );
    }

    #[test]
    fn programs_get_the_fields_and_never_the_address() {
        let url = "https://example.org/hooks/very-secret-token".parse().unwrap();
        let webhook = WebhookAlerts::new(url, AlertFormat::Json).unwrap();
        let body = webhook.body(&alert("too large"));
        assert_eq!(
            (&body["kind"], &body["count"], &body["messages"][0]["id"]),
            (&json!("net"), &json!(7), &json!("42"))
        );
        assert!(!format!("{webhook:?}").contains("secret"));
    }
}
