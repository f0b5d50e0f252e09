//! Tables and topics.

use posthaste::kafka::Connection;
use posthaste::kafka::topics::{self, DeclaredTopics, TopicSpec};
use sqlx::{Executor, PgPool};

use crate::wire::TOPICS;

/// Creates the shop's tables. Posthaste needs none of its own.
pub async fn database(pool: &PgPool) -> anyhow::Result<()> {
    pool.execute(include_str!("../schema.sql")).await?;
    Ok(())
}

/// Creates the topics and their dead-letter topics: three partitions kept for a week, one kept for a month.
pub async fn topics(kafka: &str) -> anyhow::Result<()> {
    let declared = DeclaredTopics::named(TOPICS).defaults(TopicSpec {
        replication_factor: Some(3),
        min_insync_replicas: Some(2),
        ..TopicSpec::default()
    });
    topics::ensure(&Connection::to(kafka), &declared).await?;
    Ok(())
}
