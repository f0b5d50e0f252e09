//! Reading and settling a log, without an engine, beside a bare SELECT of the same columns.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use posthaste_core::RelayStore;
use posthaste_core::lifecycle::{LeaseToken, Settlement};
use posthaste_core::store::{ClaimRequest, DeadHead, KeyOrdering, Scope, WorkerId};
use posthaste_postgres::PostgresLogStore;
use posthaste_sql::table::BuiltinMap;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection, Executor, PgConnection, PgPool, Row};

use super::database::Database;
use super::report::{Figure, Target, progress};
use crate::extent::Extent;

const REPETITIONS: usize = 3;
const SCHEMA: &str = "log_read";
const BATCH: u32 = 1_000;

/// The columns that a reader needs, by the cursor.
const BARE: &str = "select id, event_id::text, aggregate_id::text, null::text, event_type::text, source::text,
        aggregate_type::text, aggregate_id::text, null::text, null::text, convert_to(payload::text, 'UTF8'), null::text,
        created_at
    from outbox where id > $1 order by id limit $2";

pub(crate) async fn run(database: &Database, extent: Extent) -> anyhow::Result<Vec<Figure>> {
    let rows = extent.pick(50_000, 200_000);
    let pool = fill(database.options(), rows).await?;
    let mut conn = pool.acquire().await?.detach();
    let [mut bare, mut store, mut small] = [const { Vec::new() }; 3];
    let [mut bare_cpu, mut store_cpu] = [const { Vec::new() }; 2];
    for _ in 0..REPETITIONS {
        let read = measure(rows, read_bare(&mut conn, rows)).await?;
        bare.push(read.speed);
        bare_cpu.push(read.cpu_us);
        let read = measure(rows, read_by_store(&pool, rows, BATCH)).await?;
        store.push(read.speed);
        store_cpu.push(read.cpu_us);
        small.push(measure(rows, read_by_store(&pool, rows, 100)).await?.speed);
        progress(&format!("log_read: {bare:.0?}, {store:.0?}, {small:.0?} rows/s"));
    }
    conn.close().await?;
    pool.close().await;
    let unit = "rows/s";
    Ok(vec![
        Figure::new("log read: bare SELECT", unit, &bare),
        Figure::new("log read: claim and settle", unit, &store)
            .relative_to(&bare)
            .target(Target::RatioAtLeast(0.6)),
        Figure::new("log read: the same by hundreds", unit, &small).relative_to(&bare),
        Figure::new("log read: CPU of bare SELECT", "µs/row", &bare_cpu),
        Figure::new("log read: CPU of claim and settle", "µs/row", &store_cpu).relative_to(&bare_cpu),
    ])
}

/// The commerce system's tables with so many rows of 1,000 aggregates.
pub(crate) async fn fill(options: PgConnectOptions, rows: u32) -> anyhow::Result<PgPool> {
    let options = options.options([("search_path", SCHEMA)]);
    let pool = PgPoolOptions::new().connect_with(options).await?;
    let ddl = BuiltinMap::find("commerce").context("no such map")?.ddl;
    let fill = format!(
        "create schema {SCHEMA}; {ddl};
         insert into outbox (event_id, event_type, source, aggregate_type, aggregate_id, payload)
         select gen_random_uuid(), 'loopers.order.created.v1', 'commerce-api', 'Order', (n % 1000)::text,
             jsonb_build_object('orderId', n, 'note', repeat('x', 270))
         from generate_series(1, {rows}) n;
         vacuum analyze outbox"
    );
    for statement in fill.split(';') {
        let statement = sqlx::AssertSqlSafe(statement.to_owned());
        pool.execute(sqlx::raw_sql(statement)).await?;
    }
    Ok(pool)
}

struct Measured {
    speed: f64,
    /// Of this process.
    cpu_us: f64,
}

async fn measure(rows: u32, work: impl Future<Output = anyhow::Result<u32>>) -> anyhow::Result<Measured> {
    let (started, cpu) = (Instant::now(), cpu_time()?);
    let read = work.await?;
    let (elapsed, cpu) = (started.elapsed(), cpu_time()?.saturating_sub(cpu));
    ensure!(read == rows, "{read} of {rows} rows were read");
    Ok(Measured {
        speed: f64::from(rows) / elapsed.as_secs_f64(),
        cpu_us: cpu.as_secs_f64() * 1e6 / f64::from(rows),
    })
}

fn cpu_time() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let time =
        |at: nix::sys::time::TimeVal| Duration::from_micros((at.tv_sec() * 1_000_000 + at.tv_usec()).unsigned_abs());
    Ok(time(usage.user_time()) + time(usage.system_time()))
}

async fn read_bare(conn: &mut PgConnection, rows: u32) -> anyhow::Result<u32> {
    let (mut cursor, mut read) = (0_i64, 0);
    while read < rows {
        let batch = sqlx::query(BARE)
            .bind(cursor)
            .bind(i64::from(BATCH))
            .fetch_all(&mut *conn)
            .await?;
        let Some(last) = batch.last() else { break };
        cursor = last.try_get(0)?;
        read += u32::try_from(batch.len())?;
    }
    Ok(read)
}

/// From the first row on, whatever was read before.
async fn read_by_store(pool: &PgPool, rows: u32, batch: u32) -> anyhow::Result<u32> {
    pool.execute("truncate outbox_cursor").await?;
    let map = BuiltinMap::find("commerce").context("no such map")?.map()?;
    let store = PostgresLogStore::new(pool.clone(), map)?;
    let mut read = 0;
    while read < rows {
        let token = LeaseToken::new();
        let claim = store.claim(&request(token, batch)).await?;
        if claim.messages.is_empty() {
            break;
        }
        read += u32::try_from(claim.messages.len())?;
        let ids = claim.messages.iter().map(|claimed| claimed.message.id);
        let delivered: Vec<_> = ids.map(|id| Settlement::delivered(id, token)).collect();
        let settled = store.settle(&delivered).await?;
        ensure!(settled.lost.is_empty(), "{} rows were lost", settled.lost.len());
    }
    store.close().await?;
    Ok(read)
}

fn request(token: LeaseToken, limit: u32) -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::new(),
        token,
        limit,
        max_bytes: 64 << 20,
        scan_limit: None,
        lease: Duration::from_secs(30),
        max_attempts: 11,
        ordering: KeyOrdering::PerKey {
            dead_head: DeadHead::Skip,
            except: Vec::new(),
        },
        scope: Scope::default(),
        left_out: Vec::new(),
        pipelined: false,
    }
}
