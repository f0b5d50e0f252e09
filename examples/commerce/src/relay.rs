//! Delivers the shop's events to Kafka. `posthaste run --config posthaste.toml` does the same without a line of code.

use std::time::Duration;

use posthaste::kafka::Connection;
use posthaste::postgres::PostgresStore;
use posthaste::publishers::kafka::{KafkaOptions, KafkaPublisher};
use posthaste::relay::{Relay, RelayConfig};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

/// Delivers until the token fires.
pub async fn run(pool: PgPool, kafka: &str, stop: CancellationToken) -> anyhow::Result<()> {
    let publisher = KafkaPublisher::new(KafkaOptions::new(Connection::to(kafka)))?;
    let config = RelayConfig {
        batch_size: 100,
        max_poll_interval: Duration::from_millis(500),
        ..RelayConfig::default()
    };
    Relay::new(PostgresStore::new(pool), publisher)
        .config(config)
        .run_until(stop)
        .await?;
    Ok(())
}
