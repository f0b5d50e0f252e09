//! For transports that take one message at a time.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use async_trait::async_trait;
use futures::{FutureExt, StreamExt, stream};
use posthaste_core::publisher::{Batch, Delivery, Outcome, PublishError, Publisher, Report};

use crate::lanes::lanes;

/// Sends one message. Wrapped in [`EachMessage`] it is a [`Publisher`].
#[async_trait]
pub trait PublishOne: Send + Sync + 'static {
    /// Sends the message; `Ok` once it has been acknowledged durably.
    async fn publish_one(&self, delivery: &Delivery) -> Result<(), PublishError>;

    /// A name for logs and metrics, such as `http`.
    fn name(&self) -> &'static str;
}

/// Publishes a batch one message at a time: lanes side by side, the messages of a lane one after the other.
///
/// A failure, or a panic, ends its lane for this batch and no other.
#[derive(Clone, Debug)]
pub struct EachMessage<P> {
    publisher: P,
    concurrency: usize,
}

impl<P> EachMessage<P> {
    /// Lanes of one batch that are sent side by side unless [`EachMessage::concurrency`] says otherwise.
    pub const DEFAULT_CONCURRENCY: usize = 64;

    /// Wraps `publisher`.
    pub fn new(publisher: P) -> Self {
        Self {
            publisher,
            concurrency: Self::DEFAULT_CONCURRENCY,
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
}

impl<P: PublishOne> EachMessage<P> {
    async fn publish_lane(&self, lane: Vec<&Delivery>, batch: &Batch, report: &Report) {
        let mut stopped = false;
        for delivery in lane {
            let id = delivery.message.id;
            if stopped || !batch.may_send(id) {
                stopped = true;
                report.outcome(id, Outcome::NotAttempted);
                continue;
            }
            // Called within, so that a panic before the first await is caught too.
            let sending = async { self.publisher.publish_one(delivery).await };
            match caught(sending).await.flatten() {
                Ok(()) => report.delivered(id),
                Err(error) => {
                    stopped = true;
                    report.failed(id, error);
                }
            }
        }
    }
}

/// What sending a message came to. A panic is kept to its message: let through, it would leave the neighbours without an
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
