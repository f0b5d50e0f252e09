//! Makes the cluster what was declared, as far as that loses nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::admin::{AlterConfig, NewPartitions, ResourceSpecifier};
use rdkafka::error::RDKafkaErrorCode as Code;
use tokio::time::Instant;

use super::admin::{TopicAdmin, options};
use super::error::TopicsError;
use super::plan::{Change, Difference, Plan, PlannedTopic, TopicState};
use super::refusal::refusal;
use super::report::{Applied, Outcome, Report};
use super::spec::WantedTopic;
use crate::error::explain;

/// What `apply` may do beyond creating topics and changing settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApplyOptions {
    /// Add partitions. Keys move to other partitions, so the order of a key's records is not kept across the change.
    /// Defaults to false.
    pub grow_partitions: bool,
    /// Make changes that let Kafka delete records: a shorter retention, another `cleanup.policy`. Defaults to false.
    pub allow_loss: bool,
}

impl ApplyOptions {
    fn allow(self, difference: &Difference) -> bool {
        match difference.change {
            Change::Apply => true,
            Change::GrowPartitions => self.grow_partitions,
            Change::AllowLoss => self.allow_loss,
            Change::ByHand => false,
        }
    }
}

/// Timeout until the brokers agree on what was changed.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(15);

const SETTLE_POLL_INTERVAL: Duration = Duration::from_millis(100);

impl TopicAdmin {
    /// Creates what is missing and changes what differs, and returns when the brokers have it. Deletes nothing; a topic
    /// that another client creates at the same time is no failure. Applied again, it does nothing.
    pub async fn apply(&self, plan: &Plan, may: ApplyOptions) -> Result<Report, TopicsError> {
        let mut outcomes = self.create_missing(plan).await?;
        for topic in &plan.topics {
            let allowed: Vec<_> = topic.differences().iter().filter(|found| may.allow(found)).collect();
            if !allowed.is_empty() {
                let outcome = self.change(topic, &allowed).await?;
                outcomes.insert(topic.topic.clone(), outcome);
            }
        }
        self.settle(plan, outcomes, may).await
    }

    async fn create_missing(&self, plan: &Plan) -> Result<BTreeMap<String, Outcome>, TopicsError> {
        let is_missing = |topic: &&PlannedTopic| matches!(topic.state, TopicState::Create { .. });
        let (refused, missing): (Vec<_>, Vec<_>) = plan
            .topics
            .iter()
            .filter(is_missing)
            .partition(|topic| refusal_of(topic).is_some());
        let mut outcomes: BTreeMap<_, _> = refused
            .into_iter()
            .filter_map(|topic| {
                let reason = refusal_of(topic)?.to_owned();
                Some((topic.topic.clone(), Outcome::Failed { reason }))
            })
            .collect();
        let wanted: Vec<&WantedTopic> = missing.iter().map(|topic| &topic.wanted).collect();
        if wanted.is_empty() {
            return Ok(outcomes);
        }
        let created = self.create(&wanted, &options()).await?;
        for (result, wanted) in created.into_iter().zip(wanted) {
            let outcome = match result {
                Ok(_) => Outcome::Created,
                Err((_, Code::TopicAlreadyExists)) => Outcome::CreatedByOthers,
                Err((_, code)) => Outcome::Failed {
                    reason: refusal(code, wanted, self.cluster.fetch_metadata().await?.brokers.len()),
                },
            };
            outcomes.insert(wanted.name.clone(), outcome);
        }
        Ok(outcomes)
    }

    async fn change(&self, topic: &PlannedTopic, allowed: &[&Difference]) -> Result<Outcome, TopicsError> {
        let (shape, settings): (Vec<_>, Vec<_>) = allowed
            .iter()
            .partition(|difference| difference.change == Change::GrowPartitions);
        let fields = allowed.iter().map(|difference| difference.field.clone()).collect();
        if !settings.is_empty() {
            self.set(&topic.topic, &settings).await?;
        }
        if !shape.is_empty() {
            let count = usize::try_from(topic.wanted.partitions).unwrap_or(usize::MAX);
            let grown = self
                .admin
                .create_partitions(&[NewPartitions::new(&topic.topic, count)], &options())
                .await;
            let grown = grown.map_err(|error| self.cluster.explain(&error, Some(&topic.topic)))?;
            if let Some(Err((_, code))) = grown.into_iter().find(Result::is_err) {
                let reason = explain(code, Some(&topic.topic)).text;
                return Ok(Outcome::Failed { reason });
            }
        }
        Ok(Outcome::Changed { fields })
    }

    /// Changes some settings of a topic and keeps the others.
    async fn set(&self, topic: &str, settings: &[&&Difference]) -> Result<(), TopicsError> {
        // The request replaces everything that is set for the topic, so what others set is sent along.
        let now = self.configs(&[topic]).await?.remove(topic).unwrap_or_default();
        let own = now.iter().filter(|(_, found)| found.is_own);
        let mut entries: BTreeMap<&str, &str> = own
            .filter_map(|(name, found)| Some((name.as_str(), found.value.as_deref()?)))
            .collect();
        for setting in settings {
            entries.insert(&setting.field, &setting.declared);
        }
        let mut alter = AlterConfig::new(ResourceSpecifier::Topic(topic));
        alter.entries = entries.into_iter().collect();
        // It does not say whether it was done: that is seen when the topic is looked at again.
        let altered = self.admin.alter_configs(&[alter], &options()).await;
        altered.map_err(|error| self.cluster.explain(&error, Some(topic)))?;
        Ok(())
    }

    /// Waits until everything that was done can be seen, and says what is left.
    async fn settle(
        &self,
        plan: &Plan,
        mut outcomes: BTreeMap<String, Outcome>,
        may: ApplyOptions,
    ) -> Result<Report, TopicsError> {
        let deadline = Instant::now() + SETTLE_TIMEOUT;
        loop {
            let wanted = plan.topics.iter().map(|topic| topic.wanted.clone()).collect();
            let now = self.compare(wanted).await?;
            let unsettled = self.unsettled(&now, &outcomes, may).await?;
            if unsettled.is_empty() || Instant::now() > deadline {
                for (topic, reason) in unsettled {
                    outcomes.insert(topic, Outcome::Failed { reason });
                }
                let applied = now.into_iter().map(|topic| Applied {
                    outcome: outcomes.remove(&topic.topic).unwrap_or(Outcome::Untouched),
                    left: topic.differences().to_vec(),
                    topic: topic.topic,
                });
                return Ok(Report {
                    topics: applied.collect(),
                });
            }
            tokio::time::sleep(SETTLE_POLL_INTERVAL).await;
        }
    }

    /// What should be there and cannot be seen yet, with what to say if it stays that way.
    async fn unsettled(
        &self,
        now: &[PlannedTopic],
        outcomes: &BTreeMap<String, Outcome>,
        may: ApplyOptions,
    ) -> Result<Vec<(String, String)>, TopicsError> {
        let metadata = self.cluster.fetch_metadata().await?;
        let reason = |topic: &PlannedTopic| match outcomes.get(&topic.topic)? {
            Outcome::Failed { .. } | Outcome::Untouched => None,
            _ if matches!(topic.state, TopicState::Create { .. }) => {
                Some("it was created but cannot be seen; see the brokers' logs".to_owned())
            }
            _ if metadata
                .topic(&topic.topic)
                .is_none_or(|seen| seen.partitions.iter().any(|p| !p.has_leader)) =>
            {
                Some("it has partitions without a leader; see the brokers' logs".to_owned())
            }
            Outcome::Changed { .. } => {
                let left: Vec<_> = topic.differences().iter().filter(|found| may.allow(found)).collect();
                let names: Vec<_> = left
                    .iter()
                    .map(|left| format!("{}={}", left.field, left.declared))
                    .collect();
                (!left.is_empty()).then(|| {
                    format!(
                        "the cluster did not take {}; correct the value, or grant this client's user AlterConfigs on the \
                         topic with kafka-acls.sh",
                        names.join(", ")
                    )
                })
            }
            _ => None,
        };
        Ok(now
            .iter()
            .filter_map(|topic| Some((topic.topic.clone(), reason(topic)?)))
            .collect())
    }
}

fn refusal_of(topic: &PlannedTopic) -> Option<&str> {
    match &topic.state {
        TopicState::Create { refusal, .. } => refusal.as_deref(),
        _ => None,
    }
}
