//! The publisher.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::publisher::{Batch, Capabilities, LaneOrder, PublishError, Publisher, Report};
use posthaste_core::readable::Readable;

use super::client::{Cluster, KafkaClient};
use super::options::{InvalidKafkaOptions, KafkaOptions};
use super::publication;
use crate::options::{InvalidOption, PublisherContext, PublisherOptions};

/// Publishes to Kafka: one record per message, partitioned by ordering key, else by aggregate id.
///
/// A message counts as delivered once the broker has acknowledged it, by default with all replicas in sync. Several
/// messages of one lane are on their way at the same time, and still none is written after an earlier one of its lane
/// has failed: see `docs/adr/0004-kafka-order.md`.
///
/// A cluster that is unavailable, wrong credentials, and a topic that is not there are failures of messages, not of the
/// publisher: it goes on by itself once they are fixed.
pub struct KafkaPublisher(KafkaClient);

impl KafkaPublisher {
    /// A publisher with these options. Does not wait for a connection: a relay may start before its broker.
    ///
    /// # Errors
    ///
    /// Names the setting that cannot work.
    pub fn new(options: KafkaOptions) -> Result<Self, InvalidKafkaOptions> {
        KafkaClient::new(options).map(Self)
    }

    /// Asks the cluster who it is; the error says why it cannot be asked.
    ///
    /// # Errors
    ///
    /// What publishing would fail with.
    pub async fn cluster(&self) -> Result<Cluster, PublishError> {
        self.0.cluster().await
    }
}

impl PublisherOptions for KafkaOptions {
    fn validate(&self, context: &PublisherContext) -> Result<(), InvalidOption> {
        let options = self.clone().within(context)?;
        options.client_config().map(drop).map_err(Into::into)
    }

    fn build(self, context: &PublisherContext) -> Result<Arc<dyn Publisher>, InvalidOption> {
        Ok(Arc::new(KafkaPublisher::new(self.within(context)?)?))
    }
}

/// Larger batches gain nothing, and hold up those behind them.
const MAX_BATCH: usize = 2_000;

/// Ten of them are on their way: enough to fill requests while answers are awaited.
const MAX_IN_FLIGHT: u32 = 20_000;

/// How long the producers may take to end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

#[async_trait]
impl Publisher for KafkaPublisher {
    async fn publish(&self, batch: Batch, report: Report) {
        publication::run(&self.0, batch, report).await;
    }

    fn name(&self) -> &'static str {
        "kafka"
    }

    /// Its batches are divided by librdkafka. A broker drops what its own producer repeats, but not what another one sent
    /// before, so it does not count as deduplicating.
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(LaneOrder::Pipelined)
            .max_batch(MAX_BATCH)
            .max_in_flight(MAX_IN_FLIGHT)
    }

    async fn check(&self) -> Result<String, PublishError> {
        let cluster = self.cluster().await?;
        let (count, brokers) = (cluster.brokers.len(), cluster.brokers.join(", "));
        let s = if count == 1 { "" } else { "s" };
        let id = cluster.id.unwrap_or_else(|| "unknown".to_owned());
        Ok(format!("kafka, {count} broker{s}: {brokers} (cluster {id})"))
    }

    /// Waits for answers that are on their way, and for the end of the producers' threads.
    async fn close(&self) {
        if !self.0.close(CLOSE_TIMEOUT).await {
            tracing::debug!("the Kafka producers did not end within {}", Readable(CLOSE_TIMEOUT));
        }
    }
}

impl fmt::Debug for KafkaPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaPublisher")
            .field("options", &self.0.options)
            .finish_non_exhaustive()
    }
}
