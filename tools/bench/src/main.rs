//! Measures ways from a table of PostgreSQL to a broker: Posthaste's log and queue, existing tables, hand-written loops,
//! other products, and the floor that none of them can go below.
//!
//! Speeds of one machine mean little on another, so all arms are measured in one run, in random order, several times, and
//! compared by ratios. What sends the rows is a process of its own; what arrives is checked.

mod arm;
mod bench;
mod beside;
mod brokers;
mod clock;
mod debezium;
mod extent;
mod goals;
mod layout;
mod micro;
mod output;
mod pace;
mod plain_insert;
mod process;
mod processes;
mod producer;
mod results;
mod run;
mod series;
mod server;
mod serving;
mod shuffled;
mod suites;
mod tally;
mod worker;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::bench::Bench;
use crate::brokers::{Cluster, SinkKind};
use crate::debezium::Debezium;
use crate::extent::Extent;
use crate::micro::Micro;
use crate::output::Setting;
use crate::results::Results;
use crate::server::Server;

/// The one of the command, for all arms.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Measure ways from PostgreSQL to a broker
///
/// Works in databases of its own, which are dropped at the end. Says of every goal whether it is reached.
#[derive(Parser)]
#[command(after_help = names())]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    /// Short runs, once each: shows that the benchmarks work, not how fast anything is
    #[arg(long)]
    quick: bool,

    /// How often each run is repeated [default: 3, with --quick 1]
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,

    /// A server on which databases may be created
    #[arg(long, value_name = "URL", env = "POSTHASTE_BENCH_POSTGRES_URL")]
    postgres_url: Option<String>,

    /// Brokers of a Kafka cluster on which a topic may be created; without them what needs Kafka is left out
    #[arg(long, value_name = "HOST:PORT,…", env = "POSTHASTE_BENCH_KAFKA")]
    kafka: Option<String>,

    /// The processes of these brokers, whose CPU time is measured
    #[arg(long, value_name = "PID,…", value_delimiter = ',')]
    kafka_pids: Vec<u32>,

    /// The directory of Debezium Server; without it and --java it is left out
    #[arg(long, value_name = "DIR", requires = "java")]
    debezium: Option<PathBuf>,

    /// A Java that can run Debezium Server
    #[arg(long, value_name = "PATH", requires = "debezium")]
    java: Option<PathBuf>,

    /// Run these benchmarks or arms only
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<String>,

    /// Drain into these sinks only
    #[arg(long, value_name = "SINK,…", value_delimiter = ',')]
    sink: Vec<SinkKind>,

    /// Where results.json, report.md and plots are written
    #[arg(long, value_name = "DIR", default_value = "target/bench")]
    out: PathBuf,

    /// Fail if a goal is missed
    #[arg(long)]
    strict: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Send the rows of one run; started by the measuring process
    #[command(hide = true)]
    Worker { order: String },
}

/// A benchmark of whole arms.
const SUITES: [&str; 10] = [
    suites::drain::SUITE,
    suites::latency::SUITE,
    suites::backlog::SUITE,
    suites::snapshot::SUITE,
    suites::failures::SUITE,
    suites::open_transaction::SUITE,
    suites::instances::SUITE,
    suites::kill::SUITE,
    suites::enqueue::SUITE,
    suites::business::SUITE,
];

/// Benchmarks of parts of the engine, which are run when they are asked for.
const PARTS: [(&str, Micro); 7] = [
    ("engine", Micro::Engine),
    ("log-read", Micro::LogRead),
    ("idle", Micro::Idle),
    ("strategies", Micro::Strategies),
    ("held", Micro::Held),
    ("publishers", Micro::Publishers),
    ("trace", Micro::Trace),
];

fn names() -> String {
    let arms: Vec<_> = arm::all().iter().map(|arm| arm.name).collect();
    let parts = PARTS.map(|(name, _)| name);
    format!(
        "Benchmarks: {}\nArms of the drain: {}\nParts of the engine, only by name: {}",
        SUITES.join(", "),
        arms.join(", "),
        parts.join(", ")
    )
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse();
    if let Some(Command::Worker { order }) = &arguments.command {
        worker::main(order).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = Wanted::of(&arguments.only)?;
    let Some(url) = &arguments.postgres_url else {
        anyhow::bail!("--postgres-url is needed");
    };
    std::fs::create_dir_all(&arguments.out)?;
    let extent = Extent {
        quick: arguments.quick,
        rounds: arguments.rounds.unwrap_or(if arguments.quick { 1 } else { 3 }),
    };
    if !wanted.parts.is_empty() {
        micro::run(url, extent, &wanted.parts, &arguments.out).await?;
    }
    if wanted.suites.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let bench = Bench {
        server: Server::connect(url).await?,
        cluster: arguments.kafka.clone().map(|bootstrap| Cluster {
            bootstrap,
            pids: arguments.kafka_pids.clone(),
        }),
        debezium: match (arguments.debezium.clone(), arguments.java.clone()) {
            // It runs in a directory of its own.
            (Some(dir), Some(java)) => Some(Debezium {
                dir: dir.canonicalize()?,
                java: java.canonicalize()?,
            }),
            _ => None,
        },
        extent,
    };
    let results = measure(&bench, &wanted, &arguments.sink).await?;
    let goals = goals::all(&results);
    let report = output::write(&arguments.out, &setting(&bench).await?, &results, &goals)?;
    println!("{report}");
    let missed = goals.iter().any(|goal| goal.reached == Some(false));
    Ok(if arguments.strict && (missed || !results.void.is_empty()) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// What was asked for.
struct Wanted {
    suites: Vec<&'static str>,
    arms: Vec<String>,
    parts: Vec<Micro>,
}

impl Wanted {
    /// All benchmarks and arms if nothing is named. Whoever names arms wants them drained.
    fn of(only: &[String]) -> anyhow::Result<Self> {
        let mut wanted = Self {
            suites: Vec::new(),
            arms: Vec::new(),
            parts: Vec::new(),
        };
        if only.is_empty() {
            wanted.suites.extend(SUITES);
        }
        for name in only {
            if let Some(suite) = SUITES.into_iter().find(|suite| suite == name) {
                wanted.suites.push(suite);
            } else if let Some((_, part)) = PARTS.into_iter().find(|(part, _)| part == name) {
                wanted.parts.push(part);
            } else if arm::find(name).is_some() {
                wanted.arms.push(name.clone());
            } else {
                anyhow::bail!("there is no benchmark or arm called {name}\n{}", names());
            }
        }
        if !wanted.arms.is_empty() && !wanted.suites.contains(&suites::drain::SUITE) {
            wanted.suites.push(suites::drain::SUITE);
        }
        Ok(wanted)
    }
}

async fn measure(bench: &Bench, wanted: &Wanted, sinks: &[SinkKind]) -> anyhow::Result<Results> {
    let mut results = Results::default();
    let mut sinks = match sinks {
        [] => vec![SinkKind::Null, SinkKind::Mock, SinkKind::Kafka],
        sinks => sinks.to_vec(),
    };
    if let Some(cluster) = &bench.cluster {
        cluster.create_topic().await?;
    } else {
        sinks.retain(|sink| *sink != SinkKind::Kafka);
        results
            .not_run
            .push("what needs a Kafka cluster: there is none".to_owned());
    }
    if bench.debezium.is_none() {
        results.not_run.push("Debezium Server: it could not be had".to_owned());
    }
    for suite in &wanted.suites {
        results::progress(&format!("{suite}:"));
        match *suite {
            suites::drain::SUITE => suites::drain::run(bench, &sinks, &wanted.arms, &mut results).await,
            suites::latency::SUITE => suites::latency::run(bench, &mut results).await,
            suites::backlog::SUITE => suites::backlog::run(bench, &mut results).await,
            suites::snapshot::SUITE => suites::snapshot::run(bench, &mut results).await,
            suites::failures::SUITE => suites::failures::run(bench, &mut results).await,
            suites::open_transaction::SUITE => suites::open_transaction::run(bench, &mut results).await,
            suites::instances::SUITE => suites::instances::run(bench, &mut results).await,
            suites::kill::SUITE => suites::kill::run(bench, &mut results).await,
            suites::enqueue::SUITE => suites::enqueue::run(bench, &mut results).await,
            suites::business::SUITE => suites::business::run(bench, &mut results).await,
            _ => anyhow::bail!("there is no benchmark called {suite}"),
        }
    }
    Ok(results)
}

async fn setting(bench: &Bench) -> anyhow::Result<Setting> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let settings = bench.server.describe().await?;
    let settings: Vec<String> = settings.iter().map(|(name, value)| format!("{name} {value}")).collect();
    Ok(Setting {
        quick: bench.extent.quick,
        rounds: bench.extent.rounds,
        machine: format!("{cores} cores, load at the end {}", load.trim()),
        postgres: settings.join(", "),
        build: if cfg!(debug_assertions) { "debug" } else { "optimised" },
    })
}
