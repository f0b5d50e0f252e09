//! Looks at the cluster.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use rdkafka::admin::{
    AdminClient, AdminOptions, ConfigResource, ConfigSource, NewTopic, OwnedResourceSpecifier, ResourceSpecifier,
    TopicReplication, TopicResult,
};
use rdkafka::error::RDKafkaErrorCode as Code;

use super::compare::{FoundConfig, FoundTopic, differences};
use super::error::TopicsError;
use super::plan::{Plan, PlannedTopic, TopicState};
use super::refusal::{refusal, unwritable};
use super::spec::{DeclaredTopics, WantedTopic};
use crate::cluster::{Cluster, ClusterMetadata, ErrorRecorder, TopicMetadata};
use crate::connection::Connection;

/// Plans and applies declared topics on one cluster.
pub struct TopicAdmin {
    pub(super) admin: AdminClient<ErrorRecorder>,
    pub(super) cluster: Cluster,
}

impl fmt::Debug for TopicAdmin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopicAdmin")
            .field("connection", self.cluster.connection())
            .finish_non_exhaustive()
    }
}

impl TopicAdmin {
    /// A client for this cluster. Nothing is sent yet.
    pub fn new(connection: &Connection) -> Result<Self, TopicsError> {
        let config = connection.client_config(&[])?;
        let admin = config.create_with_context(ErrorRecorder::default());
        Ok(Self {
            admin: admin.map_err(crate::InvalidConnection::from)?,
            cluster: Cluster::connect(connection)?,
        })
    }

    /// Compares what was declared with what is there. Changes nothing.
    pub async fn plan(&self, declared: &DeclaredTopics) -> Result<Plan, TopicsError> {
        declared.validate()?;
        let mut wanted = declared.wanted();
        self.leave_room(&mut wanted).await?;
        let topics = self.compare(wanted).await?;
        Ok(Plan { topics })
    }

    pub(super) async fn compare(&self, wanted: Vec<WantedTopic>) -> Result<Vec<PlannedTopic>, TopicsError> {
        let metadata = self.cluster.fetch_metadata().await?;
        let (there, missing): (Vec<_>, Vec<_>) =
            wanted.iter().partition(|wanted| metadata.topic(&wanted.name).is_some());
        let found = self.found(&there, &metadata).await?;
        let mut refusals = self.refusals(&missing, &metadata).await?;
        let planned = wanted.iter().map(|wanted| {
            let state = match found.get(&wanted.name) {
                None => TopicState::Create {
                    partitions: wanted.partitions,
                    replication_factor: wanted.replication_factor,
                    config: wanted.config.clone(),
                    refusal: refusals.remove(&wanted.name),
                },
                Some(found) => match differences(wanted, found) {
                    none if none.is_empty() => TopicState::AsDeclared,
                    differences => TopicState::Differs { differences },
                },
            };
            PlannedTopic {
                topic: wanted.name.clone(),
                state,
                wanted: wanted.clone(),
            }
        });
        Ok(planned.collect())
    }

    /// The topics that are there, as they are.
    async fn found(
        &self,
        there: &[&WantedTopic],
        metadata: &ClusterMetadata,
    ) -> Result<BTreeMap<String, FoundTopic>, TopicsError> {
        let names: Vec<&str> = there.iter().map(|wanted| wanted.name.as_str()).collect();
        let mut configs = self.configs(&names).await?;
        let topics = metadata
            .topics
            .iter()
            .filter(|topic| names.contains(&topic.name.as_str()));
        let found = topics.map(|topic: &TopicMetadata| {
            let replicas = topic.partitions.iter().map(|partition| partition.replicas).min();
            let found = FoundTopic {
                partitions: topic.partitions.len(),
                replicas: replicas.unwrap_or_default(),
                config: configs.remove(&topic.name).unwrap_or_default(),
            };
            (topic.name.clone(), found)
        });
        Ok(found.collect())
    }

    /// The settings of topics; none for one whose settings may not be read.
    pub(super) async fn configs(
        &self,
        names: &[&str],
    ) -> Result<BTreeMap<String, BTreeMap<String, FoundConfig>>, TopicsError> {
        if names.is_empty() {
            return Ok(BTreeMap::new());
        }
        let resources: Vec<_> = names.iter().map(|name| ResourceSpecifier::Topic(name)).collect();
        let described = self.describe(&resources).await?;
        let topics = described.into_iter().filter_map(|resource| match resource.specifier {
            OwnedResourceSpecifier::Topic(name) => Some((name, entries(resource.entries))),
            _ => None,
        });
        Ok(topics.collect())
    }

    pub(super) async fn describe(
        &self,
        resources: &[ResourceSpecifier<'_>],
    ) -> Result<Vec<ConfigResource>, TopicsError> {
        let described = self.admin.describe_configs(resources, &options()).await;
        let described = described.map_err(|error| self.cluster.explain(&error, None))?;
        Ok(described.into_iter().flatten().collect())
    }

    /// Why the cluster would not create these, by name: it is asked to check without doing it.
    async fn refusals(
        &self,
        missing: &[&WantedTopic],
        metadata: &ClusterMetadata,
    ) -> Result<BTreeMap<String, String>, TopicsError> {
        if missing.is_empty() {
            return Ok(BTreeMap::new());
        }
        let default_replicas = self.default_replicas(metadata).await;
        let checked = self.create(missing, &options().validate_only(true)).await?;
        let refused = checked.into_iter().zip(missing).filter_map(|(result, wanted)| {
            let reason = match result {
                // It has just been created: its state is reported once it can be seen.
                Ok(_) | Err((_, Code::TopicAlreadyExists)) => unwritable(wanted, default_replicas),
                Err((_, code)) => Some(refusal(code, wanted, metadata.brokers.len())),
            };
            Some((wanted.name.clone(), reason?))
        });
        Ok(refused.collect())
    }

    /// How many copies a topic has that does not ask for a number, if the cluster tells.
    async fn default_replicas(&self, metadata: &ClusterMetadata) -> Option<u32> {
        let broker = ResourceSpecifier::Broker(*metadata.brokers.first()?);
        let described = self.describe(&[broker]).await.ok()?;
        let entry = described.first()?.get("default.replication.factor")?;
        entry.value.as_deref()?.parse().ok()
    }

    /// Creates topics, or has it checked. The results are in the order of the topics.
    pub(super) async fn create(
        &self,
        wanted: &[&WantedTopic],
        options: &AdminOptions,
    ) -> Result<Vec<TopicResult>, TopicsError> {
        let new: Vec<_> = wanted.iter().map(|wanted| new_topic(wanted)).collect();
        let created = self.admin.create_topics(&new, options).await;
        let mut results = created.map_err(|error| self.cluster.explain(&error, None))?;
        let name = |result: &TopicResult| match result {
            Ok(name) | Err((name, _)) => name.clone(),
        };
        let place = |result: &TopicResult| wanted.iter().position(|wanted| wanted.name == name(result));
        results.sort_by_key(place);
        Ok(results)
    }
}

/// How long a cluster that answers may take to look or to change: replicas are created and leaders chosen meanwhile.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn options() -> AdminOptions {
    AdminOptions::new()
        .request_timeout(Some(ADMIN_TIMEOUT))
        .operation_timeout(Some(ADMIN_TIMEOUT))
}

fn new_topic(wanted: &WantedTopic) -> NewTopic<'_> {
    let replicas = wanted.replication_factor.and_then(|count| i32::try_from(count).ok());
    let partitions = i32::try_from(wanted.partitions).unwrap_or(i32::MAX);
    // The protocol's -1 leaves it to the cluster.
    let new = NewTopic::new(
        &wanted.name,
        partitions,
        TopicReplication::Fixed(replicas.unwrap_or(-1)),
    );
    let config = wanted.config.iter();
    config.fold(new, |new, (name, value)| new.set(name, value))
}

fn entries(entries: Vec<rdkafka::admin::ConfigEntry>) -> BTreeMap<String, FoundConfig> {
    let found = entries.into_iter().map(|entry| {
        let is_own = entry.source == ConfigSource::DynamicTopic;
        let value = entry.value;
        (entry.name, FoundConfig { value, is_own })
    });
    found.collect()
}
