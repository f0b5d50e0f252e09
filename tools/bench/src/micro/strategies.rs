//! Claims that know indexes of their own for fresh and waiting rows, beside those that serve any table with leases, which
//! here has the one index that suits them best.

use std::time::Instant;

use anyhow::ensure;
use posthaste_postgres::{DEFAULT_SCHEMA, PostgresStore};
use posthaste_relay::Relay;
use posthaste_sql::TableMap;
use posthaste_testkit::NullPublisher;
use sqlx::{Connection, Executor, PgConnection};

use crate::extent::Extent;
use crate::micro::backlog::{self, Keys};
use crate::micro::contest::TURN;
use crate::micro::contest::config;
use crate::micro::database::Database;
use crate::micro::first_rows::FirstRows;
use crate::micro::report::{Figure, progress};

const REPETITIONS: usize = 3;

/// Backlogs: their name, keys, whether these are kept in order, and how many rows wait until tomorrow before the others.
const BACKLOGS: [(&str, Keys, bool, u32); 4] = [
    ("unordered", Keys::Even(1_000), false, 0),
    ("1,000 keys", Keys::Even(1_000), true, 0),
    ("one key", Keys::Single, true, 0),
    (
        "1,000 keys behind 100,000 waiting rows",
        Keys::Even(1_000),
        true,
        100_000,
    ),
];

pub(crate) async fn run(database: &Database, extent: Extent) -> anyhow::Result<Vec<Figure>> {
    let mut conn = database.connect().await?;
    let split = database.store();
    let map = TableMap::in_schema(DEFAULT_SCHEMA)?.without_split_index();
    let leased = PostgresStore::with_map(database.pool(), map)?;
    let mut figures = Vec::new();
    for (name, keys, per_key, waiting) in BACKLOGS {
        // One of the two takes minutes behind rows that wait.
        let turns = if waiting > 0 { 1 } else { extent.pick(2, 6) };
        let mut speeds = [Vec::new(), Vec::new()];
        for _ in 0..REPETITIONS {
            for ((store, indexes), speeds) in [(&split, SPLIT), (&leased, LEASED)].into_iter().zip(&mut speeds) {
                conn.execute(indexes).await?;
                backlog::fill(&mut conn, waiting + TURN * turns, keys).await?;
                postpone(&mut conn, waiting).await?;
                let speed = drain(store, per_key, turns).await?;
                progress(&format!("strategies, {name}: {speed:.0} rows/s"));
                speeds.push(speed);
            }
        }
        let [split, leased] = speeds;
        figures.push(Figure::new(format!("split claims: {name}"), "rows/s", &split));
        figures.push(Figure::new(format!("leased claims: {name}"), "rows/s", &leased).relative_to(&split));
    }
    conn.execute(SPLIT).await?;
    conn.close().await?;
    split.pool().close().await;
    leased.pool().close().await;
    Ok(figures)
}

/// The indexes of the migrations.
const SPLIT: &str = include_str!("../../queries/micro/split_indexes.sql");
/// The one that the other claims use.
const LEASED: &str = include_str!("../../queries/micro/leased_indexes.sql");

/// Lets the first rows wait, each with a key of its own so that they hold back nothing.
async fn postpone(conn: &mut PgConnection, rows: u32) -> sqlx::Result<()> {
    if rows > 0 {
        sqlx::query(
            "update posthaste.outbox
             set next_attempt_at = now() + interval '1 day', ordering_key = 'waits-' || seq where seq <= $1",
        )
        .bind(i64::from(rows))
        .execute(&mut *conn)
        .await?;
        conn.execute("vacuum (analyze) posthaste.outbox").await?;
    }
    Ok(())
}

async fn drain(store: &PostgresStore, per_key: bool, turns: u32) -> anyhow::Result<f64> {
    let rows = TURN * turns;
    let relay = Relay::new(FirstRows::new(store.clone(), rows), NullPublisher).config(config(per_key));
    let started = Instant::now();
    let delivered = relay.drain().await?.delivered;
    let elapsed = started.elapsed();
    ensure!(
        delivered == u64::from(rows),
        "{delivered} of {rows} rows were delivered"
    );
    Ok(f64::from(rows) / elapsed.as_secs_f64())
}
