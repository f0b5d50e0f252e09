//! A shop on Posthaste: an HTTP service on PostgreSQL, relays, Kafka, and consumers that keep statistics.

mod api;
mod cache;
mod consumer;
mod domain;
mod drive;
mod relay;
mod setup;
mod tables;
mod wire;

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use cache::Cache;

/// A shop on Posthaste
#[derive(Parser)]
struct Commerce {
    #[command(flatten)]
    servers: Servers,
    #[command(subcommand)]
    command: Command,
}

/// Where the servers are.
#[derive(Debug, Args)]
struct Servers {
    #[arg(long, env = "DATABASE_URL", default_value = "postgres://localhost/commerce")]
    database_url: String,
    /// Kafka's bootstrap servers
    #[arg(long, env = "KAFKA_BROKERS", default_value = "127.0.0.1:9092")]
    kafka: String,
    #[arg(long, env = "REDIS_URL", default_value = "redis://127.0.0.1:6379")]
    redis_url: String,
}

#[derive(Subcommand)]
enum Command {
    /// Create the tables and the topics
    Setup,
    /// Serve orders, likes and views over HTTP
    Api {
        #[arg(long, default_value = "127.0.0.1:8080")]
        listen: SocketAddr,
    },
    /// Deliver the shop's events to Kafka
    Relay,
    /// Count likes, sales and views, and clear the cache of what is sold out
    Consumer,
    Drive(drive::Drive),
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    let Commerce { servers, command } = Commerce::parse();
    match command {
        Command::Setup => {
            setup::database(&servers.pool().await?).await?;
            setup::topics(&servers.kafka).await?;
        }
        Command::Api { listen } => {
            let listener = TcpListener::bind(listen)
                .await
                .with_context(|| format!("--listen {listen}"))?;
            api::serve(listener, servers.pool().await?, servers.cache().await?, stop()?).await?;
        }
        Command::Relay => relay::run(servers.pool().await?, &servers.kafka, stop()?).await?,
        Command::Consumer => {
            consumer::run(servers.pool().await?, servers.cache().await?, &servers.kafka, stop()?).await?;
        }
        Command::Drive(drive) => return drive.run().await,
    }
    Ok(ExitCode::SUCCESS)
}

impl Servers {
    async fn pool(&self) -> anyhow::Result<PgPool> {
        PgPoolOptions::new()
            .max_connections(16)
            .connect(&self.database_url)
            .await
            .with_context(|| format!("--database-url {}", self.database_url))
    }

    async fn cache(&self) -> anyhow::Result<Cache> {
        Cache::connect(&self.redis_url)
            .await
            .with_context(|| format!("--redis-url {}", self.redis_url))
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
