//! What all benchmarks need, and one run of an arm.

use std::time::Duration;

use anyhow::Context;
use sqlx::{Connection, PgConnection};
use tokio::time::sleep;

use crate::arm::How;
use crate::beside;
use crate::brokers::{Brokers, Cluster};
use crate::clock::now_micros;
use crate::debezium::{self, Debezium};
use crate::extent::Extent;
use crate::process::{WORK_TIMEOUT, WorkerProcess};
use crate::run::{Drain, Measured, Spent, fill, fill_warm_up, measured, order};
use crate::server::{Database, Server};
use crate::worker::SETTLE_TIME;
use crate::worker::protocol::{Task, WorkOrder};

/// Within what relays have shared a log's shards, which they look at every second.
const SHARING_TIME: Duration = Duration::from_secs(5);

/// What all benchmarks need.
pub(crate) struct Bench {
    pub(crate) server: Server,
    pub(crate) cluster: Option<Cluster>,
    pub(crate) debezium: Option<Debezium>,
    pub(crate) extent: Extent,
}

impl Bench {
    /// Empties a backlog, and checks what arrived: a run that lost a row has no number.
    pub(crate) async fn drain(&self, drain: &Drain) -> anyhow::Result<Measured> {
        let database = self.server.database(drain.arm.layout).await?;
        let measured = self.drain_in(&database, drain).await;
        self.server.remove(database).await?;
        measured.with_context(|| format!("{} → {}", drain.arm.name, drain.sink.title()))
    }

    async fn drain_in(&self, database: &Database, drain: &Drain) -> anyhow::Result<Measured> {
        let brokers = Brokers::of(drain.sink, self.cluster.as_ref())?;
        if drain.arm.how == How::Debezium {
            let (installed, brokers) = (self.debezium.as_ref(), brokers.as_ref());
            let installed = installed.context("there is no Debezium Server")?;
            let brokers = brokers.context("Debezium Server needs a broker")?;
            // Java compiles while it works: only after so many rows does it do it at its full speed.
            let warm_up = self.extent.pick(20_000, 100_000);
            return debezium::drain(&self.server, installed, database, brokers, drain, warm_up).await;
        }
        if drain.shards > 1 {
            database.raise_shards(drain.shards).await?;
        }
        let mut conn = database.connect().await?;
        let mut workers = match &brokers {
            Some(brokers) if drain.instances > 1 => share(database, &mut conn, brokers, drain).await?,
            brokers => {
                fill_warm_up(&mut conn, drain).await?;
                vec![WorkerProcess::start(&order(drain, database, brokers.as_ref(), Task::Drain)).await?]
            }
        };
        let beside = drain.beside.begin(database).await?;
        // A relay that runs would begin with the first rows.
        for worker in &workers {
            worker.halt()?;
        }
        fill(database, &mut conn, drain).await?;

        let before = Spent::now(&self.server, database, &mut conn, brokers.as_ref()).await?;
        let began_at = now_micros();
        for worker in &mut workers {
            worker.go().await?;
        }
        if let Some(brokers) = brokers.as_ref().filter(|_| workers.len() > 1) {
            let records = shared_warm_up(drain) + u64::from(drain.workload.rows);
            brokers.wait_for(records, WORK_TIMEOUT).await?;
            for worker in &mut workers {
                worker.stop().await?;
            }
        }
        let mut done = Vec::new();
        for worker in &mut workers {
            done.push(worker.done().await?);
        }
        beside::end(beside).await?;
        database.wait_until_alone(&mut conn).await?;
        let after = Spent::now(&self.server, database, &mut conn, brokers.as_ref()).await?;
        conn.close().await?;
        let arrived = match &brokers {
            Some(brokers) => brokers.read_back(&drain.workload)?,
            None => done.first().and_then(|done| done.arrived).context("nobody counted")?,
        };
        measured(drain, arrived, (began_at, &done), before, after)
    }
}

/// How many rows warm processes up that share the work.
fn shared_warm_up(drain: &Drain) -> u64 {
    u64::from(drain.instances * drain.arm.warm_up_rows())
}

/// Starts processes that share the work, and warms them up when each has its part of it.
async fn share(
    database: &Database,
    conn: &mut PgConnection,
    brokers: &Brokers,
    drain: &Drain,
) -> anyhow::Result<Vec<WorkerProcess>> {
    let order = WorkOrder {
        warms_up: false,
        ..order(drain, database, Some(brokers), Task::Share)
    };
    let mut workers = Vec::new();
    for _ in 0..drain.instances {
        workers.push(WorkerProcess::start(&order).await?);
    }
    sleep(SHARING_TIME).await;
    for _ in 0..drain.instances {
        fill_warm_up(conn, drain).await?;
    }
    brokers.wait_for(shared_warm_up(drain), WORK_TIMEOUT).await?;
    sleep(SETTLE_TIME).await;
    Ok(workers)
}
