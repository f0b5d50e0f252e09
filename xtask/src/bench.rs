//! `cargo xtask bench`

use std::{fs, path::Path, path::PathBuf, process::ExitCode};

use anyhow::Context;
use chrono::Utc;
use posthaste_servers::{KafkaCluster, PostgresOptions, PostgresServer};

use crate::{debezium, kafka, process, workspace};

/// Where the page has the figures of a run.
const BEGIN: &str = "<!-- figures: written by cargo xtask bench --update-docs -->\n";
const END: &str = "<!-- end of figures -->\n";

/// Measure what is shipped (`--profile dist`) on a private PostgreSQL that waits for its disk, and on a private Kafka
///
/// Beside it run hand-written loops, Debezium Server and the floor: a bare SELECT and a bare producer. What cannot be
/// had is left out, and the report says so. Figures (results.json), tables (report.md) and plots are written to a
/// directory named for the time, and again to `latest` beside it. A full run takes about an hour and a half on two quiet
/// cores, `--quick` a quarter of an hour.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Fewer and smaller runs: shows that the benchmarks work, not how fast the product is
    #[arg(long)]
    quick: bool,

    /// Run these benchmarks or arms only, for instance `latency,enqueue` or `log,queue`; an unknown name lists them all
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<String>,

    /// Drain into these sinks only: null, mock, kafka
    #[arg(long, value_name = "SINK,…", value_delimiter = ',')]
    sink: Vec<String>,

    /// How often each run is repeated [default: 3, with --quick 1]
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,

    /// Where the figures are written [default: target/bench]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    /// How the benchmarks are built; only `dist` is what is shipped
    #[arg(long, value_name = "NAME", default_value = "dist")]
    profile: String,

    /// Put tables and plots into docs/benchmarks.md
    #[arg(long)]
    update_docs: bool,

    /// Fail if a goal is missed
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let out = arguments
        .out
        .clone()
        .unwrap_or_else(|| workspace::root().join("target/bench"));
    fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    // Cargo runs in the workspace's root, wherever we were called.
    let out = out.canonicalize()?;
    let dir = out.join(Utc::now().format("%Y%m%dT%H%M%SZ").to_string());

    // Built before the servers start, which then have nothing to share the machine with.
    let build = ["--profile", &arguments.profile, "-p", "posthaste-bench"];
    process::demand(workspace::cargo().arg("build").args(build))?;
    let options = PostgresOptions {
        durable: true,
        ..PostgresOptions::default()
    };
    let server = PostgresServer::start_with(&workspace::scratch("bench"), &options)?;
    let kafka = arguments.wants_kafka().then(start_kafka).flatten();

    let mut bench = workspace::cargo();
    bench.arg("run").args(build).arg("--");
    bench.args(arguments.quick.then_some("--quick"));
    bench.args(arguments.strict.then_some("--strict"));
    if let Some(rounds) = arguments.rounds {
        bench.args(["--rounds", &rounds.to_string()]);
    }
    for (flag, names) in [("--only", &arguments.only), ("--sink", &arguments.sink)] {
        if !names.is_empty() {
            bench.args([flag, &names.join(",")]);
        }
    }
    if let Some(cluster) = &kafka {
        let pids: Vec<String> = cluster.pids().iter().map(ToString::to_string).collect();
        bench.args(["--kafka", &cluster.bootstrap(), "--kafka-pids", &pids.join(",")]);
        if let Some((server, java)) = provide_debezium(&arguments.only) {
            bench.arg("--debezium").arg(server).arg("--java").arg(java);
        }
    }
    bench.args(["--postgres-url", &server.url(), "--out"]).arg(&dir);
    process::demand(&mut bench)?;

    let latest = out.join("latest");
    if latest.exists() {
        fs::remove_dir_all(&latest)?;
    }
    copy(&dir, &latest, |_| true)?;
    if arguments.update_docs {
        update_docs(&dir)?;
    }
    println!("figures: {} (and {})", dir.display(), latest.display());
    Ok(ExitCode::SUCCESS)
}

impl Arguments {
    fn wants_kafka(&self) -> bool {
        const WITHOUT: [&str; 13] = [
            "latency",
            "backlog",
            "snapshot",
            "failures",
            "open-transaction",
            "instances",
            "kill",
            "enqueue",
            "business",
            "idle",
            "strategies",
            "held",
            "trace",
        ];
        let drains = self.only.is_empty() || self.only.iter().any(|name| !WITHOUT.contains(&name.as_str()));
        drains && (self.sink.is_empty() || self.sink.iter().any(|sink| sink == "kafka"))
    }
}

fn start_kafka() -> Option<KafkaCluster> {
    let started = kafka::jars().and_then(|_| Ok(KafkaCluster::start(&workspace::scratch("bench"))?));
    started
        .inspect_err(|error| eprintln!("warning: there is no Kafka to measure with: {error:#}"))
        .ok()
}

fn provide_debezium(only: &[String]) -> Option<(PathBuf, PathBuf)> {
    if !only.is_empty() && !only.iter().any(|name| name == "debezium" || name == "drain") {
        return None;
    }
    debezium::provide()
        .inspect_err(|error| eprintln!("warning: there is no Debezium Server to compare with: {error:#}"))
        .ok()
}

/// Replaces the figures of the page by those of a run.
fn update_docs(run: &Path) -> anyhow::Result<()> {
    let docs = workspace::root().join("docs");
    let page = docs.join("benchmarks.md");
    let text = fs::read_to_string(&page)?;
    let report = fs::read_to_string(run.join("report.md")).context("there is no report")?;
    let (before, rest) = text
        .split_once(BEGIN)
        .context("docs/benchmarks.md has no place for figures")?;
    let (_, after) = rest
        .split_once(END)
        .context("docs/benchmarks.md has no end of figures")?;
    fs::write(&page, format!("{before}{BEGIN}{report}{END}{after}"))?;
    copy(run, &docs.join("benchmarks"), |name| {
        name.extension().is_some_and(|kind| kind == "svg")
    })
}

fn copy(from: &Path, to: &Path, is_wanted: impl Fn(&Path) -> bool) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if is_wanted(&entry.path()) {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
