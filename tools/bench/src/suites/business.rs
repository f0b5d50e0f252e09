//! What an enqueue adds to a business transaction of three statements, and what any fourth statement adds.

use std::time::Instant;

use hdrhistogram::Histogram;
use posthaste_core::Message;
use sqlx::{Connection, PgConnection};

use crate::bench::Bench;
use crate::layout::{self, Layout};
use crate::plain_insert;
use crate::producer::{AnyOutbox, message};
use crate::results::{Results, progress};
use crate::series::real;
use crate::workload::Workload;

pub(crate) const SUITE: &str = "business";
pub(crate) const P50: &str = "p50 ms";

/// What a transaction ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fourth {
    Nothing,
    /// A statement that does nothing: what the way to the server and back takes.
    RoundTrip,
    /// The row that an enqueue writes, into a table of the same columns and indexes.
    PlainInsert,
    Enqueue,
}

impl Fourth {
    const ALL: [Self; 4] = [Self::Nothing, Self::RoundTrip, Self::PlainInsert, Self::Enqueue];
}

pub(crate) fn subject(arm: &str, fourth: Fourth) -> String {
    let ending = match fourth {
        Fourth::Nothing => "without an enqueue",
        Fourth::RoundTrip => "with an empty statement",
        Fourth::PlainInsert => "with a plain insert",
        Fourth::Enqueue => "with an enqueue",
    };
    format!("{arm}, transaction {ending}")
}

pub(crate) async fn run(bench: &Bench, results: &mut Results) {
    for (name, layout) in [("log", layout::log()), ("queue", Layout::Queue)] {
        if let Err(error) = measure(bench, name, layout, results).await {
            results.void(&error.context(format!("business, {name}")));
        }
    }
}

async fn measure(bench: &Bench, name: &str, layout: Layout, results: &mut Results) -> anyhow::Result<()> {
    let database = bench.server.database(layout).await?;
    let outbox = AnyOutbox::new(layout, &database.pool())?;
    let mut conn = database.connect().await?;
    sqlx::raw_sql(include_str!("../../queries/ddl/shop.sql"))
        .execute(&mut conn)
        .await?;
    plain_insert::create_table(&mut conn, layout).await?;
    let transactions = bench.extent.pick(500, 3_000);
    let workload = Workload::of(transactions);
    for round in 0..bench.extent.rounds {
        let mut times = Vec::new();
        for _ in Fourth::ALL {
            times.push(Histogram::<u64>::new(3)?);
        }
        for n in 1..=transactions {
            // In turns, so that all meet the same machine.
            for (fourth, times) in Fourth::ALL.into_iter().zip(&mut times) {
                let message = message(&workload, n);
                let started = Instant::now();
                buy(&mut conn, (layout, &outbox), fourth, (n, message)).await?;
                times.record(u64::try_from(started.elapsed().as_micros())?)?;
            }
        }
        for (times, fourth) in times.iter().zip(Fourth::ALL) {
            let p50 = real(times.value_at_quantile(0.5)) / 1_000.0;
            progress(&format!("business, {}: p50 {p50:.3} ms", subject(name, fourth)));
            results.add((SUITE, &subject(name, fourth), P50), round, p50);
        }
    }
    conn.close().await?;
    bench.server.remove(database).await
}

async fn buy(
    conn: &mut PgConnection,
    (layout, outbox): (Layout, &AnyOutbox),
    fourth: Fourth,
    (n, message): (u32, Message),
) -> anyhow::Result<()> {
    let mut tx = conn.begin().await?;
    let order: i64 = sqlx::query_scalar("insert into orders (customer, total) values ($1, 4200) returning id")
        .bind(i64::from(n % 100))
        .fetch_one(&mut *tx)
        .await?;
    sqlx::query("update stock set quantity = quantity - 1 where item = $1")
        .bind(i64::from(n % 1_000))
        .execute(&mut *tx)
        .await?;
    sqlx::query("insert into payments (order_id, amount) values ($1, 4200)")
        .bind(order)
        .execute(&mut *tx)
        .await?;
    match fourth {
        Fourth::Nothing => tx.commit().await?,
        Fourth::RoundTrip => {
            sqlx::query("select 1").execute(&mut *tx).await?;
            tx.commit().await?;
        }
        Fourth::PlainInsert => {
            plain_insert::insert(&mut tx, layout, &[message]).await?;
            tx.commit().await?;
        }
        Fourth::Enqueue => {
            outbox.enqueue(&mut tx, vec![message]).await?;
            outbox.commit(tx).await?;
        }
    }
    Ok(())
}
