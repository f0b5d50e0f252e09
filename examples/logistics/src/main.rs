//! The logistics service's commands.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use logistics::{shipments, worker};
use posthaste::core::publisher::Delivery;
use posthaste::publishers::Callback;
use posthaste::relay::RelayConfig;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Shipments and where they are.
#[derive(Debug, Parser)]
struct Cli {
    #[arg(long, env = "DATABASE_URL", default_value = "postgres://localhost/logistics")]
    database_url: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create the tables
    Setup,
    /// Move a shipment every second, with the worker inside
    Serve {
        #[arg(long)]
        out: PathBuf,
    },
    /// The worker as a process of its own
    Worker {
        #[arg(long)]
        out: PathBuf,
    },
    /// A worker that never finishes what it begins, for the tests
    #[command(hide = true)]
    Stuck,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let cli = Cli::parse();
    let pool = PgPool::connect(&cli.database_url).await?;
    let stop = CancellationToken::new();
    let on_signal = stop.clone();
    tokio::spawn(async move {
        // Without a handler the signal ends the process, which is safe too.
        let _ = tokio::signal::ctrl_c().await;
        on_signal.cancel();
    });
    match cli.command {
        Command::Setup => logistics::setup(&pool).await,
        Command::Worker { out } => worker::until(pool, worker::to_file(&out)?, worker::config()?, stop).await,
        Command::Serve { out } => {
            let moving = stop.run_until_cancelled(move_shipments(pool.clone()));
            let working = worker::until(pool.clone(), worker::to_file(&out)?, worker::config()?, stop.clone());
            let (moved, worked) = tokio::join!(moving, working);
            moved.transpose()?;
            worked
        }
        Command::Stuck => {
            // Its rows would not come back by time.
            let config = RelayConfig {
                lease: Duration::from_mins(30),
                publish_timeout: Duration::from_mins(30),
                ..worker::config()?
            };
            let publisher = Callback::new(|delivery: Delivery| async move {
                println!("begun {}", delivery.message.id);
                std::future::pending().await
            });
            worker::until(pool, publisher, config, stop).await
        }
    }
}

async fn move_shipments(pool: PgPool) -> anyhow::Result<()> {
    let shipment = Uuid::new_v4();
    for place in ["Antwerp", "Basel", "Genoa"].iter().cycle() {
        let mut tx = pool.begin().await?;
        shipments::move_to(&mut tx, shipment, place).await?;
        tx.commit().await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}
