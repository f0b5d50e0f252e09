//! Where hand-written loops send rows to: nowhere, or a bare producer with the settings and headers of the relay's.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::ensure;
use posthaste_kafka::Connection as Brokers;
use posthaste_publishers::kafka::KafkaOptions;
use rdkafka::client::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use tokio::sync::Notify;
use uuid::Uuid;

use super::protocol::WorkOrder;
use crate::tally::Tally;
use crate::workload::{TOPIC, WARM_UP, Workload, number_of};

/// Where rows go.
pub(super) enum Sink {
    /// They are counted.
    Null(Arc<Mutex<Tally>>),
    Kafka(ThreadedProducer<Acknowledgements>),
}

impl Sink {
    pub(super) fn new(order: &WorkOrder, tally: &Arc<Mutex<Tally>>) -> anyhow::Result<Self> {
        let Some(brokers) = &order.brokers else {
            return Ok(Self::Null(Arc::clone(tally)));
        };
        let requests = ("max.in.flight.requests.per.connection", order.requests.to_string());
        let brokers = Brokers::to(brokers).property(requests.0, requests.1);
        let config = KafkaOptions::new(brokers).client_config()?;
        Ok(Self::Kafka(config.create_with_context(Acknowledgements::default())?))
    }

    /// Hands a row over.
    pub(super) async fn send(&self, event_id: &str, key: &str, payload: &[u8]) -> anyhow::Result<()> {
        let producer = match self {
            Self::Null(tally) => {
                let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
                tally.note(number_of(payload));
                return Ok(());
            }
            Self::Kafka(producer) => producer,
        };
        let record = BaseRecord::to(TOPIC).key(key).payload(payload);
        let mut record = record.headers(headers(event_id, key));
        producer.context().waiting.fetch_add(1, Ordering::AcqRel);
        while let Err((error, refused)) = producer.send(record) {
            ensure!(
                matches!(error, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull)),
                error
            );
            record = refused;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Waits until all that was handed over is acknowledged.
    pub(super) async fn acknowledged(&self) -> anyhow::Result<()> {
        let Self::Kafka(producer) = self else { return Ok(()) };
        let acknowledgements = producer.context();
        while acknowledgements.waiting.load(Ordering::Acquire) > 0 {
            acknowledgements.complete.notified().await;
        }
        let failed = acknowledgements.failed.load(Ordering::Relaxed);
        ensure!(failed == 0, "{failed} messages were not acknowledged");
        Ok(())
    }

    /// Sends rows that do not count to every partition.
    pub(super) async fn warm_up(&self) -> anyhow::Result<()> {
        let payload = Workload::of(1).payload(WARM_UP);
        for n in 0..1_000 {
            let key = format!("key-{n}");
            self.send(&Uuid::nil().to_string(), &key, payload.as_bytes()).await?;
        }
        self.acknowledged().await
    }
}

/// The headers of an event as the relay sends it, in the same order.
fn headers(event_id: &str, key: &str) -> OwnedHeaders {
    [
        ("ce_specversion", "1.0"),
        ("ce_id", event_id),
        ("ce_source", "order-service"),
        ("ce_type", "shop.order.created.v1"),
        ("ce_time", "2026-01-01T00:00:00.000000Z"),
        ("content-type", "application/json"),
        ("ce_subject", key),
        ("ce_partitionkey", key),
        ("ce_aggregatetype", "Order"),
        ("ce_aggregateid", key),
    ]
    .into_iter()
    .fold(OwnedHeaders::new_with_capacity(10), |headers, (name, value)| {
        headers.insert(Header {
            key: name,
            value: Some(value),
        })
    })
}

#[derive(Default)]
pub(super) struct Acknowledgements {
    waiting: AtomicUsize,
    failed: AtomicUsize,
    complete: Notify,
}

impl ClientContext for Acknowledgements {}

impl ProducerContext for Acknowledgements {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if result.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        if self.waiting.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.complete.notify_one();
        }
    }
}
