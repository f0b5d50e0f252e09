//! A logistics service whose outbox was there before Posthaste.

pub mod shipments;
pub mod worker;

use posthaste::sql::table::BuiltinMap;
use sqlx::{Executor, PgPool};

/// Creates the shipments, and the outbox as its map describes it.
pub async fn setup(pool: &PgPool) -> anyhow::Result<()> {
    pool.execute("create table shipments (id uuid primary key, place text not null)")
        .await?;
    let outbox = BuiltinMap::named("logistics")?;
    pool.execute(outbox.ddl).await?;
    Ok(())
}
