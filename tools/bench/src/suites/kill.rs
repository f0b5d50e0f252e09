//! What a relay repeats that is killed: while a transaction is open, and in the middle of a backlog.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::arm;
use crate::bench::Bench;
use crate::brokers::{Brokers, SinkKind};
use crate::process::{WORK_TIMEOUT, WorkerProcess};
use crate::results::{Results, progress};
use crate::run::{Drain, fill, fill_warm_up, order};
use crate::series::real;
use crate::server::Database;
use crate::serving::{Serving, rest, serve};
use crate::shuffled::shuffled;
use crate::worker::LOG_IN_FLIGHT;
use crate::worker::protocol::{Task, WorkOrder};

pub(crate) const SUITE: &str = "kill";
pub(crate) const REPETITIONS: &str = "repetitions";
/// Repetitions, of the rows that a log's relay may have had in flight or not yet written down.
pub(crate) const OF_BOUND: &str = "of what may come again";
pub(crate) const LOG_AT_FULL_SPEED: &str = "log, at full speed";
const RATE: f64 = 1_000.0;
/// How often a log's reader writes down what is settled.
const CHECKPOINT_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Clone, Copy)]
enum Moment {
    OpenTransaction,
    FullSpeed,
}

/// What a kill led to.
struct Repeated {
    rows: u64,
    /// How many a log may repeat, if that is not the same in every run.
    allowed: Option<f64>,
}

pub(crate) async fn run(bench: &Bench, results: &mut Results) {
    let cases = [
        ("log", "log", Moment::OpenTransaction),
        ("queue", "queue", Moment::OpenTransaction),
        (LOG_AT_FULL_SPEED, "log", Moment::FullSpeed),
        ("queue, at full speed", "queue", Moment::FullSpeed),
    ];
    for (subject, ..) in cases {
        results.announce((SUITE, subject, REPETITIONS));
    }
    for round in 0..bench.extent.rounds {
        for (subject, name, moment) in shuffled(cases) {
            let repeated = match moment {
                Moment::OpenTransaction => beside_open_transaction(bench, name).await,
                Moment::FullSpeed => at_full_speed(bench, name).await,
            };
            match repeated {
                Ok(Repeated { rows, allowed }) => {
                    progress(&format!("kill, {subject}: {rows} repetitions"));
                    results.add((SUITE, subject, REPETITIONS), round, real(rows));
                    if let Some(allowed) = allowed {
                        results.add((SUITE, subject, OF_BOUND), round, real(rows) / allowed);
                    }
                }
                Err(error) => results.void(&error.context(format!("kill, {subject}"))),
            }
        }
    }
}

async fn beside_open_transaction(bench: &Bench, name: &str) -> anyhow::Result<Repeated> {
    let arm = arm::find(name).expect("an arm of ours");
    let time = Duration::from_secs(bench.extent.pick(5, 60));
    let mut serving = Serving::start(bench, arm).await?;
    let open = serving.producers.begin_one().await?;
    serving.producers.at_rate(RATE, time).await?;
    serving.kill_and_replace().await?;
    serving.producers.at_rate(RATE, Duration::from_secs(2)).await?;
    serving.producers.commit(open).await?;
    // Repetitions are records too, so that their number says nothing before the relay has come to rest.
    serving.wait_until_at_rest().await?;
    let written = serving.producers.written();
    let (_, arrived) = serving.end().await?;
    ensure!(
        arrived.rows == u64::from(written),
        "{} of {written} rows arrived",
        arrived.rows
    );
    Ok(Repeated {
        rows: arrived.duplicates,
        allowed: None,
    })
}

/// A relay is killed while it drains a backlog, and another one finishes.
async fn at_full_speed(bench: &Bench, name: &str) -> anyhow::Result<Repeated> {
    let arm = arm::find(name).expect("an arm of ours");
    // With what is repeated no more than the mock keeps.
    let rows = match name {
        "log" => 120_000,
        _ => bench.extent.pick(20_000, 60_000),
    };
    let drain = Drain::new(arm, SinkKind::Mock, rows);
    let database = bench.server.database(arm.layout).await?;
    let repeated = drain_with_a_kill(&database, &drain).await;
    bench.server.remove(database).await?;
    repeated
}

async fn drain_with_a_kill(database: &Database, drain: &Drain) -> anyhow::Result<Repeated> {
    let brokers = Brokers::of(SinkKind::Mock, None)?.context("the mock has brokers")?;
    let mut conn = database.connect().await?;
    fill_warm_up(&mut conn, drain).await?;
    let work = order(drain, database, Some(&brokers), Task::Share);
    let mut killed = WorkerProcess::start(&work).await?;
    killed.halt()?;
    fill(database, &mut conn, drain).await?;

    let before = brokers.records()?;
    let all = before + u64::from(drain.workload.rows);
    // Anywhere between two checkpoints.
    let part = rand::random_range(drain.workload.rows / 5..drain.workload.rows / 2);
    let began_at = Instant::now();
    killed.go().await?;
    brokers.wait_for(before + u64::from(part), WORK_TIMEOUT).await?;
    killed.kill().await?;
    let (time, there) = (began_at.elapsed(), brokers.records()?);
    ensure!(there < all, "the relay was done before it was killed");

    let mut successor = serve(&WorkOrder {
        warms_up: false,
        ..work
    })
    .await?;
    brokers.wait_for(all, WORK_TIMEOUT).await?;
    // Repetitions are records too.
    brokers.wait_until_at_rest(rest(&drain.arm)).await?;
    successor.stop().await?;
    successor.done().await?;
    let arrived = brokers.read_back(&drain.workload)?;
    ensure!(
        arrived.rows == u64::from(drain.workload.rows),
        "{} of {} rows arrived",
        arrived.rows,
        drain.workload.rows
    );
    let speed = real(there - before) / time.as_secs_f64();
    let settled = speed * CHECKPOINT_INTERVAL.as_secs_f64();
    Ok(Repeated {
        rows: arrived.duplicates,
        allowed: drain.arm.layout.is_log().then(|| f64::from(LOG_IN_FLIGHT) + settled),
    })
}
