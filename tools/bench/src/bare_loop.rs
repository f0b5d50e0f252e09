//! The loop from PostgreSQL to Kafka that one would write first: no lease, no order kept after a failure, no second
//! worker. It sends key and payload, and no envelope.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::ensure;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::producer::{BaseRecord, DeliveryResult, Producer, ProducerContext, ThreadedProducer};
use sqlx::PgConnection;
use tokio::sync::Notify;
use uuid::Uuid;

/// Reads a batch, hands it to the producer, waits for all acknowledgements, writes that down, and so on.
pub(crate) struct BareLoop {
    producer: ThreadedProducer<Acknowledgements>,
}

impl BareLoop {
    pub(crate) fn new(config: &ClientConfig) -> anyhow::Result<Self> {
        let producer = config.create_with_context(Acknowledgements::default())?;
        Ok(Self { producer })
    }

    /// Delivers so many rows. Returns how many there were.
    pub(crate) async fn drain(&self, conn: &mut PgConnection, rows: u32, batch: u32) -> anyhow::Result<u64> {
        let mut delivered = 0;
        while delivered < u64::from(rows) {
            let batch: Vec<Row> = sqlx::query_as(include_str!("../queries/bare_select.sql"))
                .bind(i64::from(batch))
                .fetch_all(&mut *conn)
                .await?;
            if batch.is_empty() {
                break;
            }
            self.send(&batch).await?;
            let ids: Vec<Uuid> = batch.into_iter().map(|(id, ..)| id).collect();
            let acknowledged = sqlx::query(include_str!("../queries/bare_update.sql"))
                .bind(ids)
                .execute(&mut *conn)
                .await?;
            delivered += acknowledged.rows_affected();
        }
        Ok(delivered)
    }

    async fn send(&self, batch: &[Row]) -> anyhow::Result<()> {
        let acknowledgements = self.producer.context();
        acknowledgements.waiting.store(batch.len(), Ordering::Relaxed);
        for (_, topic, key, payload) in batch {
            let record = BaseRecord::to(topic).payload(payload);
            let record = BaseRecord {
                key: key.as_ref(),
                ..record
            };
            self.producer.send(record).map_err(|(error, _)| error)?;
        }
        while acknowledgements.waiting.load(Ordering::Relaxed) > 0 {
            acknowledgements.complete.notified().await;
        }
        let failed = acknowledgements.failed.load(Ordering::Relaxed);
        ensure!(failed == 0, "{failed} messages were not acknowledged");
        Ok(())
    }
}

/// Id, topic, key, payload.
type Row = (Uuid, String, Option<String>, Vec<u8>);

#[derive(Default)]
struct Acknowledgements {
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
        if self.waiting.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.complete.notify_one();
        }
    }
}
