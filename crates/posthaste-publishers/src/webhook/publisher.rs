//! The publisher.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use posthaste_core::publisher::{Batch, Capabilities, Delivery, PublishError, Publisher, Receipt, Report};
use tokio::time::Instant;

use super::client::Client;
use super::notice::Notice;
use super::options::{InvalidWebhookOptions, WebhookOptions};
use crate::each::{EachMessage, PublishOne};
use crate::turn::Turns;

/// Posts each message as a notification, in order per key and a few keys at a time.
///
/// A rate limit is kept to rather than run into, and costs no attempts as long as it passes within `answer_within`. A
/// webhook that was removed, or a receiver that is unavailable, are failures of the way and not of the message: the relay's
/// circuit opens and everything waits.
#[derive(Clone)]
pub struct WebhookPublisher(EachMessage<Arc<Webhook>>);

struct Webhook {
    options: WebhookOptions,
    notice: Notice,
    client: Client,
    turns: Arc<Turns>,
}

impl WebhookPublisher {
    /// A publisher with these options. Connects to nothing yet: a relay may start before its receiver.
    pub fn new(options: WebhookOptions) -> Result<Self, InvalidWebhookOptions> {
        let notice = Notice {
            style: options.style,
            username: options.username.clone(),
            templates: options.templates()?,
        };
        let turns = Arc::new(Turns::new(options.concurrency, options.answer_within));
        let webhook = Webhook {
            client: Client::new(options.url.clone()),
            notice,
            turns: Arc::clone(&turns),
            options,
        };
        Ok(Self(EachMessage::new(Arc::new(webhook)).with_turns(turns)))
    }
}

#[async_trait]
impl Publisher for WebhookPublisher {
    async fn publish(&self, batch: Batch, report: Report) {
        self.0.publish(batch, report).await;
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn check(&self) -> Result<String, PublishError> {
        self.0.check().await
    }
}

#[async_trait]
impl PublishOne for Arc<Webhook> {
    async fn publish_one(&self, delivery: &Delivery) -> Result<Receipt, PublishError> {
        let body = Bytes::from(self.notice.body(delivery).to_string());
        let answer = self.client.post(body, self.deadline()).await?;
        if let Some(pause) = answer.pause() {
            self.turns.pace().pause(pause);
        }
        answer.outcome(self.client.url()).map(Receipt::from)
    }

    fn name(&self) -> &'static str {
        "webhook"
    }

    fn timed_out(&self, _: &Delivery, _: Duration) -> PublishError {
        self.client.away("gave no answer in time")
    }

    /// Asks the receiver for the webhook without posting anything. Receivers other than Discord need not know the
    /// question: that they answer at all is enough.
    async fn check(&self) -> Result<String, PublishError> {
        let answer = self.client.get(self.deadline()).await?;
        let url = self.client.url();
        if url.is_discord() {
            answer.outcome(url)?;
        }
        Ok(format!("webhook, {} answers {}", url.host(), answer.status()))
    }
}

impl Webhook {
    fn deadline(&self) -> Instant {
        Instant::now() + self.options.answer_within
    }
}

impl fmt::Debug for WebhookPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookPublisher")
    }
}
