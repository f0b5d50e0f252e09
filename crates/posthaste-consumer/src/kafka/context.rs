//! What librdkafka tells its clients.

use std::sync::{Mutex, PoisonError};

use posthaste_kafka::error::{Cause, explain};
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::statistics::Statistics;
use rdkafka::topic_partition_list::TopicPartitionList;

use crate::guard::RetryLogger;
use crate::source::{Lane, SourceError};

/// For clients whose calls tell what goes wrong. Their background messages are logged at DEBUG.
#[derive(Clone, Debug)]
pub(super) struct LoggingContext;

impl ClientContext for LoggingContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(target: "librdkafka", level = level as i32, facility, "{message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "librdkafka", %error, "{reason}");
    }
}

/// The consumer's client.
pub(super) type Client = BaseConsumer<Context>;

/// Who is told about rebalances, by the polling thread, from within a poll.
pub(super) trait ClientListener: Send + Sync {
    /// Partitions are about to be assigned.
    fn before_assign(&self, client: &Client, partitions: &TopicPartitionList);

    /// They are assigned, and nothing was read of them yet.
    fn after_assign(&self, client: &Client, partitions: &TopicPartitionList);

    /// Partitions are about to be revoked.
    fn before_revoke(&self, client: &Client, partitions: &TopicPartitionList);

    /// So many records of a partition are not read yet.
    fn lag(&self, lane: &Lane, records: i64);
}

/// The client's callbacks: rebalances and errors. All of it is called by the polling thread, from within a poll.
pub(super) struct Context {
    listener: Box<dyn ClientListener>,
    outage: RetryLogger,
    fatal: Mutex<Option<SourceError>>,
}

impl Context {
    pub(super) fn new(listener: Box<dyn ClientListener>) -> Self {
        Self {
            listener,
            outage: RetryLogger::new("reading from Kafka"),
            fatal: Mutex::new(None),
        }
    }

    /// Why the consumer cannot go on, if it cannot.
    pub(super) fn check(&self) -> Result<(), SourceError> {
        let fatal = self.fatal.lock().unwrap_or_else(PoisonError::into_inner).clone();
        fatal.map_or(Ok(()), Err)
    }

    /// Takes note of a record that was read.
    pub(super) fn reads(&self) {
        self.outage.recovered();
    }

    fn end(&self, why: String) {
        *self.fatal.lock().unwrap_or_else(PoisonError::into_inner) = Some(SourceError(why));
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        LoggingContext.log(level, facility, message);
    }

    fn stats(&self, statistics: Statistics) {
        for (topic, known) in &statistics.topics {
            for (partition, known) in &known.partitions {
                if known.consumer_lag >= 0 {
                    self.listener.lag(&Lane::new(topic, *partition), known.consumer_lag);
                }
            }
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code().unwrap_or(Code::Unknown);
        let explanation = explain(code, None);
        match (code, explanation.cause) {
            (Code::PartitionEOF, _) => {}
            (Code::AutoOffsetReset, _) => self.end(format!(
                "the group has no offset for a partition, and auto_offset_reset = error ({reason}); set the group's offsets \
                 with kafka-consumer-groups.sh, or choose latest or earliest"
            )),
            (Code::Fatal, _) => self.end(format!("the client cannot go on: {reason}; start the consumer again")),
            // One broker of several, or a moment of an election: the client finds its way by itself.
            (Code::BrokerTransportFailure, _) => tracing::debug!(%error, "{reason}"),
            (Code::AllBrokersDown | Code::Resolve, _) | (_, Cause::Authentication) => {
                self.outage.failed(format!("{} ({reason})", explanation.text));
            }
            (_, Cause::BrokerUnavailable | Cause::PartitionUnavailable) => tracing::debug!(%error, "{reason}"),
            _ => tracing::warn!(error = explanation.text, "{reason}"),
        }
    }
}

impl ConsumerContext for Context {
    fn pre_rebalance(&self, client: &Client, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(partitions) => {
                self.listener.before_assign(client, partitions);
                self.outage.recovered();
            }
            Rebalance::Revoke(partitions) => self.listener.before_revoke(client, partitions),
            Rebalance::Error(error) => tracing::warn!(%error, "a rebalance failed; the client joins the group again"),
        }
    }

    fn post_rebalance(&self, client: &Client, rebalance: &Rebalance<'_>) {
        if let Rebalance::Assign(partitions) = rebalance {
            self.listener.after_assign(client, partitions);
        }
    }
}
