//! What came of applying.

use serde::Serialize;

use super::plan::Difference;

/// What came of applying a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Every topic of the plan.
    pub topics: Vec<Applied>,
}

/// What was done with a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// Its name.
    pub topic: String,
    /// What was done.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// What is still not as declared.
    pub left: Vec<Difference>,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// It was created.
    Created,
    /// It was to be created, and another client did it first.
    CreatedByOthers,
    /// These were changed.
    Changed {
        /// `partitions` and Kafka's names of settings.
        fields: Vec<String>,
    },
    /// There was nothing to do, or nothing that may be done.
    Untouched,
    /// It could not be done.
    Failed {
        /// Why, and what to do.
        reason: String,
    },
}

impl Report {
    /// The topics with which something went wrong, and why.
    pub fn failures(&self) -> impl Iterator<Item = (&str, &str)> {
        self.topics.iter().filter_map(|applied| match &applied.outcome {
            Outcome::Failed { reason } => Some((applied.topic.as_str(), reason.as_str())),
            _ => None,
        })
    }

    /// Whether every topic is there and as declared.
    pub fn is_as_declared(&self) -> bool {
        self.failures().next().is_none() && self.topics.iter().all(|applied| applied.left.is_empty())
    }
}
