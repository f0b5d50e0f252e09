//! What all benchmarks need, and one run of an arm.

use anyhow::Context;
use sqlx::{Connection, PgConnection};

use crate::arm::How;
use crate::brokers::{Brokers, Cluster};
use crate::debezium::{self, Debezium};
use crate::extent::Extent;
use crate::process::WorkerProcess;
use crate::run::{Drain, Measured, Spent, fill, fill_warm_up, measured, order};
use crate::server::{Database, Server};
use crate::worker::protocol::Task;

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
            return debezium::drain(&self.server, installed, database, brokers, drain).await;
        }
        if drain.shards > 1 {
            database.raise_shards(drain.shards).await?;
        }
        let mut conn = database.connect().await?;
        let mut workers = Vec::new();
        for _ in 0..drain.instances {
            fill_warm_up(&mut conn, drain).await?;
            workers.push(WorkerProcess::start(&order(drain, database, brokers.as_ref(), Task::Drain)).await?);
        }
        let snapshot = if drain.holds_snapshot {
            Some(hold_snapshot(database).await?)
        } else {
            None
        };
        fill(database, &mut conn, drain).await?;

        let before = Spent::now(&self.server, database, &mut conn, brokers.as_ref()).await?;
        for worker in &mut workers {
            worker.go().await?;
        }
        let mut done = Vec::new();
        for worker in &mut workers {
            done.push(worker.done().await?);
        }
        if let Some(snapshot) = snapshot {
            snapshot.close().await?;
        }
        database.wait_until_alone(&mut conn).await?;
        let after = Spent::now(&self.server, database, &mut conn, brokers.as_ref()).await?;
        conn.close().await?;
        let arrived = match &brokers {
            Some(brokers) => brokers.read_back(&drain.workload)?,
            None => done.first().and_then(|done| done.arrived).context("nobody counted")?,
        };
        measured(drain, arrived, &done, before, after)
    }
}

/// A transaction that sees the database as it is now, and keeps the server from removing anything later.
async fn hold_snapshot(database: &Database) -> anyhow::Result<PgConnection> {
    let mut conn = database.connect().await?;
    for statement in ["begin isolation level repeatable read", "select count(*) from pg_class"] {
        sqlx::query(statement).execute(&mut conn).await?;
    }
    Ok(conn)
}
