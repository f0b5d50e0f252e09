//! The publisher.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt, stream};
use posthaste_core::publisher::{Batch, Delivery, ErrorKind, Outcome, PublishError, Publisher, Report};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::client::Client;
use super::notice::Notice;
use super::options::{InvalidWebhookOptions, WebhookOptions};
use super::pace::Pace;
use crate::each::caught;
use crate::lanes::lanes;

/// Posts each message as a notification, in order per key and a few keys at a time.
///
/// A rate limit is kept to rather than run into, and costs no attempts as long as it passes within `answer_within`. A
/// webhook that was removed, or a receiver that is away, are failures of the way and not of the message: the relay's
/// circuit opens and everything waits.
#[derive(Clone)]
pub struct WebhookPublisher(Arc<Inner>);

struct Inner {
    options: WebhookOptions,
    notice: Notice,
    client: Client,
    pace: Pace,
    /// As many as notifications may be on their way, whichever batches they are of.
    seats: Semaphore,
}

/// How long a pause may go by without asking whether the message may still be sent.
const LOOK_UP: Duration = Duration::from_millis(200);

impl WebhookPublisher {
    /// A publisher with these options. Connects to nothing yet: a relay may start before its receiver.
    pub fn new(options: WebhookOptions) -> Result<Self, InvalidWebhookOptions> {
        let notice = Notice {
            style: options.style,
            username: options.username.clone(),
            templates: options.templates()?,
        };
        Ok(Self(Arc::new(Inner {
            client: Client::new(options.url.clone()),
            notice,
            pace: Pace::default(),
            seats: Semaphore::new(options.concurrency),
            options,
        })))
    }

    /// Asks the receiver for the webhook without posting anything, and says what was found. Receivers other than Discord
    /// need not know the question: that they answer at all is enough.
    pub async fn probe(&self) -> Result<String, PublishError> {
        let inner = &self.0;
        let answer = inner.client.get(inner.deadline()).await?;
        let url = inner.client.url();
        if url.is_discord() {
            answer.outcome(url)?;
        }
        Ok(format!("{} answers {}", url.host(), answer.status()))
    }
}

#[async_trait]
impl Publisher for WebhookPublisher {
    async fn publish(&self, batch: Batch, report: Report) {
        let (batch, report) = (&batch, &report);
        stream::iter(lanes(&batch.deliveries))
            .for_each_concurrent(self.0.options.concurrency, |lane| {
                self.0.publish_lane(lane, batch, report)
            })
            .await;
    }

    fn name(&self) -> &'static str {
        "webhook"
    }
}

impl Inner {
    async fn publish_lane(&self, lane: Vec<&Delivery>, batch: &Batch, report: &Report) {
        let mut stopped = false;
        for delivery in lane {
            let outcome = if stopped {
                Outcome::NotAttempted
            } else {
                let sending = self.publish_one(delivery, batch);
                caught(sending).await.unwrap_or_else(Outcome::Failed)
            };
            stopped |= outcome != Outcome::Delivered;
            report.outcome(delivery.message.id, outcome);
        }
    }

    /// Posts one notification, and again if the receiver asks for patience and there is time for it.
    async fn publish_one(&self, delivery: &Delivery, batch: &Batch) -> Outcome {
        let deadline = self.deadline();
        // Whoever gets a seat late must still have time for an answer.
        let Ok(Ok(_seat)) = timeout_at(deadline - self.options.answer_within / 2, self.seats.acquire()).await else {
            return Outcome::NotAttempted;
        };
        let body = Bytes::from(self.notice.body(delivery).to_string());
        let mut throttled = None;
        loop {
            if let Err(outcome) = self.turn(delivery, batch, deadline, throttled).await {
                return outcome;
            }
            let answer = match self.client.post(body.clone(), deadline).await {
                Ok(answer) => answer,
                Err(error) => return Outcome::Failed(error),
            };
            if let Some(pause) = answer.pause() {
                self.pace.pause(pause);
            }
            match answer.outcome(self.client.url()) {
                Ok(()) => return Outcome::Delivered,
                Err(error) if matches!(error.kind, ErrorKind::Throttled { .. }) => throttled = Some(error),
                Err(error) => return Outcome::Failed(error),
            }
        }
    }

    /// Waits until the receiver's patience is not asked for any more, or says what becomes of the message. Nobody sits out
    /// a pause that is too long: whoever is told of it claims nothing more meanwhile.
    async fn turn(
        &self,
        delivery: &Delivery,
        batch: &Batch,
        deadline: Instant,
        mut refused: Option<PublishError>,
    ) -> Result<(), Outcome> {
        loop {
            if !batch.may_send(delivery.message.id) {
                return Err(refused.map_or(Outcome::NotAttempted, Outcome::Failed));
            }
            let now = Instant::now();
            match (self.pace.paused_until(), refused) {
                (None, Some(error)) if now >= deadline => return Err(Outcome::Failed(error)),
                (None, _) => return Ok(()),
                (Some(until), error) if until >= deadline => {
                    return Err(Outcome::Failed(error.unwrap_or_else(|| self.patience(until - now))));
                }
                (Some(until), error) => {
                    refused = error;
                    sleep_until(until.min(now + LOOK_UP)).await;
                }
            }
        }
    }

    /// What the receiver has told others.
    fn patience(&self, left: Duration) -> PublishError {
        let host = self.client.url().host();
        PublishError::throttled(left, format!("webhook at {host}: it has asked for patience"))
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.options.answer_within
    }
}

impl fmt::Debug for WebhookPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WebhookPublisher").field(&self.0.options).finish()
    }
}
