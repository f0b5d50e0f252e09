//! For transports that take one message at a time.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::{FutureExt, StreamExt, stream};
use posthaste_core::publisher::{
    Batch, Capabilities, Delivery, ErrorKind, LaneOrder, Outcome, PublishError, Publisher, Receipt, Report,
};
use posthaste_core::readable::Readable;

use crate::lanes::{LaneReport, lanes};
use crate::turn::Turns;

/// Sends one message. Wrapped in [`EachMessage`] it is a [`Publisher`].
///
/// # Examples
///
/// ```
/// use async_trait::async_trait;
/// use posthaste_core::publisher::{Delivery, PublishError, Receipt};
/// use posthaste_publishers::{EachMessage, PublishOne};
///
/// struct Mail;
///
/// #[async_trait]
/// impl PublishOne for Mail {
///     async fn publish_one(&self, delivery: &Delivery) -> Result<Receipt, PublishError> {
///         println!("to {}: {} bytes", delivery.message.topic, delivery.message.payload.len());
///         Ok(Receipt::default())
///     }
///
///     fn name(&self) -> &'static str {
///         "mail"
///     }
/// }
///
/// let publisher = EachMessage::new(Mail).concurrency(8);
/// ```
#[async_trait]
pub trait PublishOne: Send + Sync + 'static {
    /// Sends the message; `Ok` once it has been acknowledged durably.
    ///
    /// # Errors
    ///
    /// Why it was not, classified by [`ErrorKind`].
    async fn publish_one(&self, delivery: &Delivery) -> Result<Receipt, PublishError>;

    /// A name for logs and metrics, such as `http`.
    fn name(&self) -> &'static str;

    /// What to report of a message that was not answered within the limit of [`EachMessage::limits`].
    fn timed_out(&self, _: &Delivery, after: Duration) -> PublishError {
        timed_out(self.name(), after)
    }

    /// See [`Publisher::check`].
    ///
    /// # Errors
    ///
    /// What publishing would fail with.
    async fn check(&self) -> Result<String, PublishError> {
        Ok(self.name().to_owned())
    }

    /// See [`Publisher::close`].
    async fn close(&self) {}
}

/// Publishes a batch one message at a time: lanes side by side, the messages of a lane one after the other.
///
/// A failure, or a panic, ends its lane for this batch and no other.
#[derive(Clone, Debug)]
pub struct EachMessage<P> {
    publisher: P,
    concurrency: usize,
    turns: Option<Arc<Turns>>,
}

impl<P> EachMessage<P> {
    /// Lanes of one batch that are sent side by side unless [`EachMessage::concurrency`] says otherwise.
    pub const DEFAULT_CONCURRENCY: usize = 64;

    /// Wraps `publisher`.
    pub fn new(publisher: P) -> Self {
        Self {
            publisher,
            concurrency: Self::DEFAULT_CONCURRENCY,
            turns: None,
        }
    }

    /// How many lanes of one batch are sent side by side, and so how many messages of it are in flight at most. With 1
    /// the whole batch goes out lane by lane; 0 counts as 1. Defaults to 64.
    #[must_use]
    pub fn concurrency(mut self, lanes: usize) -> Self {
        // Zero would mean "without limit" to the stream below.
        self.concurrency = lanes.max(1);
        self
    }

    /// Limits the messages of all batches together to `max_in_flight`, and gives each `answer_within` for all it has to
    /// wait for: its turn, pauses that the receiver asks for ([`ErrorKind::Throttled`]) and the answer. A pause that is over
    /// by then is waited for, and costs no attempt. By default there is no limit, and a pause is left to the relay.
    #[must_use]
    pub fn limits(mut self, max_in_flight: usize, answer_within: Duration) -> Self {
        self.turns = Some(Arc::new(Turns::new(max_in_flight, answer_within)));
        self.concurrency(max_in_flight)
    }

    /// Limits of which the publisher itself announces the pauses.
    #[cfg(feature = "http")]
    pub(crate) fn with_turns(mut self, turns: Arc<Turns>) -> Self {
        self.concurrency = turns.max_in_flight();
        self.turns = Some(turns);
        self
    }
}

#[async_trait]
impl<P: PublishOne> Publisher for EachMessage<P> {
    async fn publish(&self, batch: Batch, report: Report) {
        let (batch, report) = (&batch, &report);
        stream::iter(lanes(&batch.deliveries))
            .for_each_concurrent(self.concurrency, |lane| self.publish_lane(lane, batch, report))
            .await;
    }

    fn name(&self) -> &'static str {
        self.publisher.name()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(LaneOrder::OneAtATime)
    }

    async fn check(&self) -> Result<String, PublishError> {
        self.publisher.check().await
    }

    async fn close(&self) {
        self.publisher.close().await;
    }
}

impl<P: PublishOne> EachMessage<P> {
    async fn publish_lane(&self, lane: Vec<&Delivery>, batch: &Batch, report: &Report) {
        let mut lane_report = LaneReport::new(batch, report);
        for delivery in lane {
            if lane_report.admit(delivery) {
                let outcome = self.publish_one(delivery, batch).await;
                lane_report.outcome(delivery, outcome);
            }
        }
    }

    async fn publish_one(&self, delivery: &Delivery, batch: &Batch) -> Outcome {
        let Some(turns) = &self.turns else {
            return outcome(self.send(delivery).await);
        };
        let Some(mut turn) = turns.take().await else {
            return Outcome::NotAttempted;
        };
        loop {
            if let Err(outcome) = turn.comes(delivery, batch).await {
                return outcome;
            }
            let sent = match tokio::time::timeout_at(turn.deadline(), self.send(delivery)).await {
                Ok(sent) => sent,
                Err(_) => Err(self.publisher.timed_out(delivery, turns.answer_within())),
            };
            match sent {
                Err(error) if matches!(error.kind, ErrorKind::Throttled { .. }) => turn.throttled(error),
                sent => return outcome(sent),
            }
        }
    }

    async fn send(&self, delivery: &Delivery) -> Result<Receipt, PublishError> {
        // Called within, so that a panic before the first await is caught too.
        caught(async { self.publisher.publish_one(delivery).await })
            .await
            .flatten()
    }
}

fn outcome(sent: Result<Receipt, PublishError>) -> Outcome {
    match sent {
        Ok(receipt) => Outcome::Delivered(receipt),
        Err(error) => Outcome::Failed(error),
    }
}

pub(crate) fn timed_out(name: &str, after: Duration) -> PublishError {
    PublishError::transport(format!("{name}: no answer within {}", Readable(after)))
}

/// What sending came to. A panic is kept to what was being sent: let through, it would leave the neighbours without an
/// outcome, and they would use up their attempts on a message that is not theirs.
pub(crate) async fn caught<T>(sending: impl Future<Output = T>) -> Result<T, PublishError> {
    AssertUnwindSafe(sending).catch_unwind().await.map_err(|panic| {
        let reason = panic_message(panic.as_ref());
        PublishError::unknown(format!("the publisher panicked: {reason}"))
    })
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}
