//! One drain, and what it took.

use std::time::Duration;

use sqlx::PgConnection;

use crate::arm::Arm;
use crate::beside::Beside;
use crate::brokers::{Brokers, SinkKind};
use crate::series::real;
use crate::server::{Database, Server, Written};
use crate::tally::Arrived;
use crate::worker::protocol::{Done, Task, WorkOrder};
use crate::workload::Workload;

/// One drain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drain {
    pub(crate) arm: Arm,
    pub(crate) sink: SinkKind,
    pub(crate) workload: Workload,
    /// How many processes share the work.
    pub(crate) instances: u32,
    /// How many shards a log of our own is divided into.
    pub(crate) shards: u32,
    pub(crate) beside: Beside,
}

/// What one drain took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    pub(crate) messages_per_second: f64,
    pub(crate) relay_cpu: Duration,
    pub(crate) postgres_cpu: Duration,
    pub(crate) broker_cpu: Duration,
    /// Of the relay, in bytes.
    pub(crate) peak_memory: u64,
    pub(crate) wal_per_message: f64,
    pub(crate) dead_tuples_per_message: f64,
}

impl Drain {
    pub(crate) fn new(arm: Arm, sink: SinkKind, rows: u32) -> Self {
        let rows = arm.most_rows.map_or(rows, |most| most.min(rows));
        Self {
            arm,
            sink,
            workload: Workload::of(rows),
            instances: 1,
            shards: 1,
            beside: Beside::Nothing,
        }
    }
}

/// What a worker is to do about a drain.
pub(crate) fn order(drain: &Drain, database: &Database, brokers: Option<&Brokers>, task: Task) -> WorkOrder {
    WorkOrder {
        arm: drain.arm.name.to_owned(),
        url: database.url.clone(),
        brokers: brokers.map(|brokers| brokers.bootstrap.clone()),
        requests: brokers.map_or(1, Brokers::requests),
        workload: drain.workload,
        task,
        warms_up: true,
    }
}

/// Writes the rows that warm a process up.
pub(crate) async fn fill_warm_up(conn: &mut PgConnection, drain: &Drain) -> anyhow::Result<()> {
    let first = 1 - i64::from(drain.arm.warm_up_rows());
    drain.arm.layout.fill(conn, &drain.workload, (first, 0)).await
}

/// Rows of one transaction of the backlog. The server's logical decoding keeps them in memory (`logical_decoding_work_mem`);
/// a larger transaction would go to disk and back.
const FILL_ROWS: u32 = 50_000;

/// Writes the backlog.
pub(crate) async fn fill(database: &Database, conn: &mut PgConnection, drain: &Drain) -> anyhow::Result<()> {
    for first in (1..=drain.workload.rows).step_by(FILL_ROWS as usize) {
        let last = drain.workload.rows.min(first + FILL_ROWS - 1);
        let rows = (i64::from(first), i64::from(last));
        drain.arm.layout.fill(conn, &drain.workload, rows).await?;
    }
    database.settle_down(conn).await
}

/// What was used and written up to a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spent {
    postgres: Duration,
    brokers: Duration,
    written: Written,
}

impl Spent {
    pub(crate) async fn now(
        server: &Server,
        database: &Database,
        conn: &mut PgConnection,
        brokers: Option<&Brokers>,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            postgres: server.cpu_time(),
            brokers: brokers.map(Brokers::cpu_time).unwrap_or_default(),
            written: database.written(conn).await?,
        })
    }
}

/// Puts together what a drain took that began at a moment, if it counts.
pub(crate) fn measured(
    drain: &Drain,
    arrived: Arrived,
    (began_at, done): (u64, &[Done]),
    before: Spent,
    after: Spent,
) -> anyhow::Result<Measured> {
    arrived.verify(drain.workload.rows, drain.arm.ordered)?;
    let rows = f64::from(drain.workload.rows);
    let finished_at = done.iter().map(|done| done.finished_at).max().unwrap_or_default();
    let seconds = Duration::from_micros(finished_at.saturating_sub(began_at)).as_secs_f64();
    let (wal_per_message, dead_tuples_per_message) = after.written.since(before.written, rows);
    Ok(Measured {
        messages_per_second: rows / seconds,
        relay_cpu: done.iter().map(|done| Duration::from_secs_f64(done.cpu_seconds)).sum(),
        postgres_cpu: after.postgres.saturating_sub(before.postgres),
        broker_cpu: after.brokers.saturating_sub(before.brokers),
        peak_memory: done.iter().map(|done| done.peak_memory).max().unwrap_or_default(),
        wal_per_message,
        dead_tuples_per_message,
    })
}

impl Measured {
    /// Processor seconds of a process for 100,000 messages.
    pub(crate) fn per_100k(cpu: Duration, workload: &Workload) -> f64 {
        cpu.as_secs_f64() * 100_000.0 / f64::from(workload.rows)
    }

    /// Peak memory in MiB.
    pub(crate) fn memory_mib(&self) -> f64 {
        real(self.peak_memory) / real(1 << 20)
    }
}
