//! A donation service on MySQL or MariaDB, and the relay that notifies people of donations.

mod drive;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use donation::donate::{Donation, Given, donate};
use donation::{relay, setup};
use posthaste::publishers::HttpUrl;
use posthaste::relay::RelayConfig;
use sqlx::MySqlPool;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A donation service on Posthaste
#[derive(Parser)]
struct Service {
    #[arg(
        long,
        env = "DATABASE_URL",
        default_value = "mysql://root@localhost/donation",
        hide_env_values = true
    )]
    database_url: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create the tables, a guest and an admin
    Setup,
    /// Give points; a request that is repeated gives nothing more
    Give {
        #[arg(long, default_value = "guest")]
        guest: String,
        /// The admin's fingerprint
        #[arg(long, default_value = "admin")]
        admin: String,
        #[arg(long)]
        amount: i64,
        #[arg(long)]
        request_id: String,
    },
    /// Notify people of donations
    Relay(RelayArgs),
    Drive(drive::Drive),
}

/// What is not said here is as the map has it.
#[derive(Debug, Args)]
struct RelayArgs {
    /// Where to post; without it notifications are log lines
    #[arg(long, env = "WEBHOOK_URL", hide_env_values = true)]
    webhook_url: Option<HttpUrl>,
    /// How often to look for donations, such as 10s
    #[arg(long)]
    poll: Option<humantime::Duration>,
    /// After how long a row of a relay that died is taken back, and how often to look for such rows
    #[arg(long)]
    stalled_after: Option<humantime::Duration>,
    /// How long the first retry waits; each that follows waits twice as long
    #[arg(long)]
    retry: Option<humantime::Duration>,
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let Service { database_url, command } = Service::parse();
    let pool = async || MySqlPool::connect(&database_url).await.context("--database-url");
    match command {
        Command::Setup => {
            let pool = pool().await?;
            setup::tables(&pool).await?;
            setup::member(&pool, "guest", "guest", 1_000).await?;
            setup::member(&pool, "admin", "admin", 0).await?;
        }
        Command::Give {
            guest,
            admin,
            amount,
            request_id,
        } => {
            let donation = Donation {
                request_id,
                guest,
                admin,
                amount,
            };
            match donate(&pool().await?, &donation).await? {
                Given::Now => println!("given"),
                Given::Before => println!("given before"),
            }
        }
        Command::Relay(args) => {
            let config = args.config(relay::policy()?);
            relay::relay(pool().await?, args.webhook_url, config)?
                .run_until(stop()?)
                .await?;
        }
        Command::Drive(drive) => return drive.run().await,
    }
    Ok(ExitCode::SUCCESS)
}

impl RelayArgs {
    fn config(&self, mut config: RelayConfig) -> RelayConfig {
        if let Some(poll) = self.poll {
            config.poll_interval = *poll;
            config.max_poll_interval = *poll;
        }
        if let Some(stalled_after) = self.stalled_after {
            config.stalled_after = *stalled_after;
            config.recover_interval = *stalled_after;
            config.lease = *stalled_after;
        }
        if let Some(retry) = self.retry {
            config.retry.backoff = posthaste::core::retry::Backoff::Exponential {
                base: *retry,
                max: Duration::from_hours(1),
                jitter: false,
            };
        }
        config
    }
}

/// Fires at SIGTERM and at SIGINT.
fn stop() -> anyhow::Result<CancellationToken> {
    let stop = CancellationToken::new();
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals = signal(kind)?;
        let stop = stop.clone();
        tokio::spawn(async move {
            signals.recv().await;
            stop.cancel();
        });
    }
    Ok(stop)
}
