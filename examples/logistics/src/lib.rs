//! A logistics service whose outbox was there before Posthaste.

pub mod shipments;
pub mod worker;

use anyhow::Context;
use posthaste::core::table::Shipped;
use sqlx::{Executor, PgPool};

/// Creates the shipments, and the outbox as its map describes it.
pub async fn setup(pool: &PgPool) -> anyhow::Result<()> {
    pool.execute("create table shipments (id uuid primary key, place text not null)")
        .await?;
    let outbox = Shipped::find("logistics").context("the map ships with Posthaste")?;
    pool.execute(outbox.ddl).await?;
    Ok(())
}
