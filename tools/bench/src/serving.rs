//! A relay that serves while applications write.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Context;
use hdrhistogram::Histogram;

use crate::arm::Arm;
use crate::bench::Bench;
use crate::brokers::{Brokers, SinkKind};
use crate::process::WorkerProcess;
use crate::producer::{Commits, Producers};
use crate::run::{Drain, fill_warm_up, order};
use crate::series::real;
use crate::server::Database;
use crate::tally::Arrived;
use crate::worker::protocol::{Done, Task, WorkOrder};

/// The most rows that are written while a relay serves.
const MOST_ROWS: u32 = 2_000_000;
/// How long the last rows may take.
const DELIVERY_TIMEOUT: Duration = Duration::from_mins(2);

/// How long nothing must arrive after a kill before all has. What a relay of a queue had claimed is sent again when its lease
/// has ended; the rows of a log are, as soon as its connection is gone.
pub(crate) fn rest(arm: &Arm) -> Duration {
    Duration::from_secs(if arm.layout.is_log() { 10 } else { 35 })
}

/// A database, brokers within this process, a relay between them, and applications.
pub(crate) struct Serving<'a> {
    bench: &'a Bench,
    pub(crate) database: Database,
    brokers: Brokers,
    drain: Drain,
    worker: WorkerProcess,
    pub(crate) producers: Producers,
}

impl<'a> Serving<'a> {
    pub(crate) async fn start(bench: &'a Bench, arm: Arm) -> anyhow::Result<Self> {
        let drain = Drain::new(arm, SinkKind::Mock, MOST_ROWS);
        let database = bench.server.database(arm.layout).await?;
        let brokers = Brokers::of(SinkKind::Mock, None)?.context("the mock has brokers")?;
        let mut conn = database.connect().await?;
        fill_warm_up(&mut conn, &drain).await?;
        let worker = serve(&order(&drain, &database, Some(&brokers), Task::Serve)).await?;
        let producers = Producers::new(arm.layout, &database, drain.workload).await?;
        Ok(Self {
            bench,
            database,
            brokers,
            drain,
            worker,
            producers,
        })
    }

    /// Kills the relay and starts another one.
    pub(crate) async fn kill_and_replace(&mut self) -> anyhow::Result<()> {
        self.worker.kill().await?;
        let order = order(&self.drain, &self.database, Some(&self.brokers), Task::Serve);
        self.worker = serve(&WorkOrder {
            warms_up: false,
            ..order
        })
        .await?;
        Ok(())
    }

    /// Waits until all that was committed has arrived.
    pub(crate) async fn wait_until_delivered(&self) -> anyhow::Result<()> {
        let records = u64::from(self.producers.written()) + u64::from(self.drain.arm.warm_up_rows());
        self.brokers.wait_for(records, DELIVERY_TIMEOUT).await
    }

    /// Waits until nothing more is to come, and no less than was committed.
    pub(crate) async fn wait_until_at_rest(&self) -> anyhow::Result<()> {
        self.wait_until_delivered().await?;
        self.brokers.wait_until_at_rest(rest(&self.drain.arm)).await
    }

    /// Ends everything. Returns what the relay has done, and what arrived.
    pub(crate) async fn end(mut self) -> anyhow::Result<(Done, Arrived)> {
        self.worker.stop().await?;
        let done = self.worker.done().await?;
        let written = self.producers.written();
        self.drain.workload.rows = written;
        let arrived = self.brokers.read_back(&self.drain.workload)?;
        self.producers.close().await;
        self.bench.server.remove(self.database).await?;
        Ok((done, arrived))
    }
}

/// Starts a relay that goes on until it is told to stop.
pub(crate) async fn serve(order: &WorkOrder) -> anyhow::Result<WorkerProcess> {
    let mut worker = WorkerProcess::start(order).await?;
    worker.go().await?;
    Ok(worker)
}

/// How long rows took from commit to acknowledgement, in milliseconds: the median and the 99th percentile.
pub(crate) fn waits(commits: &Commits, done: &Done) -> anyhow::Result<(f64, f64)> {
    let acknowledged: HashMap<u32, u64> = done.acknowledged.iter().copied().collect();
    let mut histogram = Histogram::<u64>::new(3)?;
    for (n, committed) in commits {
        let acknowledged = acknowledged
            .get(n)
            .with_context(|| format!("row {n} was not acknowledged"))?;
        // What overtook the answer to the commit took no time at all.
        histogram.record(acknowledged.saturating_sub(*committed))?;
    }
    let milliseconds = |quantile| real(histogram.value_at_quantile(quantile)) / 1_000.0;
    Ok((milliseconds(0.5), milliseconds(0.99)))
}
