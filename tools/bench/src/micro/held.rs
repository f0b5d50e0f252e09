//! Rows that cannot go yet: what a poll costs that finds only such, and how fast scheduled ones go once they may.

use std::time::{Duration, Instant};

use anyhow::ensure;
use posthaste_core::RelayStore;
use posthaste_core::lifecycle::LeaseToken;
use posthaste_core::store::{ClaimRequest, DeadHead, KeyOrdering, Scope, WorkerId};
use posthaste_relay::{Relay, RelayConfig};
use posthaste_testkit::NullPublisher;
use sqlx::{Connection, PgConnection};

use crate::extent::Extent;
use crate::micro::backlog::{self, Keys};
use crate::micro::contest::config;
use crate::micro::database::Database;
use crate::micro::report::{Figure, Target, progress};

const BLOCKED: u32 = 500_000;
const POLLS: usize = 20;

pub(crate) async fn run(database: &Database, extent: Extent) -> anyhow::Result<Vec<Figure>> {
    let mut conn = database.connect().await?;
    let mut figures = Vec::new();
    for (name, keys) in [("one key", 1), ("1,000 keys", 1_000)] {
        backlog::fill(&mut conn, BLOCKED, Keys::Even(keys)).await?;
        // The head of each key waits for its next attempt.
        let hold =
            "update posthaste.outbox set attempts = 1, next_attempt_at = now() + interval '1 hour' where seq <= $1";
        sqlx::query(hold).bind(i64::from(keys)).execute(&mut conn).await?;
        sqlx::query("vacuum (analyze) posthaste.outbox")
            .execute(&mut conn)
            .await?;
        let polls = idle_polls(database).await?;
        progress(&format!("held, {name}: {polls:.1?} ms"));
        let name = format!("idle poll: 500,000 blocked rows, {name}");
        let figure = Figure::new(name, "ms", &polls);
        figures.push(if keys == 1 {
            figure.target(Target::ValueBelow(5.0))
        } else {
            figure
        });
    }
    figures.extend(scheduled(database, &mut conn, extent.pick(20_000, 100_000)).await?);
    conn.close().await?;
    Ok(figures)
}

/// How long polls take that find nothing. The first ones also plan the statements.
async fn idle_polls(database: &Database) -> anyhow::Result<Vec<f64>> {
    let store = database.store();
    let mut times = Vec::new();
    for _ in 0..POLLS + 3 {
        let started = Instant::now();
        let claim = store.claim(&request()).await?;
        times.push(started.elapsed().as_secs_f64() * 1_000.0);
        ensure!(claim.messages.is_empty(), "{} rows were claimed", claim.messages.len());
    }
    store.pool().close().await;
    Ok(times.split_off(3))
}

fn request() -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit: RelayConfig::default().batch_size,
        max_bytes: 16 << 20,
        scan_limit: None,
        lease: Duration::from_secs(30),
        max_attempts: 10,
        ordering: KeyOrdering::PerKey {
            dead_head: DeadHead::Skip,
            except: Vec::new(),
        },
        scope: Scope::default(),
        left_out: Vec::new(),
        pipelined: false,
    }
}

/// Rows of one key whose time has come, beside as many that were due at once.
async fn scheduled(database: &Database, conn: &mut PgConnection, rows: u32) -> anyhow::Result<Vec<Figure>> {
    let (mut fresh, mut due) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        backlog::fill(conn, rows, Keys::Single).await?;
        fresh.push(drain(database, conn, rows).await?);
        backlog::fill(conn, rows, Keys::Single).await?;
        let come = "update posthaste.outbox set created_at = now() - interval '1 hour', next_attempt_at = now()";
        sqlx::query(come).execute(&mut *conn).await?;
        sqlx::query("vacuum (full, analyze) posthaste.outbox")
            .execute(&mut *conn)
            .await?;
        due.push(drain(database, conn, rows).await?);
        progress(&format!("held, one key: fresh {fresh:.0?}, scheduled {due:.0?} rows/s"));
    }
    let figure = Figure::new(format!("drain: {rows} scheduled rows of one key"), "rows/s", &due);
    Ok(vec![
        Figure::new(format!("drain: {rows} fresh rows of one key"), "rows/s", &fresh),
        figure.relative_to(&fresh).target(Target::RatioAtLeast(0.3)),
    ])
}

async fn drain(database: &Database, conn: &mut PgConnection, rows: u32) -> anyhow::Result<f64> {
    let store = database.store();
    let started = Instant::now();
    let relay = Relay::new(store.clone(), NullPublisher).config(config(true));
    relay.drain().await?;
    let speed = f64::from(rows) / started.elapsed().as_secs_f64();
    store.pool().close().await;
    let left = backlog::left(conn).await?;
    ensure!(left == 0, "{left} rows were not delivered");
    Ok(speed)
}
