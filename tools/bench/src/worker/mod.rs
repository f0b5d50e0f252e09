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
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, PgPool};
use tokio_util::sync::CancellationToken;

use self::protocol::{Done, GO, READY, STOP, Task, WorkOrder};
pub(crate) use self::relay::LOG_IN_FLIGHT;
use self::relay::RelayArm;
use self::sink::Sink;
use crate::arm::{self, How};
use crate::processes;
use crate::tally::Tally;

/// Gets ready, waits for the word, does the work, and tells what it took.
pub(crate) async fn main(order: &str) -> anyhow::Result<()> {
    let order: WorkOrder = serde_json::from_str(order)?;
    let arm = arm::find(&order.arm).with_context(|| format!("there is no arm {}", order.arm))?;
    let options = PgConnectOptions::from_str(&order.url)?.disable_statement_logging();
    let pool = PgPoolOptions::new().max_connections(8).connect_with(options).await?;
    let tally = Arc::new(Mutex::new(Tally::new(order.workload.rows, order.workload.keys)));
    let worker = match arm.how {
        How::Relay(policy) => Worker::Relay(Box::new(RelayArm::new(arm.layout, policy, &pool, &order, &tally)?)),
        _ => Worker::Loop(Sink::new(&order, &tally)?),
    };
    if order.warms_up {
        worker.warm_up(arm.how, &pool).await?;
    }
    println!("{READY}");
    expect(GO)?;

    let (cpu, started) = (cpu_time()?, Instant::now());
    let (delivered, acknowledged) = worker.work(arm.how, &pool, &order).await?;
    let (seconds, cpu) = (started.elapsed().as_secs_f64(), cpu_time()?.saturating_sub(cpu));
    let arrived = tally.lock().unwrap_or_else(PoisonError::into_inner).arrived();
    let done = Done {
        seconds,
        delivered,
        cpu_seconds: cpu.as_secs_f64(),
        peak_memory: processes::peak_memory(std::process::id()).unwrap_or_default(),
        arrived: order.brokers.is_none().then_some(arrived),
        acknowledged,
    };
    println!("{}", serde_json::to_string(&done)?);
    Ok(())
}

enum Worker {
    Relay(Box<RelayArm>),
    Loop(Sink),
}

impl Worker {
    /// Sends the row that is there. A producer takes half a second before its first message.
    async fn warm_up(&self, how: How, pool: &PgPool) -> anyhow::Result<()> {
        match self {
            Self::Relay(relay) => relay.drain().await.map(drop),
            Self::Loop(sink) => {
                // Bare producers read nothing, and have their own rows from the first to the last.
                if how != How::ProduceOnly {
                    loops::drain(how, pool, sink, 1).await?;
                }
                sink.warm_up().await
            }
        }
    }

    /// Returns how many rows were delivered, and when, if that was asked for.
    async fn work(&self, how: How, pool: &PgPool, order: &WorkOrder) -> anyhow::Result<(u64, Vec<(u32, u64)>)> {
        match (self, order.task) {
            (Self::Relay(relay), Task::Drain) => Ok((relay.work_off().await?, Vec::new())),
            (Self::Relay(relay), Task::Serve) => {
                let stop = CancellationToken::new();
                let stopped = stop.clone();
                // A thread of its own: it waits for a line that may never come.
                std::thread::spawn(move || {
                    let _ = expect(STOP);
                    stopped.cancel();
                });
                let delivered = relay.serve(stop).await?;
                Ok((delivered, relay.acknowledged()))
            }
            (Self::Loop(sink), Task::Drain) => {
                Ok((loops::drain(how, pool, sink, order.workload.rows).await?, Vec::new()))
            }
            (Self::Loop(_), Task::Serve) => bail!("only relays serve"),
        }
    }
}

fn expect(word: &str) -> anyhow::Result<()> {
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
