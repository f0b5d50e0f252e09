//! What librdkafka tells its clients.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use posthaste_kafka::error::{Cause, explain, explain_error};
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::statistics::Statistics;
use rdkafka::topic_partition_list::TopicPartitionList;

use crate::assignments::Assignments;
use crate::first_position;
use crate::instrument;
use crate::outage::Outage;

/// For clients whose calls tell what goes wrong. Their background chatter is of interest to few.
#[derive(Clone, Debug)]
pub(crate) struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(target: "librdkafka", ?level, facility, "{message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(target: "librdkafka", %error, "{reason}");
    }
}

/// The consumer's ear: rebalances and errors. All of it is called by the polling thread, from within a poll.
pub(crate) struct Context {
    pub(crate) assignments: Assignments,
    pub(crate) kafka: Outage,
    begins_at_the_end: bool,
    fatal: Mutex<Option<String>>,
    rejoin: Mutex<Option<Duration>>,
}

impl Context {
    /// `begins_at_the_end` says where a group without an offset begins.
    pub(crate) fn new(assignments: Assignments, begins_at_the_end: bool) -> Self {
        Self {
            assignments,
            begins_at_the_end,
            kafka: Outage::new("reading from Kafka"),
            fatal: Mutex::new(None),
            rejoin: Mutex::new(None),
        }
    }

    /// How long to wait before the group is joined again, if an assignment could not be taken up. Once.
    pub(crate) fn take_rejoin(&self) -> Option<Duration> {
        self.rejoin.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The group's offsets for partitions, with those that it begins at committed. Fails if it is not known where the
    /// group begins; who goes on all the same handles everything anew.
    fn first_position(
        &self,
        consumer: &BaseConsumer<Self>,
        partitions: &TopicPartitionList,
    ) -> Result<Option<TopicPartitionList>, KafkaError> {
        match first_position::committed(consumer, partitions) {
            Ok(known) if self.begins_at_the_end => {
                first_position::commit(consumer, &known)?;
                Ok(Some(known))
            }
            Err(error) if self.begins_at_the_end => Err(error),
            // The client asks for itself.
            known => Ok(known.ok()),
        }
    }

    /// Why the consumer cannot go on, if it cannot.
    pub(crate) fn fatal(&self) -> Option<String> {
        self.fatal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn end(&self, why: String) {
        *self.fatal.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        Quiet.log(level, facility, message);
    }

    fn stats(&self, statistics: Statistics) {
        for (topic, known) in &statistics.topics {
            for (partition, known) in &known.partitions {
                if known.consumer_lag >= 0 && self.assignments.holds(topic, *partition) {
                    instrument::lag(topic, *partition, known.consumer_lag);
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
                self.kafka.failed(format!("{} ({reason})", explanation.text));
            }
            (_, Cause::Away | Cause::Unavailable) => tracing::debug!(%error, "{reason}"),
            _ => tracing::warn!(error = explanation.text, "{reason}"),
        }
    }
}

impl ConsumerContext for Context {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(partitions) => {
                let known = match self.first_position(consumer, partitions) {
                    Ok(known) => known,
                    Err(error) => {
                        let text = explain_error(&error, None).text;
                        let wait = self
                            .kafka
                            .failed(format!("the group's first position is not settled: {text}"));
                        *self.rejoin.lock().unwrap_or_else(PoisonError::into_inner) = Some(wait);
                        return;
                    }
                };
                self.kafka.over();
                self.assignments.assign(partitions);
                if let Some(known) = known {
                    self.assignments.report_loss(known);
                }
            }
            Rebalance::Revoke(partitions) => self.assignments.revoke(consumer, partitions),
            Rebalance::Error(error) => tracing::warn!(%error, "a rebalance failed; the client joins the group again"),
        }
    }
}
