//! Measures Posthaste beside hand-written SQL on the same table of the same server.
//!
//! Speeds of a busy machine mean little, so what is compared is measured in turns within one run and reported as a ratio.

mod backlog;
mod bare_loop;
mod baseline;
mod contest;
mod countdown;
mod database;
mod drain;
mod engine;
mod enqueue;
mod first_rows;
mod held;
mod idle;
mod kafka;
mod latency;
mod log_read;
mod publishers;
mod receivers;
mod report;
mod scaling;
mod strategies;
mod trace;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, ValueEnum};

use crate::database::Database;
use crate::report::Figure;

/// Measure Posthaste on a PostgreSQL server
///
/// Works in a database of its own, which is dropped at the end. Says PASS or FAIL beside every figure that has a target.
#[derive(Parser)]
struct Arguments {
    /// Smaller backlogs, shorter waits: about three minutes on two cores
    #[arg(long)]
    quick: bool,

    /// A server on which a database may be created
    #[arg(long, value_name = "URL", env = "POSTHASTE_BENCH_POSTGRES_URL")]
    postgres_url: String,

    /// Brokers of a Kafka cluster on which a topic may be created; without it what needs Kafka is left out
    #[arg(long, value_name = "HOST:PORT,…", env = "POSTHASTE_BENCH_KAFKA")]
    kafka: Option<String>,

    /// Also write the figures to this file
    #[arg(long, value_name = "PATH")]
    json: Option<PathBuf>,

    /// Run these only
    #[arg(long, value_name = "NAME")]
    only: Vec<Benchmark>,

    /// Fail if a target is missed
    #[arg(long)]
    strict: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Benchmark {
    /// The engine without a database or a broker
    Engine,
    /// A backlog through the whole engine, beside a hand-written loop
    Drain,
    /// A large backlog beside a small one
    Scaling,
    /// Enqueueing beside a plain insert
    Enqueue,
    /// From commit to delivery
    Latency,
    /// What a relay costs that has nothing to do
    Idle,
    /// Claims by indexes of their own beside those that serve any table with leases
    Strategies,
    /// Rows that cannot go yet: idle polls past them, and scheduled ones once they may
    Held,
    /// Reading and settling a log without an engine, beside a bare SELECT
    LogRead,
    /// From commit to delivery by one publisher of a relay, alone and beside another one that is dead
    Publishers,
    /// A backlog of traced messages, with and without a tracer provider
    Trace,
    /// A backlog from PostgreSQL to Kafka, beside a bare loop
    Kafka,
}

/// How much to measure.
#[derive(Clone, Copy, Debug)]
struct Extent {
    quick: bool,
}

impl Extent {
    /// One of two, by whether the run is a quick one.
    fn pick<T>(self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    let database = Database::create(&arguments.postgres_url).await?;
    report::environment(&database.describe().await?);
    let measured = tokio::select! {
        figures = measure(&arguments, &database) => figures,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
    };
    database.remove().await?;
    let figures = measured?;
    report::table(&figures);
    if let Some(path) = &arguments.json {
        let json = serde_json::to_vec_pretty(&figures)?;
        std::fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let missed = figures.iter().any(|figure| figure.pass == Some(false));
    Ok(if arguments.strict && missed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

async fn measure(arguments: &Arguments, database: &Database) -> anyhow::Result<Vec<Figure>> {
    let extent = Extent { quick: arguments.quick };
    let mut figures = Vec::new();
    for benchmark in Benchmark::value_variants() {
        if !arguments.only.is_empty() && !arguments.only.contains(benchmark) {
            continue;
        }
        figures.extend(match benchmark {
            Benchmark::Engine => engine::run(extent).await?,
            Benchmark::Drain => drain::run(database, extent).await?,
            Benchmark::Scaling => scaling::run(database, extent).await?,
            Benchmark::Enqueue => enqueue::run(database, extent).await?,
            Benchmark::Latency => latency::run(database, extent).await?,
            Benchmark::Idle => idle::run(database, extent).await?,
            Benchmark::Strategies => strategies::run(database, extent).await?,
            Benchmark::Held => held::run(database, extent).await?,
            Benchmark::LogRead => log_read::run(database, extent).await?,
            Benchmark::Publishers => publishers::run(database, extent).await?,
            Benchmark::Trace => trace::run(database, extent).await?,
            Benchmark::Kafka => match &arguments.kafka {
                Some(brokers) => kafka::run(database, brokers, extent).await?,
                None if arguments.only.is_empty() => {
                    report::progress("kafka: left out, for want of --kafka");
                    Vec::new()
                }
                None => anyhow::bail!("--only kafka needs --kafka"),
            },
        });
    }
    Ok(figures)
}
