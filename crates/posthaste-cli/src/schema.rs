//! Whether the tables are there, and making them where that was asked for.

use std::sync::Arc;

use anyhow::bail;
use posthaste_core::store::{Migration, Store};

use crate::config::Database;
use crate::wiring::{self, IfMissing};

/// The store, reached and with its tables, for commands that cannot do without.
pub async fn open(database: &Database) -> anyhow::Result<Arc<dyn Store>> {
    wiring::probe(database).await?;
    let store = wiring::store(database, if_missing(database)).await?;
    prepare(&*store, database).await?;
    Ok(store)
}

/// A file is made only where its tables would be made, too.
pub fn if_missing(database: &Database) -> IfMissing {
    if database.auto_migrate() {
        IfMissing::Create
    } else {
        IfMissing::Refuse
    }
}

/// Makes missing tables if the settings say so; else their absence is an error.
pub async fn prepare(store: &dyn Store, database: &Database) -> anyhow::Result<()> {
    let missing = missing(store).await?;
    if missing.is_empty() {
        return Ok(());
    }
    if database.auto_migrate() {
        let applied = store.migrate().await?;
        tracing::info!(database = %database.url(), steps = applied.len(), "created the outbox tables");
        return Ok(());
    }
    let names: Vec<_> = missing
        .iter()
        .map(|step| format!("{} ({})", step.version, step.name))
        .collect();
    bail!(
        "{}: the outbox tables are missing or old, without migration {}; run `posthaste migrate up`, or set \
         database.auto_migrate = true",
        database.url(),
        names.join(" and ")
    );
}

/// The migrations that were not applied.
pub async fn missing(store: &dyn Store) -> anyhow::Result<Vec<Migration>> {
    let applied = store.applied().await?;
    let mut steps = store.migrations();
    steps.retain(|step| !applied.contains(&step.version));
    Ok(steps)
}
