//! An order service like many: a row and its event in one transaction.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use chrono::Utc;
use futures::future::try_join_all;
use posthaste_core::{EnqueueError, Message, MessageId, OutboxOptions};
use posthaste_sqlite::{SqliteOutbox, SqliteStore, store_error};
use serde::{Deserialize, Serialize};
use sqlx::{Executor, Row, SqlitePool};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};
use uuid::Uuid;

use super::oracle::Committed;

pub(super) const TOPIC: &str = "orders";

const PRODUCERS: u32 = 8;

/// Each customer belongs to one producer, so that "the next order of this customer" is well defined.
const CUSTOMERS_EACH: usize = 8;

/// Orders per second and producer; together they leave SQLite's one writer time for the relay.
const RATE_EACH: u32 = 60;

/// One order in so many is rolled back.
const ROLLED_BACK: u32 = 10;

const TABLE: &str = "create table orders (
    event_id blob primary key, customer text not null, number integer not null
) strict";

/// The event's payload.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct OrderPlaced {
    pub(super) customer: String,
    /// Counts the customer's orders, those that are rolled back included.
    pub(super) number: u32,
}

pub(super) struct OrderService {
    pool: SqlitePool,
    outbox: SqliteOutbox,
    committed: AtomicU64,
    rolled_back: AtomicU64,
    commit_times: Mutex<HashMap<MessageId, i64>>,
}

impl OrderService {
    pub(super) async fn open(store: &SqliteStore) -> anyhow::Result<Self> {
        store.pool().execute(TABLE).await?;
        Ok(Self {
            pool: store.pool().clone(),
            outbox: store.outbox(OutboxOptions::new().source("order-service")),
            committed: AtomicU64::new(0),
            rolled_back: AtomicU64::new(0),
            commit_times: Mutex::default(),
        })
    }

    /// About how many orders will be committed.
    pub(super) fn expected(length: Duration) -> u64 {
        length.as_secs() * u64::from(PRODUCERS * RATE_EACH * (ROLLED_BACK - 1) / ROLLED_BACK)
    }

    pub(super) fn committed(&self) -> u64 {
        self.committed.load(Ordering::Relaxed)
    }

    pub(super) fn rolled_back(&self) -> u64 {
        self.rolled_back.load(Ordering::Relaxed)
    }

    pub(super) async fn place_for(&self, length: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + length;
        try_join_all((0..PRODUCERS).map(|producer| self.produce(producer, end))).await?;
        Ok(())
    }

    async fn produce(&self, producer: u32, end: Instant) -> anyhow::Result<()> {
        let mut numbers = [0; CUSTOMERS_EACH];
        let mut pace = interval(Duration::from_secs(1) / RATE_EACH);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while timeout_at(end, pace.tick()).await.is_ok() {
            let customer = rand::random_range(0..CUSTOMERS_EACH);
            numbers[customer] += 1;
            let order = OrderPlaced {
                customer: format!("{producer}-{customer}"),
                number: numbers[customer],
            };
            match self.place(&order).await {
                // SQLite's one writer was taken for too long. An application would retry; here there is always another
                // order.
                Err(EnqueueError::Store(error)) if error.kind.is_transient() => {}
                placed => placed?,
            }
        }
        Ok(())
    }

    async fn place(&self, order: &OrderPlaced) -> Result<(), EnqueueError> {
        let event = Message::json(TOPIC, order)?
            .key(&order.customer)
            .event_type("demo.orders.placed.v1");
        let id = event.id;
        let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await.map_err(store_error)?;
        sqlx::query("insert into orders (event_id, customer, number) values (?1, ?2, ?3)")
            .bind(id.uuid())
            .bind(&order.customer)
            .bind(order.number)
            .execute(&mut *tx)
            .await
            .map_err(store_error)?;
        self.outbox.enqueue(&mut tx, event).await?;
        if rand::random_ratio(1, ROLLED_BACK) {
            tx.rollback().await.map_err(store_error)?;
            self.rolled_back.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        tx.commit().await.map_err(store_error)?;
        self.committed.fetch_add(1, Ordering::Relaxed);
        let mut times = self.commit_times.lock().unwrap_or_else(PoisonError::into_inner);
        times.insert(id, Utc::now().timestamp_micros());
        Ok(())
    }

    /// What was committed, by the business table itself.
    pub(super) async fn ledger(&self) -> anyhow::Result<Vec<Committed>> {
        let rows = sqlx::query("select event_id, customer, number from orders")
            .fetch_all(&self.pool)
            .await?;
        let times = self.commit_times.lock().unwrap_or_else(PoisonError::into_inner);
        rows.iter()
            .map(|row| {
                let id = MessageId::from(row.try_get::<Uuid, _>("event_id")?);
                Ok(Committed {
                    id,
                    customer: row.try_get("customer")?,
                    number: row.try_get("number")?,
                    at_micros: times.get(&id).copied(),
                })
            })
            .collect()
    }
}
