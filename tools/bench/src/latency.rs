//! From commit to delivery, at a load that leaves relay and server idle most of the time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::bail;
use posthaste_core::publisher::Delivery;
use posthaste_core::{Message, MessageId, OutboxOptions};
use posthaste_postgres::PostgresOutbox;
use posthaste_publishers::Callback;
use posthaste_relay::Relay;
use sqlx::PgPool;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use crate::Extent;
use crate::backlog::{self, Keys};
use crate::database::Database;
use crate::report::{Figure, percentile, progress};

const UNIT: &str = "ms";
/// 200 messages in a second.
const PERIOD: Duration = Duration::from_millis(5);
/// How long the last messages may take.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);

type Times = HashMap<MessageId, Instant>;

pub(crate) async fn run(database: &Database, extent: Extent) -> anyhow::Result<Vec<Figure>> {
    let seconds = extent.pick(5, 15);
    let mut figures = Vec::new();
    for (wake_up, notifies) in [("notifier", true), ("polling alone", false)] {
        let (mut median, mut tail) = (Vec::new(), Vec::new());
        for _ in 0..extent.pick(1, 3) {
            let waits = measure(database, seconds * 200, notifies).await?;
            median.push(percentile(&waits, 50));
            tail.push(percentile(&waits, 99));
        }
        progress(&format!("latency, {wake_up}: p50 {median:.1?}, p99 {tail:.1?} ms"));
        figures.push(Figure::new(format!("latency: {wake_up}, p50"), UNIT, &median));
        figures.push(Figure::new(format!("latency: {wake_up}, p99"), UNIT, &tail));
    }
    Ok(figures)
}

/// Milliseconds from the end of each commit to the call of the publisher.
async fn measure(database: &Database, messages: u32, notifies: bool) -> anyhow::Result<Vec<f64>> {
    backlog::fill(&mut database.connect().await?, 0, Keys::None).await?;
    let delivered = Arc::new(Mutex::new(Times::new()));
    let publisher = {
        let delivered = Arc::clone(&delivered);
        Callback::new(move |delivery: Delivery| {
            note(&delivered, delivery.message.id);
            async { Ok(()) }
        })
    };
    let shutdown = CancellationToken::new();
    let relay = Relay::new(database.store(), publisher).run_until(shutdown.clone());
    let relay = tokio::spawn(relay);
    // The relay listens on a connection that it opens when it starts.
    sleep(Duration::from_secs(1)).await;

    let store = database.store();
    let outbox = store.outbox(OutboxOptions::default());
    let outbox = if notifies {
        outbox.with_notifier(store.notifier())
    } else {
        outbox
    };
    let committed = produce(&outbox, store.pool(), messages).await?;
    let all_sent = Instant::now();
    while count(&delivered) < committed.len() {
        if all_sent.elapsed() > DELIVERY_TIMEOUT {
            bail!("{} of {} messages were delivered", count(&delivered), committed.len());
        }
        sleep(Duration::from_millis(20)).await;
    }
    shutdown.cancel();
    relay.await??;
    let delivered = delivered.lock().unwrap_or_else(PoisonError::into_inner);
    // A delivery that overtook the answer to the commit took no time at all.
    let wait = |(id, committed): (&MessageId, &Instant)| {
        let delivered = delivered.get(id)?;
        Some(delivered.saturating_duration_since(*committed).as_secs_f64() * 1_000.0)
    };
    Ok(committed.iter().filter_map(wait).collect())
}

/// Commits one message per period; returns when each commit was answered.
async fn produce(outbox: &PostgresOutbox, pool: &PgPool, messages: u32) -> anyhow::Result<Times> {
    let mut committed = Times::new();
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for n in 0..messages {
        ticks.tick().await;
        let message = Message::new("bench-events", "{}").key(format!("key-{}", n % 100));
        let id = message.id;
        let mut tx = pool.begin().await?;
        outbox.enqueue(&mut tx, message).await?;
        outbox.commit(tx).await?;
        committed.insert(id, Instant::now());
    }
    Ok(committed)
}

fn note(delivered: &Mutex<Times>, id: MessageId) {
    let mut times = delivered.lock().unwrap_or_else(PoisonError::into_inner);
    times.entry(id).or_insert_with(Instant::now);
}

fn count(delivered: &Mutex<Times>) -> usize {
    delivered.lock().unwrap_or_else(PoisonError::into_inner).len()
}
