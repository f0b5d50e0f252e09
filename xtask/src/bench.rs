//! `cargo xtask bench`

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::Context;
use chrono::Utc;
use posthaste_servers::{KafkaCluster, PostgresOptions, PostgresServer};

use crate::{kafka, process, workspace};

/// Measure what is shipped (`--profile dist`) on a private PostgreSQL that waits for its disk, and on a private Kafka
///
/// Where Kafka cannot be had, what needs it is left out.
/// The figures are written to a file named for the time, and again to latest.json beside it.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Fewer and smaller runs: shows that the benchmarks work, not how fast the product is
    #[arg(long)]
    quick: bool,

    /// Run these only, for instance `kafka`
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// Where the figures are written [default: target/bench]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let out = arguments
        .out
        .clone()
        .unwrap_or_else(|| workspace::root().join("target/bench"));
    fs::create_dir_all(&out).with_context(|| format!("cannot create {}", out.display()))?;
    // Cargo runs in the workspace's root, wherever we were called.
    let figures = out
        .canonicalize()?
        .join(Utc::now().format("%Y%m%dT%H%M%SZ.json").to_string());

    // Built before the server starts, which then has nothing to share the machine with.
    process::demand(workspace::cargo().args(["build", "--profile", "dist", "-p", "posthaste-bench"]))?;
    let options = PostgresOptions {
        durable: true,
        ..PostgresOptions::default()
    };
    let server = PostgresServer::start_with(&workspace::scratch("bench"), &options)?;

    let kafka = start_kafka(&arguments.only);

    let mut bench = workspace::cargo();
    bench.args(["run", "--profile", "dist", "-p", "posthaste-bench", "--"]);
    bench.args(arguments.quick.then_some("--quick"));
    for name in &arguments.only {
        bench.args(["--only", name]);
    }
    if let Some(cluster) = &kafka {
        bench.args(["--kafka", &cluster.bootstrap()]);
    }
    bench.args(["--postgres-url", &server.url(), "--json"]).arg(&figures);
    process::demand(&mut bench)?;

    let latest = figures.with_file_name("latest.json");
    fs::copy(&figures, &latest).with_context(|| format!("no figures in {}", figures.display()))?;
    println!("figures: {} (and {})", figures.display(), latest.display());
    Ok(ExitCode::SUCCESS)
}

fn start_kafka(only: &[String]) -> Option<KafkaCluster> {
    if !only.is_empty() && !only.iter().any(|name| name == "kafka") {
        return None;
    }
    let started = kafka::jars().and_then(|_| Ok(KafkaCluster::start(&workspace::scratch("bench"))?));
    started
        .inspect_err(|error| eprintln!("warning: there is no Kafka to measure with: {error:#}"))
        .ok()
}
