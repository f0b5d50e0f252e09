//! All dead-letter topics at a glance.

use chrono::{DateTime, Utc};
use rdkafka::error::KafkaError;
use serde::Serialize;

use super::error::DlqError;
use super::record::DeadLetterRecord;
use super::selection::Selection;
use super::topic::{DeadLetterTopic, bounds, names, partitions_of};
use crate::cluster::Cluster;
use crate::connection::Connection;

/// What a dead-letter topic comes down to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The dead-letter topic.
    pub topic: String,
    /// How many letters are open.
    pub open: u64,
    /// When the oldest of them was given up.
    pub oldest: Option<DateTime<Utc>>,
}

/// Topics that are looked at in one go. Each takes a client of its own, since each has a group of its own.
const MAX_CONCURRENT_TOPICS: usize = 16;

/// All dead-letter topics of a cluster, by name.
pub async fn summaries(connection: &Connection) -> Result<Vec<Summary>, DlqError> {
    let cluster = Cluster::connect(connection)?;
    let metadata = cluster.fetch_metadata().await?;
    let mut summaries = Vec::new();
    let mut filled = Vec::new();
    for name in names(&metadata) {
        let partitions = partitions_of(&name, &metadata);
        let bounds = bounds(&cluster, &name, &partitions).await?;
        if bounds.values().all(|(low, high)| low == high) {
            let (open, oldest) = (0, None);
            summaries.push(Summary {
                topic: name,
                open,
                oldest,
            });
        } else {
            filled.push(name);
        }
    }
    for some in filled.chunks(MAX_CONCURRENT_TOPICS) {
        let mut looking = tokio::task::JoinSet::new();
        for name in some {
            let topic = DeadLetterTopic::seen(connection, name, &metadata)?;
            looking.spawn(async move { topic.summary().await });
        }
        while let Some(looked) = looking.join_next().await {
            let stopped = |_| Err(cluster.explain(&KafkaError::Canceled, None).into());
            summaries.push(looked.unwrap_or_else(stopped)?);
        }
    }
    summaries.sort_by(|a, b| a.topic.cmp(&b.topic));
    Ok(summaries)
}

impl DeadLetterTopic {
    /// How many letters are open, and since when.
    pub async fn summary(&self) -> Result<Summary, DlqError> {
        let open = self.open_letters().await?;
        let first = Selection {
            open: true,
            limit: Some(1),
            ..Selection::default()
        };
        let oldest = if open > 0 {
            self.letters(&first).await?
        } else {
            Vec::new()
        };
        Ok(Summary {
            topic: self.name.clone(),
            open,
            oldest: oldest.first().and_then(DeadLetterRecord::time),
        })
    }
}
