//! Runs the whole shop on servers of its own, breaks it while customers are shopping, and counts.

mod chaos;
mod fleet;
mod load;
mod reconcile;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use posthaste_servers::{KafkaCluster, PostgresServer, RedisServer};

use crate::setup;
use fleet::{Fleet, Servers};
use load::Load;

/// Run the whole shop, break it under load, and reconcile
///
/// Starts PostgreSQL, a three-broker Kafka and Redis on free loopback ports, the service, two relays and two consumers.
/// While customers order, like and look, a relay, a broker, a consumer and at last all brokers are killed and started
/// again. Ends with what was committed beside what was counted, and fails if they differ.
#[derive(Debug, Args)]
pub struct Drive {
    /// How long customers shop
    #[arg(long, default_value_t = 90, value_name = "SECONDS")]
    seconds: u64,
    /// How many of them at a time
    #[arg(long, default_value_t = 8)]
    customers: usize,
    /// How long all brokers are unavailable
    #[arg(long, default_value_t = 20, value_name = "SECONDS")]
    outage: u64,
    /// Where servers and logs are kept [default: a directory that is removed at the end]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// How long the shop may take to catch up once all is well again.
const TIMEOUT: Duration = Duration::from_mins(3);

impl Drive {
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let temporary = tempfile::tempdir()?;
        let dir = self.dir.clone().unwrap_or_else(|| temporary.path().to_owned());
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let bar = ProgressBar::new(self.seconds);
        bar.set_style(ProgressStyle::with_template("{elapsed_precise} {wide_msg}")?);
        bar.enable_steady_tick(Duration::from_millis(250));

        bar.set_message("starting PostgreSQL, Kafka and Redis");
        let servers = Servers {
            postgres: PostgresServer::start(&dir)?,
            kafka: KafkaCluster::start(&dir).context("cargo xtask services up fetches what Kafka needs")?,
            redis: RedisServer::start(&dir)?,
        };
        let pool = sqlx::PgPool::connect(&servers.postgres.url()).await?;
        setup::database(&pool).await?;
        setup::topics(&servers.kafka.bootstrap()).await?;

        bar.set_message("starting the service, two relays and two consumers");
        let mut fleet = Fleet::start(&servers, &dir).await?;
        let load = Load::new(fleet.api(), pool.clone()).await?;
        let shopping = load.start(self.customers);
        load::poison(&pool).await?;
        chaos::run(&self, &servers, &mut fleet, &bar).await?;
        let requests = shopping.stop().await;

        bar.set_message("waiting until everything is counted");
        let books = reconcile::wait(&pool, fleet.api(), &servers.kafka.bootstrap(), TIMEOUT).await?;
        fleet.stop().await;
        bar.finish_and_clear();
        println!("{requests} requests, {} processes killed\n{books}", fleet.kills());
        if books.balanced() {
            return Ok(ExitCode::SUCCESS);
        }
        println!("\nThe logs are in {}", dir.display());
        std::mem::forget(temporary);
        Ok(ExitCode::FAILURE)
    }
}
