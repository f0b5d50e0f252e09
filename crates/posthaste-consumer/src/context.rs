//! What librdkafka tells its clients.

use std::sync::{Mutex, PoisonError};

use posthaste_kafka::error::{Cause, explain};
use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::statistics::Statistics;

use crate::assignments::Assignments;
use crate::first_position;
use crate::initial_partitions::InitialPartitions;
use crate::instrument;
use crate::outage::Outage;
use crate::unsettled::Unsettled;

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
    /// Nothing if the client finds out by itself where a group without an offset begins.
    pub(crate) unsettled: Option<Unsettled>,
    pub(crate) initial_partitions: InitialPartitions,
    fatal: Mutex<Option<String>>,
}

impl Context {
    /// `begins_at_the_end` says where a group without an offset begins.
    pub(crate) fn new(assignments: Assignments, begins_at_the_end: bool) -> Self {
        Self {
            assignments,
            unsettled: begins_at_the_end.then(Unsettled::new),
            initial_partitions: InitialPartitions::default(),
            kafka: Outage::new("reading from Kafka"),
            fatal: Mutex::new(None),
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
                let known = if let Some(unsettled) = &self.unsettled {
                    let settled = unsettled.take_up(consumer, partitions);
                    self.assignments.assign(&settled);
                    Some(settled)
                } else {
                    let known = first_position::committed(consumer, partitions);
                    self.assignments.assign(partitions);
                    known.ok()
                };
                self.kafka.over();
                if let Some(known) = known {
                    self.assignments.report_loss(known);
                }
            }
            Rebalance::Revoke(partitions) => {
                if let Some(unsettled) = &self.unsettled {
                    unsettled.revoke(consumer, partitions);
                }
                self.assignments.revoke(consumer, partitions);
            }
            Rebalance::Error(error) => tracing::warn!(%error, "a rebalance failed; the client joins the group again"),
        }
    }
    fn post_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if let (Some(unsettled), Rebalance::Assign(partitions)) = (&self.unsettled, rebalance) {
            unsettled.pause(consumer, partitions);
        }
    }
}
