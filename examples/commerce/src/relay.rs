//! Delivers the shop's events to Kafka. `posthaste run --config posthaste.toml` does the same without a line of code.

use posthaste::kafka::Connection;
use posthaste::publishers::kafka::{KafkaOptions, KafkaPublisher};
use posthaste::relay::{Relay, RelayConfig};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

use crate::tables;

/// Delivers until the token fires. Of several relays one reads the log; the others stand by.
pub async fn run(pool: PgPool, kafka: &str, stop: CancellationToken) -> anyhow::Result<()> {
    let publisher = KafkaPublisher::new(KafkaOptions::new(Connection::to(kafka)))?;
    // Every 500 ms up to 100 rows, ten retries after 1 s to 5 min, and so on: the map knows what suits its tables.
    let config = RelayConfig::with_policy(tables::map()?.policy())?;
    Relay::new(tables::log(pool)?, publisher)
        .config(config)
        .run_until(stop)
        .await?;
    Ok(())
}
