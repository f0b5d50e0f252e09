//! What a relay costs that has nothing to do.

use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use posthaste_relay::{Relay, RelayConfig};
use posthaste_testkit::NullPublisher;
use sqlx::{Connection, PgConnection};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::extent::Extent;
use crate::micro::backlog::{self, Keys};
use crate::micro::database::Database;
use crate::micro::report::{Figure, Target};

/// Until the polls have slowed down and the statements of the start are over.
const SETTLE_DOWN: Duration = Duration::from_secs(3);

/// The server's counters reach its statistics a second after the fact.
const STATISTICS_DELAY: Duration = Duration::from_millis(1_500);

pub(crate) async fn run(database: &Database, extent: Extent) -> anyhow::Result<Vec<Figure>> {
    let mut conn = database.connect().await?;
    backlog::fill(&mut conn, 0, Keys::None).await?;
    let counter = Counter::find(&mut conn).await;
    let window = Duration::from_secs(extent.pick(6, 10));
    let config = RelayConfig {
        // So that the window holds rounds of the janitor too; by default they are rarer.
        janitor_interval: window / 3,
        ..RelayConfig::default()
    };
    let shutdown = CancellationToken::new();
    let relay = Relay::new(database.store(), NullPublisher).config(config);
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    sleep(SETTLE_DOWN).await;

    let before = counter.read(&mut conn).await?;
    let (cpu, started) = (cpu_time()?, Instant::now());
    sleep(window).await;
    let (cpu, elapsed) = (cpu_time()?.saturating_sub(cpu), started.elapsed());
    if matches!(counter, Counter::Transactions) {
        sleep(STATISTICS_DELAY).await;
    }
    // Reading the counter is one of the things that it counts.
    let ours = 1;
    let seen = counter.read(&mut conn).await?.saturating_sub(before + ours);
    shutdown.cancel();
    relay.await??;
    conn.close().await?;

    let share = 100.0 * cpu.as_secs_f64() / elapsed.as_secs_f64();
    let rate = f64::from(seen) / elapsed.as_secs_f64();
    let statements = Figure::new(counter.name(), "per second", &[rate]);
    Ok(vec![
        Figure::new("idle: CPU of one core", "%", &[share]).target(Target::ValueBelow(1.0)),
        match counter {
            Counter::Statements => statements.target(Target::ValueBelow(20.0)),
            // Fewer than statements, so that a pass would prove nothing.
            Counter::Transactions => statements,
        },
    ])
}

/// Processor time that this process has used.
fn cpu_time() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(micros.unsigned_abs()))
}

/// What the server can count.
#[derive(Clone, Copy, Debug)]
enum Counter {
    /// Every statement, if the server has `pg_stat_statements`.
    Statements,
    Transactions,
}

impl Counter {
    async fn find(conn: &mut PgConnection) -> Self {
        let extension = sqlx::query("create extension if not exists pg_stat_statements")
            .execute(&mut *conn)
            .await;
        // The extension may be there without its library: then only reading it fails.
        match extension {
            Ok(_) if Self::Statements.read(conn).await.is_ok() => Self::Statements,
            _ => Self::Transactions,
        }
    }

    async fn read(self, conn: &mut PgConnection) -> anyhow::Result<u32> {
        let sql = match self {
            Self::Statements => {
                "select coalesce(sum(calls), 0)::bigint from pg_stat_statements \
                 where dbid = (select oid from pg_database where datname = current_database())"
            }
            Self::Transactions => {
                "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
            }
        };
        let count: i64 = sqlx::query_scalar(sql).fetch_one(conn).await?;
        Ok(u32::try_from(count)?)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Statements => "idle: statements",
            Self::Transactions => "idle: transactions",
        }
    }
}
