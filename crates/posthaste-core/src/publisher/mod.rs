//! The interface to a broker: what a publisher is given, what it must answer and what it can say of itself.

mod batch;
mod capabilities;
mod error;
mod outcome;

use std::sync::Arc;

use async_trait::async_trait;

pub use self::batch::{Batch, Delivery, LeaseCheck, Place};
pub use self::capabilities::{Capabilities, LaneOrder};
pub use self::error::{ErrorKind, ErrorScope, PublishError, Shared};
pub use self::outcome::{Outcome, OutcomeSink, Receipt, Report};
use crate::message::Message;

/// Hands messages to a broker.
///
/// # Contract
/// - Report exactly one [`Outcome`] for each message of the batch, as soon as it is known. What is not reported when
///   `publish` returns, or when it panics, counts as [`ErrorKind::Unknown`].
/// - A batch may hold several messages of one lane (see [`Message::lane`]), always in order. Hand a
///   message over only when its predecessors of the lane were acknowledged, or when the transport itself guarantees that
///   they come first. After a failure report the rest of that lane as [`Outcome::NotAttempted`]. Other lanes go on.
/// - Right before handing over a message ask [`Batch::may_send`]; if it says no, report [`Outcome::NotAttempted`] for it
///   and for the rest of its lane.
/// - Report [`Outcome::DELIVERED`] only once the broker has acknowledged the message durably.
/// - Classify failures by [`ErrorKind`] and [`ErrorScope`]; never decide about retries.
/// - `publish` may be called again while earlier calls are still running. Batches never share a lane, unless the publisher says
///   that its lanes are [`LaneOrder::Pipelined`]. Then calls begin in order: each is polled for the first time when the one
///   before has been, and by then it must have its place in the line in which messages are handed over. If a message is not
///   delivered, [`Batch::may_send`] says no for all that were claimed behind it, in whichever batch; those that were handed
///   over already must not arrive, or not before it.
///
/// Most publishers need not do this themselves: `posthaste-publishers` has `EachMessage` for transports that take one
/// message at a time and `InRounds` for those that take many in one request.
#[async_trait]
pub trait Publisher: Send + Sync + 'static {
    /// Publishes a batch and reports every outcome.
    async fn publish(&self, batch: Batch, report: Report);

    /// A name for logs and metrics, such as `kafka`.
    fn name(&self) -> &'static str;

    /// What it can do and what it asks for. Read once, when the relay starts.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Where a message goes, if the publisher can tell beforehand and has several destinations that fail or fall silent
    /// each on its own. One that does is then given no more than its share of what may be in flight, and the others go on.
    /// Failures of a destination are reported under the same name, see [`PublishError::at`].
    fn destination(&self, _: &Message) -> Option<Arc<str>> {
        None
    }

    /// All names that [`destination`](Self::destination) gives, if the publisher knows them. Read once, when the relay
    /// starts. While every one of them is unavailable the relay claims nothing.
    fn destinations(&self) -> Vec<Arc<str>> {
        Vec::new()
    }

    /// Whether messages could be published now, without publishing any: a description of what was found, or why not.
    ///
    /// # Errors
    ///
    /// What publishing would fail with, classified in the same way.
    async fn check(&self) -> Result<String, PublishError> {
        Ok(self.name().to_owned())
    }

    /// Waits for what is still on its way and ends connections and threads. A relay calls it when it has stopped; a
    /// publisher that several relays share is closed by each, and opens again with what is published next.
    async fn close(&self) {}
}

#[async_trait]
impl<P: Publisher + ?Sized> Publisher for Arc<P> {
    async fn publish(&self, batch: Batch, report: Report) {
        (**self).publish(batch, report).await;
    }

    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn destination(&self, message: &Message) -> Option<Arc<str>> {
        (**self).destination(message)
    }

    fn destinations(&self) -> Vec<Arc<str>> {
        (**self).destinations()
    }

    async fn check(&self) -> Result<String, PublishError> {
        (**self).check().await
    }

    async fn close(&self) {
        (**self).close().await;
    }
}
