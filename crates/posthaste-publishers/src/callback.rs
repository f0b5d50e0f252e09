//! An application's own code as publisher.

use async_trait::async_trait;
use posthaste_core::publisher::{Batch, Capabilities, Delivery, PublishError, Publisher, Receipt, Report};

use crate::each::{EachMessage, PublishOne};

/// Publishes by calling an async function for each message, in order per lane and side by side across lanes.
///
/// ```
/// use posthaste_core::publisher::{Delivery, PublishError};
/// use posthaste_publishers::Callback;
///
/// # async fn post(topic: &str, body: &[u8]) -> Result<(), std::io::Error> { Ok(()) }
/// let publisher = Callback::new(|delivery: Delivery| async move {
///     post(&delivery.message.topic, &delivery.message.payload)
///         .await
///         .map_err(|error| PublishError::transient(error.to_string()))
/// });
/// ```
///
/// Where the broker says more of a message that it took, implement [`PublishOne`], which returns a [`Receipt`].
#[derive(Clone, Debug)]
pub struct Callback<F>(EachMessage<Call<F>>);

impl<F, Sent> Callback<F>
where
    F: Fn(Delivery) -> Sent + Send + Sync + 'static,
    Sent: Future<Output = Result<(), PublishError>> + Send,
{
    /// Calls `function` for each message.
    pub fn new(function: F) -> Self {
        Self(EachMessage::new(Call(function)))
    }

    /// How many calls for one batch run side by side. Defaults to 64.
    #[must_use]
    pub fn concurrency(self, calls: usize) -> Self {
        Self(self.0.concurrency(calls))
    }
}

#[async_trait]
impl<F, Sent> Publisher for Callback<F>
where
    F: Fn(Delivery) -> Sent + Send + Sync + 'static,
    Sent: Future<Output = Result<(), PublishError>> + Send,
{
    async fn publish(&self, batch: Batch, report: Report) {
        self.0.publish(batch, report).await;
    }

    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }
}

#[derive(Clone, Debug)]
struct Call<F>(F);

#[async_trait]
impl<F, Sent> PublishOne for Call<F>
where
    F: Fn(Delivery) -> Sent + Send + Sync + 'static,
    Sent: Future<Output = Result<(), PublishError>> + Send,
{
    async fn publish_one(&self, delivery: &Delivery) -> Result<Receipt, PublishError> {
        (self.0)(delivery.clone()).await.map(Receipt::from)
    }

    fn name(&self) -> &'static str {
        "callback"
    }
}
