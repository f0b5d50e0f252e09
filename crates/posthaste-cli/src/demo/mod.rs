//! `posthaste demo`: an order service, a relay that is killed, a sink that fails, and an oracle that counts.

mod oracle;
mod orders;
mod progress;
mod relay;
mod report;
mod script;
mod sink;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use posthaste_core::RelayStore;
use posthaste_core::message::DEFAULT_NAMESPACE;
use posthaste_core::store::SchemaStore;
use posthaste_sqlite::SqliteStore;
use tokio::signal::ctrl_c;
use tokio::time::{Instant, sleep};

use orders::OrderService;
use progress::Progress;
use report::Report;
use sink::Tail;

pub use relay::DemoRelay;

/// See it work: crashes, an outage, and nothing lost
///
/// An order service writes orders and their events to a SQLite file, each pair in one transaction, and rolls some back.
/// A relay, in a process of its own, delivers the events to a sink. In the middle the relay is killed, twice, and the
/// sink fails for a while. At the end what was committed is compared with what was delivered.
///
/// Everything happens in a temporary directory.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Demo {
    /// How long orders are placed; delivering the rest takes a few seconds more
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  posthaste demo
  posthaste demo --seconds 60
  posthaste demo --json | jq .lost

The exit code is 0 if nothing was lost, invented, out of order or dead.";

/// How long the rest may take once the last order is placed.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// How often the sink's record is read.
const TICK: Duration = Duration::from_millis(100);

/// The files of one demonstration.
#[derive(Clone, Debug)]
struct Stage(PathBuf);

impl Stage {
    fn database(&self) -> PathBuf {
        self.0.join("shop.db")
    }

    /// What the sink received.
    fn record(&self) -> PathBuf {
        self.0.join("delivered.jsonl")
    }

    /// While this file exists the sink fails.
    fn outage(&self) -> PathBuf {
        self.0.join("sink-is-down")
    }

    fn relay_log(&self) -> PathBuf {
        self.0.join("relay.log")
    }
}

impl Demo {
    pub async fn run(self) -> anyhow::Result<()> {
        let home = tempfile::tempdir()?;
        let stage = Stage(home.path().to_owned());
        let played = tokio::select! {
            played = play(&stage, Duration::from_secs(self.seconds)) => played,
            _ = ctrl_c() => bail!("interrupted"),
        };
        let report = match played {
            Ok(report) => report,
            Err(error) => return Err(error.context(keep(home))),
        };
        report.print(self.json)?;
        match report.fault() {
            None => Ok(()),
            Some(fault) => bail!("{fault}; {}", keep(home)),
        }
    }
}

/// Leaves the evidence where it is, and says where.
fn keep(home: tempfile::TempDir) -> String {
    format!("database, record and log are in {}", home.keep().display())
}

async fn play(stage: &Stage, length: Duration) -> anyhow::Result<Report> {
    let store = SqliteStore::connect(stage.database()).await?;
    store.migrate().await?;
    let orders = OrderService::open(&store).await?;
    let progress = Progress::start(OrderService::expected(length));
    let mut sink = Tail::new(stage.record());

    let placing = orders.place_for(length);
    let disturbing = script::play(stage, length, &progress);
    let watching = async {
        loop {
            progress.show(orders.committed(), sink.read()?);
            sleep(TICK).await;
        }
    };
    let relay = tokio::select! {
        (placed, relay) = async { tokio::join!(placing, disturbing) } => {
            placed?;
            relay?
        }
        stopped = watching => return stopped,
    };

    progress.say("orders are placed; waiting for the rest to be delivered");
    wait_until_empty(&store, &progress, &orders, &mut sink).await?;
    relay.stop().await?;
    sink.read()?;
    progress.finish(orders.committed(), sink.deliveries().len());

    let dead = store.stats(DEFAULT_NAMESPACE).await?.dead;
    let committed = orders.ledger().await?;
    Ok(Report::new(&committed, orders.rolled_back(), sink.deliveries(), dead))
}

/// Ends early without complaint: the oracle finds what is missing.
async fn wait_until_empty(
    store: &SqliteStore,
    progress: &Progress,
    orders: &OrderService,
    sink: &mut Tail,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + DRAIN_LIMIT;
    while Instant::now() < deadline {
        progress.show(orders.committed(), sink.read()?);
        let stats = store.stats(DEFAULT_NAMESPACE).await?;
        if stats.pending + stats.processing == 0 {
            break;
        }
        sleep(TICK).await;
    }
    Ok(())
}
