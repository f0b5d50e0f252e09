//! Usage records, enqueued through the library on a table that was there before it.

pub mod dispatch;
pub mod record;

use posthaste::TableMap;
use posthaste::sql::table::BuiltinMap;
use sqlx::{Executor, PgPool};

/// Whose outbox it is within the table.
pub const NAMESPACE: &str = "usage";

/// The map of the table.
pub fn map() -> anyhow::Result<TableMap> {
    Ok(BuiltinMap::named("usage")?.map()?)
}

/// Creates the totals, and the outbox as its map describes it.
pub async fn setup(pool: &PgPool) -> anyhow::Result<()> {
    pool.execute("create table usage_total (tenant uuid primary key, units bigint not null)")
        .await?;
    pool.execute(BuiltinMap::named("usage")?.ddl).await?;
    Ok(())
}
