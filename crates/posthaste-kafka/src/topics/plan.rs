//! What is to be done, and what would come of it.

use serde::Serialize;

use super::spec::WantedTopic;

/// How the cluster differs from what was declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Every declared topic, each followed by its dead-letter topic.
    pub topics: Vec<PlannedTopic>,
}

/// One topic of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedTopic {
    /// Its name.
    pub topic: String,
    /// What is to be done with it.
    #[serde(flatten)]
    pub state: TopicState,
    #[serde(skip)]
    pub(super) wanted: WantedTopic,
}

/// What is to be done with a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum TopicState {
    /// It is not there.
    Create {
        /// How many partitions it will have.
        partitions: u32,
        /// How many copies; `None` leaves it to the cluster.
        replication_factor: Option<u32>,
        /// What it will be told.
        config: std::collections::BTreeMap<String, String>,
        /// Why the cluster will refuse, if it said so.
        refusal: Option<String>,
    },
    /// It is as declared.
    AsDeclared,
    /// It is there, and different.
    Differs {
        /// In what.
        differences: Vec<Difference>,
    },
}

/// Something that is not as declared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// `partitions`, `replication_factor` or Kafka's name of a setting.
    pub field: String,
    /// What was declared.
    pub declared: String,
    /// What is there.
    pub found: String,
    /// Who can change it.
    pub change: Change,
    /// What it would bring about, or what to do instead.
    pub note: Option<String>,
}

/// Whether `apply` changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Change {
    /// It does.
    Apply,
    /// Only if [told to grow partitions](super::ApplyOptions::grow_partitions).
    GrowPartitions,
    /// Only if [told that records may be lost](super::ApplyOptions::allow_loss).
    AllowLoss,
    /// It cannot, or must not.
    ByHand,
}

impl Plan {
    /// Whether every topic is there and as declared.
    pub fn is_as_declared(&self) -> bool {
        self.topics.iter().all(|topic| topic.state == TopicState::AsDeclared)
    }
}

impl PlannedTopic {
    /// What is not as declared, if the topic is there.
    pub fn differences(&self) -> &[Difference] {
        match &self.state {
            TopicState::Differs { differences } => differences,
            _ => &[],
        }
    }
}
