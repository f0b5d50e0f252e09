//! Tables and the topic.

use posthaste::kafka::Connection;
use posthaste::kafka::topics::{self, DeclaredTopics};
use posthaste::sql::table::BuiltinMap;
use sqlx::{Executor, PgPool};

/// Creates the orders, and the outbox as its map describes it.
pub async fn database(pool: &PgPool) -> anyhow::Result<()> {
    pool.execute(include_str!("../schema.sql")).await?;
    let outbox = BuiltinMap::named("order-service")?;
    pool.execute(outbox.ddl).await?;
    Ok(())
}

/// Creates the topic and its dead-letter topic, unless they are there.
pub async fn topics(kafka: &str) -> anyhow::Result<()> {
    topics::ensure(&Connection::to(kafka), &DeclaredTopics::named(["order-events"])).await?;
    Ok(())
}
