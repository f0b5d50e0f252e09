//! The order service's commands.

use std::net::SocketAddr;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use clap::{Parser, Subcommand};
use order_service::orders::{self, NewOrder, Placed};
use order_service::{relay, setup};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

/// An order service with an outbox of its own.
#[derive(Debug, Parser)]
struct Cli {
    #[arg(long, env = "DATABASE_URL", default_value = "postgres://localhost/orders")]
    database_url: String,
    #[arg(long, env = "KAFKA", default_value = "127.0.0.1:9092")]
    kafka: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create the tables and the topic
    Setup,
    /// Take orders over HTTP
    Api {
        #[arg(long, default_value = "127.0.0.1:8080")]
        listen: SocketAddr,
    },
    /// Deliver the events to Kafka
    Relay,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().init();
    let cli = Cli::parse();
    let pool = PgPool::connect(&cli.database_url).await?;
    match cli.command {
        Command::Setup => {
            setup::database(&pool).await?;
            setup::topics(&cli.kafka).await
        }
        Command::Api { listen } => {
            let app = Router::new().route("/orders", post(place)).with_state(pool);
            axum::serve(tokio::net::TcpListener::bind(listen).await?, app).await?;
            Ok(())
        }
        Command::Relay => {
            let stop = CancellationToken::new();
            let on_signal = stop.clone();
            tokio::spawn(async move {
                // Without a handler the signal ends the process, which is safe too.
                let _ = tokio::signal::ctrl_c().await;
                on_signal.cancel();
            });
            relay::run(pool, &cli.kafka, relay::config()?, stop).await
        }
    }
}

async fn place(State(pool): State<PgPool>, Json(new): Json<NewOrder>) -> Result<Json<Placed>, (StatusCode, String)> {
    let failed = |error: sqlx::Error| (StatusCode::UNPROCESSABLE_ENTITY, error.to_string());
    let mut tx = pool.begin().await.map_err(failed)?;
    let placed = orders::place(&mut tx, &new).await.map_err(failed)?;
    tx.commit().await.map_err(failed)?;
    Ok(Json(placed))
}
