//! Why topics are not as declared.

use thiserror::Error;

use super::validate::InvalidTopics;
use crate::connection::InvalidConnection;
use crate::error::Explanation;

/// Why topics could not be planned or applied.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TopicsError {
    /// The declaration cannot work.
    #[error(transparent)]
    Declared(#[from] InvalidTopics),
    /// The connection's settings cannot work.
    #[error(transparent)]
    Connection(#[from] InvalidConnection),
    /// The cluster cannot be asked.
    #[error("{}", .0.text)]
    Cluster(Explanation),
    /// Some topic could not be created or changed.
    #[error("{0}")]
    Refused(String),
}

impl From<Explanation> for TopicsError {
    fn from(explanation: Explanation) -> Self {
        Self::Cluster(explanation)
    }
}
