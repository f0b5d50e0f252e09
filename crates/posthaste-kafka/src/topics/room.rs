//! Room for dead letters: whatever a topic takes must fit its dead-letter topic, with what is added to it on the way.

use std::collections::BTreeMap;

use rdkafka::admin::ResourceSpecifier;

use super::admin::TopicAdmin;
use super::compare::FoundConfig;
use super::error::TopicsError;
use super::spec::{MAX_BYTES, WantedTopic, with_room};
use crate::cluster::ClusterMetadata;
use crate::dead_letter;

impl TopicAdmin {
    /// Asks for a larger `max.message.bytes` of dead-letter topics for which nothing was declared. What is in force for
    /// their topics, only the cluster knows.
    pub(super) async fn leave_room(&self, wanted: &mut [WantedTopic]) -> Result<(), TopicsError> {
        let open = |topic: &WantedTopic| {
            let origin = dead_letter::origin_of(&topic.name)?;
            (!topic.config.contains_key(MAX_BYTES)).then(|| origin.to_owned())
        };
        if !wanted.iter().any(|topic| open(topic).is_some()) {
            return Ok(());
        }
        let metadata = self.cluster.fetch_metadata().await?;
        let there = wanted.iter().map(|topic| topic.name.as_str());
        let there: Vec<&str> = there.filter(|name| metadata.topic(name).is_some()).collect();
        let configs = self.configs(&there).await?;
        let default = self.default_limit(&metadata).await;
        let limit = |topic: &str| configs.get(topic).map_or(default, in_force);
        for topic in wanted.iter_mut() {
            let Some(origin) = open(topic) else { continue };
            let Some(room) = limit(&origin).map(with_room) else {
                continue;
            };
            // One that takes more is left as it is.
            if limit(&topic.name).is_none_or(|bytes| bytes < room) {
                topic.config.insert(MAX_BYTES.to_owned(), room.to_string());
            }
        }
        Ok(())
    }

    /// What a topic takes that does not ask for a limit of its own, if the cluster tells.
    async fn default_limit(&self, metadata: &ClusterMetadata) -> Option<u32> {
        let broker = ResourceSpecifier::Broker(*metadata.brokers.first()?);
        let described = self.describe(&[broker]).await.ok()?;
        let entry = described.first()?.get("message.max.bytes")?;
        entry.value.as_deref()?.parse().ok()
    }
}

fn in_force(config: &BTreeMap<String, FoundConfig>) -> Option<u32> {
    config.get(MAX_BYTES)?.value.as_deref()?.parse().ok()
}
