//! Runs the service on a server of its own, breaks it while guests are giving, and makes the books.

mod books;
mod guests;
mod receiver;
mod relays;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use donation::setup;
use indicatif::{ProgressBar, ProgressStyle};
use posthaste_servers::MariaDbServer;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{AssertSqlSafe, Executor, MySqlPool};
use tokio::time::{Instant, sleep};

use receiver::{Mood, Receiver};
use relays::Relays;

/// Run the service, break it while guests are giving, and reconcile
///
/// Starts MariaDB and a webhook's receiver on free loopback ports, and a relay. Guests give at the same time and ask more
/// than once. A row is changed by hand, the receiver refuses one notification and stumbles over others, and a relay is
/// killed with rows in its hands. Ends with the books, and fails if they do not balance.
#[derive(Debug, Args)]
pub struct Drive {
    /// How many donations are asked for
    #[arg(long, default_value_t = 400)]
    requests: usize,
    /// How many guests ask at a time
    #[arg(long, default_value_t = 16)]
    guests: usize,
    /// Where the server and logs are kept [default: a directory that is removed at the end]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// How long anything may take once all is well again.
const TIMEOUT: Duration = Duration::from_mins(3);

impl Drive {
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let temporary = tempfile::tempdir()?;
        let dir = self.dir.clone().unwrap_or_else(|| temporary.path().to_owned());
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let bar = ProgressBar::new_spinner();
        bar.set_style(ProgressStyle::with_template("{elapsed_precise} {wide_msg}")?);
        bar.enable_steady_tick(Duration::from_millis(250));

        bar.set_message("starting MariaDB and a receiver");
        let server = MariaDbServer::start(&dir)?;
        let (pool, url) = database(&server).await?;
        let receiver = Receiver::start().await?;
        guests::register(&pool).await?;

        bar.set_message("a donation is changed by hand before anybody was told of it");
        let corrupted = guests::give_and_corrupt(&pool).await?;
        guests::give_what_is_refused(&pool).await?;

        bar.set_message("guests are giving, and a receiver that stumbles is told");
        let mut relays = Relays::new(&url, &receiver.url(), &dir);
        relays.launch()?;
        let half = self.requests / 2;
        let mut tally = guests::give(&pool, half, self.guests).await?;

        bar.set_message("the receiver hangs, and the relay is killed with rows in its hands");
        receiver.set(Mood::Hanging);
        tally += guests::give(&pool, self.requests - half, self.guests).await?;
        until("rows are being sent", || async { Ok(processing(&pool).await? > 0) }).await?;
        relays.kill().await?;
        let stalled = processing(&pool).await?;
        ensure!(stalled > 0, "no row was in the relay's hands when it was killed");

        bar.set_message("the receiver is back, and so is a relay; stalled rows are taken back");
        receiver.set(Mood::Stumbling);
        relays.launch()?;
        until("everybody was told", || async { Ok(books::open(&pool).await? == 0) }).await?;
        relays.stop().await;

        let books = books::look(&pool, &receiver.told(), &corrupted, stalled).await?;
        bar.finish_and_clear();
        println!("{tally}\n{books}");
        if books.balanced() {
            return Ok(ExitCode::SUCCESS);
        }
        println!("\nThe logs are in {}", dir.display());
        std::mem::forget(temporary);
        Ok(ExitCode::FAILURE)
    }
}

/// A database with the service's tables, and its address.
async fn database(server: &MariaDbServer) -> anyhow::Result<(MySqlPool, String)> {
    const NAME: &str = "donation";
    let root = MySqlPool::connect(&server.url()).await?;
    root.execute(AssertSqlSafe(format!("create database {NAME}"))).await?;
    root.close().await;
    let url = format!("mysql://root@127.0.0.1:{}/{NAME}", server.port());
    let pool = MySqlPoolOptions::new().max_connections(16).connect(&url).await?;
    setup::tables(&pool).await?;
    Ok((pool, url))
}

async fn processing(pool: &MySqlPool) -> anyhow::Result<i64> {
    let count = sqlx::query_scalar("select count(*) from donation_outbox where status = 'PROCESSING'");
    Ok(count.fetch_one(pool).await?)
}

async fn until<F: Future<Output = anyhow::Result<bool>>>(what: &str, holds: impl Fn() -> F) -> anyhow::Result<()> {
    let deadline = Instant::now() + TIMEOUT;
    while !holds().await? {
        ensure!(Instant::now() < deadline, "never: {what}");
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
