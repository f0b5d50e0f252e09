//! Enqueueing beside a plain insert of the same columns into a table with the same indexes.

use std::time::Instant;

use posthaste_core::Message;
use sqlx::{Connection, PgConnection};

use crate::bench::Bench;
use crate::layout::{self, Layout};
use crate::plain_insert;
use crate::producer::{AnyOutbox, message};
use crate::results::{Results, progress};
use crate::workload::Workload;

pub(crate) const SUITE: &str = "enqueue";
pub(crate) const SPEED: &str = "messages/s";
/// Messages of one transaction.
pub(crate) const SIZES: [u32; 3] = [1, 100, 5_000];

/// The log with as many shards as four relays share.
pub(crate) const SHARDED: &str = "log with four shards";
/// Enough for messages of one transaction to go to each of them.
pub(crate) const SHARDED_SIZE: u32 = 100;

pub(crate) fn subject(arm: &str, size: u32, is_plain: bool) -> String {
    format!(
        "{arm}, {size} at a time, {}",
        if is_plain { "plain insert" } else { "enqueue" }
    )
}

pub(crate) async fn run(bench: &Bench, results: &mut Results) {
    let mut cases = vec![
        ("log", layout::log(), 1, &SIZES[..]),
        ("queue", Layout::Queue, 1, &SIZES[..]),
    ];
    // An existing log is not divided.
    if layout::native_log().is_some() {
        cases.push((SHARDED, Layout::NativeLog, 4, &[SHARDED_SIZE]));
    }
    for (name, layout, shards, sizes) in cases {
        if let Err(error) = measure(bench, name, (layout, shards), sizes, results).await {
            results.void(&error.context(format!("enqueue, {name}")));
        }
    }
}

async fn measure(
    bench: &Bench,
    name: &str,
    (layout, shards): (Layout, u32),
    sizes: &[u32],
    results: &mut Results,
) -> anyhow::Result<()> {
    let database = bench.server.database(layout).await?;
    if shards > 1 {
        database.raise_shards(shards).await?;
    }
    let outbox = AnyOutbox::new(layout, &database.pool())?;
    let mut conn = database.connect().await?;
    plain_insert::create_table(&mut conn, layout).await?;
    for round in 0..bench.extent.rounds {
        for &size in sizes {
            let calls = match size {
                1 => bench.extent.pick(1_000, 5_000),
                100 => bench.extent.pick(100, 500),
                _ => bench.extent.pick(9, 25),
            };
            let speeds = speeds(&mut conn, layout, &outbox, (size, calls)).await?;
            for (is_plain, speed) in [true, false].into_iter().zip(speeds) {
                let subject = subject(name, size, is_plain);
                progress(&format!("enqueue, {subject}: {speed:.0} messages/s"));
                results.add((SUITE, &subject, SPEED), round, speed);
            }
        }
    }
    conn.close().await?;
    bench.server.remove(database).await
}

/// Messages per second of the plain insert and of the enqueue, by the median of their transactions. In turns, so that both meet
/// the same machine.
async fn speeds(
    conn: &mut PgConnection,
    layout: Layout,
    outbox: &AnyOutbox,
    (size, calls): (u32, u32),
) -> anyhow::Result<[f64; 2]> {
    let workload = Workload::of(size * calls);
    let mut times = [Vec::new(), Vec::new()];
    for call in 0..calls {
        for (outbox, times) in [None, Some(outbox)].into_iter().zip(&mut times) {
            // Not on the clock: a producer has its messages anyway.
            let messages: Vec<Message> = (0..size).map(|n| message(&workload, call * size + n)).collect();
            let started = Instant::now();
            let mut tx = conn.begin().await?;
            match outbox {
                None => plain_insert::insert(&mut tx, layout, &messages).await?,
                Some(outbox) => outbox.enqueue(&mut tx, messages).await?,
            }
            tx.commit().await?;
            times.push(started.elapsed());
        }
    }
    Ok(times.map(|mut times| {
        times.sort_unstable();
        f64::from(size) / times[times.len() / 2].as_secs_f64()
    }))
}
