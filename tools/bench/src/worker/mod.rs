//! The process that sends the rows of one run, apart from the one that measures it.

mod floor;
mod loops;
pub(crate) mod protocol;
mod relay;
mod rows;
mod sink;
mod watched;

use std::io::{BufRead, stdin};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use self::protocol::{Done, GO, READY, STOP, Task, WorkOrder};
use self::relay::RunningRelay;
pub(crate) use self::relay::{LOG_IN_FLIGHT, SETTLE_TIME};
use self::sink::Sink;
use crate::arm::{self, How};
use crate::clock::now_micros;
use crate::processes;
use crate::tally::Tally;
use anyhow::{Context, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, PgPool};
use tokio::task::spawn_blocking;

/// Gets ready, waits for the word, does the work, and tells what it took.
pub(crate) async fn main(order: &str) -> anyhow::Result<()> {
    let order: WorkOrder = serde_json::from_str(order)?;
    let arm = arm::find(&order.arm).with_context(|| format!("there is no arm {}", order.arm))?;
    let options = PgConnectOptions::from_str(&order.url)?.disable_statement_logging();
    let pool = PgPoolOptions::new().max_connections(8).connect_with(options).await?;
    let tally = Arc::new(Mutex::new(Tally::new(order.workload.rows, order.workload.keys)));
    let mut worker = match arm.how {
        How::Relay(policy) => Worker::Relay(RunningRelay::start(arm.layout, policy, &pool, &order, &tally)?),
        _ => Worker::Loop(Sink::new(&order, &tally)?),
    };
    let warm_up_rows = if order.warms_up { arm.warm_up_rows() } else { 0 };
    if order.warms_up {
        worker.warm_up(arm.how, &pool, warm_up_rows).await?;
    }
    // Of a relay, which has nothing to do before it is told to go on.
    let cpu = cpu_time()?;
    println!("{READY}");
    expect(GO).await?;

    let (finished_at, acknowledged) = worker.work(arm.how, &pool, &order, warm_up_rows).await?;
    let cpu = cpu_time()?.saturating_sub(cpu);
    let arrived = tally.lock().unwrap_or_else(PoisonError::into_inner).arrived();
    let done = Done {
        finished_at,
        cpu_seconds: cpu.as_secs_f64(),
        peak_memory: processes::peak_memory(std::process::id()).unwrap_or_default(),
        arrived: order.brokers.is_none().then_some(arrived),
        acknowledged,
    };
    println!("{}", serde_json::to_string(&done)?);
    Ok(())
}

enum Worker {
    Relay(RunningRelay),
    Loop(Sink),
}

impl Worker {
    /// Sends the rows that are there. A producer takes half a second before its first message.
    async fn warm_up(&mut self, how: How, pool: &PgPool, rows: u32) -> anyhow::Result<()> {
        match self {
            Self::Relay(relay) => relay.warm_up(rows).await,
            Self::Loop(sink) => {
                // Bare producers read nothing, and have their own rows from the first to the last.
                if how != How::ProduceOnly {
                    loops::drain(how, pool, sink, 1).await?;
                }
                sink.warm_up().await
            }
        }
    }

    /// Returns when the last row was answered, and when each of them was, if that was asked for.
    async fn work(
        self,
        how: How,
        pool: &PgPool,
        order: &WorkOrder,
        warm_up_rows: u32,
    ) -> anyhow::Result<(u64, Vec<(u32, u64)>)> {
        match (self, order.task) {
            (Self::Relay(mut relay), Task::Drain) => {
                let rows = u64::from(warm_up_rows) + u64::from(order.workload.rows);
                relay.wait_for(rows).await?;
                relay.stop().await
            }
            (Self::Relay(relay), Task::Share | Task::Serve) => {
                expect(STOP).await?;
                relay.stop().await
            }
            (Self::Loop(sink), Task::Drain) => {
                loops::drain(how, pool, &sink, order.workload.rows).await?;
                Ok((now_micros(), Vec::new()))
            }
            (Self::Loop(_), Task::Share | Task::Serve) => bail!("only relays serve"),
        }
    }
}

/// Waits for a line, on a thread of its own: a relay may run meanwhile.
async fn expect(word: &'static str) -> anyhow::Result<()> {
    spawn_blocking(move || read(word)).await?
}

fn read(word: &str) -> anyhow::Result<()> {
    let mut line = String::new();
    stdin().lock().read_line(&mut line)?;
    if line.trim_end() != word {
        bail!("waited for `{word}` and got `{}`", line.trim_end());
    }
    Ok(())
}

/// Processor time that this process has used.
fn cpu_time() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(micros.unsigned_abs()))
}
