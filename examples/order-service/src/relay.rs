//! Delivers to Kafka from the table that the service has.

use posthaste::kafka::Connection;
use posthaste::postgres::PostgresStore;
use posthaste::publishers::kafka::{KafkaOptions, KafkaPublisher};
use posthaste::relay::{Relay, RelayConfig};
use posthaste::sql::table::BuiltinMap;
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

/// The settings that suit the table: every 5 s, ten rows, five attempts.
pub fn config() -> anyhow::Result<RelayConfig> {
    let map = BuiltinMap::named("order-service")?.map()?;
    Ok(RelayConfig::with_policy(map.policy())?)
}

/// Delivers until the token fires.
pub async fn run(pool: PgPool, kafka: &str, config: RelayConfig, stop: CancellationToken) -> anyhow::Result<()> {
    let map = BuiltinMap::named("order-service")?.map()?;
    let publisher = KafkaPublisher::new(KafkaOptions::new(Connection::to(kafka)))?;
    Relay::new(PostgresStore::with_map(pool, map)?, publisher)
        .config(config)
        .run_until(stop)
        .await?;
    Ok(())
}
