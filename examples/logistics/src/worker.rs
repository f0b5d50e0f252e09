//! The worker: the same inside an application and as a process of its own.

use std::path::Path;

use posthaste::postgres::PostgresStore;
use posthaste::publishers::{FileOptions, FilePublisher};
use posthaste::relay::{Relay, RelayConfig};
use posthaste::sql::table::BuiltinMap;
use posthaste::{Publisher, TableMap};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

fn map() -> anyhow::Result<TableMap> {
    Ok(BuiltinMap::named("logistics")?.map()?)
}

/// The settings that suit the table: every 200 ms, 50 rows, five retries.
pub fn config() -> anyhow::Result<RelayConfig> {
    Ok(RelayConfig::with_policy(map()?.policy())?)
}

/// Publishes through `publisher` until the token fires.
pub async fn until(
    pool: PgPool,
    publisher: impl Publisher,
    config: RelayConfig,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let store = PostgresStore::with_map(pool, map()?)?;
    Relay::new(store, publisher).config(config).run_until(stop).await?;
    Ok(())
}

/// Appends events to a file, each as a line of JSON.
pub fn to_file(path: &Path) -> anyhow::Result<FilePublisher> {
    Ok(FilePublisher::open(FileOptions::new(path))?)
}
