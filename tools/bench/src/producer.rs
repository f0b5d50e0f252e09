//! Applications that commit messages, one in each transaction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use posthaste_core::{Message, OutboxOptions};
use posthaste_postgres::{PostgresLogOutbox, PostgresLogStore, PostgresOutbox, PostgresStore};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgConnection, PgPool};
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::clock::now_micros;
use crate::layout::Layout;
use crate::server::Database;
use crate::workload::{TOPIC, Workload};

/// Connections of the applications.
const PRODUCERS: u32 = 8;

/// Rows and when their commits were answered, in microseconds of the system's clock.
pub(crate) type Commits = Vec<(u32, u64)>;

/// An outbox of either kind.
#[derive(Clone)]
pub(crate) enum AnyOutbox {
    Queue(PostgresOutbox),
    Log(PostgresLogOutbox),
}

impl AnyOutbox {
    pub(crate) fn new(layout: Layout, pool: &PgPool) -> anyhow::Result<Self> {
        let options = OutboxOptions::default();
        if !layout.is_log() {
            let store = PostgresStore::new(pool.clone());
            let notifier = store.notifier();
            return Ok(Self::Queue(store.outbox(options).with_notifier(notifier)));
        }
        let map = layout.map()?.context("a log has a map")?;
        let store = PostgresLogStore::new(pool.clone(), map)?;
        let outbox = store.outbox(options);
        // Relays are woken as they are for the queue; an existing log has nobody who would listen.
        Ok(Self::Log(match store.notifier() {
            Some(notifier) => outbox.with_notifier(notifier),
            None => outbox,
        }))
    }

    pub(crate) async fn enqueue(&self, conn: &mut PgConnection, messages: Vec<Message>) -> anyhow::Result<()> {
        match self {
            Self::Queue(outbox) => outbox.enqueue_all(conn, messages).await.map(drop)?,
            Self::Log(outbox) => outbox.enqueue_all(conn, messages).await.map(drop)?,
        }
        Ok(())
    }

    pub(crate) async fn commit(&self, tx: sqlx::Transaction<'_, sqlx::Postgres>) -> anyhow::Result<()> {
        match self {
            Self::Queue(outbox) => outbox.commit(tx).await?,
            Self::Log(outbox) => outbox.commit(tx).await?,
        }
        Ok(())
    }
}

/// Row `n` as a message.
pub(crate) fn message(workload: &Workload, n: u32) -> Message {
    let key = workload.key(n);
    Message::new(TOPIC, workload.payload(n))
        .event_type("shop.order.created.v1")
        .source("order-service")
        .aggregate("Order", key.clone())
        .key(key)
}

/// Some applications, whose rows are numbered in turn.
#[derive(Clone)]
pub(crate) struct Producers {
    outbox: AnyOutbox,
    pool: PgPool,
    workload: Workload,
    next: Arc<AtomicU32>,
    /// Rows of a key are in order only if their transactions are: each of these is held until the commit.
    keys: Arc<[Mutex<()>]>,
}

impl Producers {
    /// They write rows of the workload, from the first.
    pub(crate) async fn new(layout: Layout, database: &Database, workload: Workload) -> anyhow::Result<Self> {
        let pool = PgPoolOptions::new()
            .max_connections(PRODUCERS + 4)
            .min_connections(PRODUCERS)
            .connect(&database.url)
            .await?;
        Ok(Self {
            outbox: AnyOutbox::new(layout, &pool)?,
            pool,
            workload,
            next: Arc::new(AtomicU32::new(1)),
            keys: (0..workload.keys).map(|_| Mutex::default()).collect(),
        })
    }

    /// Rows that were written so far.
    pub(crate) fn written(&self) -> u32 {
        self.next.load(Ordering::Relaxed) - 1
    }

    /// Commits as fast as all of them can for a while; returns how many rows a second that was.
    pub(crate) async fn as_fast_as_possible(&self, time: Duration) -> anyhow::Result<f64> {
        let (before, started) = (self.written(), Instant::now());
        let tasks = (0..PRODUCERS).map(|_| {
            let producer = self.clone();
            tokio::spawn(async move {
                while started.elapsed() < time {
                    producer.commit_next().await?;
                }
                anyhow::Ok(())
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await??;
        }
        Ok(f64::from(self.written() - before) / started.elapsed().as_secs_f64())
    }

    /// Commits at a fixed rate, whatever becomes of the rows: each has a time at which its transaction begins.
    pub(crate) async fn at_rate(&self, per_second: f64, time: Duration) -> anyhow::Result<Commits> {
        let started = Instant::now();
        let tasks = (0..PRODUCERS).map(|place| {
            let producer = self.clone();
            tokio::spawn(async move {
                let mut commits = Commits::new();
                for turn in 0u32.. {
                    let at = Duration::from_secs_f64(f64::from(turn * PRODUCERS + place) / per_second);
                    if at >= time {
                        break;
                    }
                    sleep(at.saturating_sub(started.elapsed())).await;
                    commits.push(producer.commit_next().await?);
                }
                anyhow::Ok(commits)
            })
        });
        let mut commits = Commits::new();
        for task in tasks.collect::<Vec<_>>() {
            commits.extend(task.await??);
        }
        Ok(commits)
    }

    /// Begins a transaction with one row in it, and leaves it open.
    pub(crate) async fn begin_one(&self) -> anyhow::Result<sqlx::Transaction<'static, sqlx::Postgres>> {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        self.begin(n).await
    }

    pub(crate) async fn commit(&self, tx: sqlx::Transaction<'static, sqlx::Postgres>) -> anyhow::Result<()> {
        self.outbox.commit(tx).await
    }

    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }

    async fn commit_next(&self) -> anyhow::Result<(u32, u64)> {
        let n = self.next.fetch_add(1, Ordering::Relaxed);
        // Whoever waits for a key is let in by turns, and nothing is waited for between the number and this.
        let _key = self.keys[(n % self.workload.keys) as usize].lock().await;
        let tx = self.begin(n).await?;
        self.outbox.commit(tx).await?;
        Ok((n, now_micros()))
    }

    async fn begin(&self, n: u32) -> anyhow::Result<sqlx::Transaction<'static, sqlx::Postgres>> {
        let mut tx = self.pool.begin().await?;
        self.outbox.enqueue(&mut tx, vec![message(&self.workload, n)]).await?;
        Ok(tx)
    }
}
