//! Enqueueing beside a plain insert of the same columns.

use std::time::Instant;

use posthaste_core::{Message, OutboxOptions};
use posthaste_postgres::PostgresOutbox;
use sqlx::{Connection, PgConnection};

use crate::backlog::{self, Keys, PAYLOAD_BYTES};
use crate::database::Database;
use crate::report::{Figure, progress};
use crate::{Extent, baseline};

const UNIT: &str = "rows/s";

pub(crate) async fn run(database: &Database, extent: Extent) -> anyhow::Result<Vec<Figure>> {
    let outbox = database.store().outbox(OutboxOptions::default());
    let mut conn = database.connect().await?;
    let mut figures = Vec::new();
    for (per_call, calls) in [(1, extent.pick(1_500, 5_000)), (100, extent.pick(150, 500))] {
        let (mut plain, mut enqueued) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            for (speeds, outbox) in [(&mut plain, None), (&mut enqueued, Some(&outbox))] {
                backlog::fill(&mut conn, 0, Keys::None).await?;
                speeds.push(measure(&mut conn, outbox, per_call, calls).await?);
            }
            progress(&format!(
                "{per_call} per call: plain {plain:.0?}, enqueued {enqueued:.0?}"
            ));
        }
        let name = |what| format!("enqueue: {per_call} per transaction, {what}");
        figures.push(Figure::new(name("plain insert"), UNIT, &plain));
        figures.push(Figure::new(name("outbox"), UNIT, &enqueued).relative_to(&plain));
    }
    conn.close().await?;
    Ok(figures)
}

/// Writes `calls` transactions and returns the rows per second.
async fn measure(
    conn: &mut PgConnection,
    outbox: Option<&PostgresOutbox>,
    per_call: u32,
    calls: u32,
) -> anyhow::Result<f64> {
    // Not on the clock: a producer has its message anyway.
    let mut transactions: Vec<Vec<Message>> = (0..calls).map(|call| messages(call, per_call)).collect();
    let started = Instant::now();
    for messages in transactions.drain(..) {
        match outbox {
            None => baseline::insert(conn, &messages).await?,
            Some(outbox) => {
                let mut tx = conn.begin().await?;
                outbox.enqueue_all(&mut tx, messages).await?;
                tx.commit().await?;
            }
        }
    }
    Ok(f64::from(per_call * calls) / started.elapsed().as_secs_f64())
}

fn messages(call: u32, number: u32) -> Vec<Message> {
    let payload = "x".repeat(PAYLOAD_BYTES.unsigned_abs() as usize);
    (0..number)
        .map(|n| Message::new("bench-events", payload.clone()).key(format!("key-{}", (call + n) % 1_000)))
        .collect()
}
