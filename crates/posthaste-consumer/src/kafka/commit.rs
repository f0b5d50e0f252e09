//! Commits offsets by hand.

use std::sync::{Arc, Weak};

use posthaste_kafka::error::explain_error;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use super::context::Client;
use super::initial_partitions::InitialPartitions;
use super::offsets;
use crate::source::{Commit, CommitError, Lane};

/// Commits in the name of the client. (The client library has commits without a wait, but never says what they came to.)
pub(super) struct KafkaCommit {
    pub(super) client: Weak<Client>,
    pub(super) initial_partitions: Arc<InitialPartitions>,
}

impl Commit for KafkaCommit {
    fn commit(&self, positions: &[(Lane, i64)]) -> Result<(), CommitError> {
        // Released before the answer is given: the receiver of the answer may drop the client, and must hold it last.
        let Some(client) = self.client.upgrade() else {
            return Err(CommitError::rebalancing("the client was stopped"));
        };
        let offsets = positions.iter().map(|(lane, next)| (lane, *next));
        offsets::commit(&client, &self.initial_partitions, offsets).map_err(|error| refused(&error))
    }
}

fn refused(error: &KafkaError) -> CommitError {
    match error.rdkafka_error_code() {
        Some(Code::RebalanceInProgress | Code::IllegalGeneration | Code::UnknownMemberId | Code::AssignmentLost) => {
            CommitError::rebalancing(error.to_string())
        }
        _ => CommitError::failed(explain_error(error, None).text),
    }
}
