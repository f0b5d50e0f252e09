//! Commits offsets: by hand, after the batch, never past what is settled.

use std::time::{Duration, Instant};

use posthaste_kafka::error::explain_error;
use rdkafka::consumer::BaseConsumer;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use super::Assigned;
use super::committer::{Committed, Committer};
use crate::context::Context;
use crate::first_position;
use crate::outage::Outage;

/// The wait after a failed commit.
const AGAIN: Duration = Duration::from_secs(1);

/// How far a partition's offset is committed.
#[derive(Debug, Default)]
pub(super) struct Progress {
    committed: Option<i64>,
    in_flight: Option<i64>,
    due: bool,
    not_before: Option<Instant>,
}

impl Progress {
    /// The offset to commit now, if there is one.
    fn take(&mut self, batch_over: bool, next: Option<i64>) -> Option<i64> {
        self.due |= batch_over;
        let waits = self.not_before.is_some_and(|time| Instant::now() < time);
        if !self.due || self.in_flight.is_some() || waits {
            return None;
        }
        self.due = false;
        self.in_flight = next.filter(|next| Some(*next) > self.committed);
        self.in_flight
    }

    /// Takes note of an answer. One to an earlier assignment's commit comes when none is awaited.
    pub(super) fn answered(&mut self, offset: i64, well: bool) {
        if self.in_flight != Some(offset) {
            return;
        }
        self.in_flight = None;
        if well {
            self.committed = Some(offset);
        } else {
            self.due = true;
            self.not_before = Some(Instant::now() + AGAIN);
        }
    }
}

/// Commits the batches that are over, without waiting for the answer.
pub(super) fn batches<'a>(committer: &Committer, owned: impl Iterator<Item = &'a mut Assigned>) {
    if committer.is_busy() {
        return;
    }
    let mut offsets = Vec::new();
    for Assigned { partition, commit, .. } in owned {
        if let Some(next) = commit.take(partition.take_batch_over(), partition.next()) {
            offsets.push(((partition.topic.clone(), partition.number), next));
        }
    }
    if !offsets.is_empty() {
        committer.send(offsets);
    }
}

/// Says how commits fare.
pub(super) fn report(committed: &Committed, commits: &Outage) {
    match &committed.result {
        Ok(()) => commits.over(),
        Err(error) if of_a_rebalance(error) => tracing::debug!(%error, "the group moved on before a commit"),
        Err(error) => drop(commits.failed(explain_error(error, None).text)),
    }
}

/// Commits all that is settled, and waits for the answer: the last chance for these partitions.
pub(super) fn now<'a>(consumer: &BaseConsumer<Context>, owned: impl Iterator<Item = &'a Assigned>) {
    let open = owned.filter_map(|Assigned { partition, commit, .. }| {
        let next = partition.next().filter(|next| Some(*next) > commit.committed)?;
        Some(((partition.topic.clone(), partition.number), next))
    });
    let open: Vec<_> = open.collect();
    if open.is_empty() {
        return;
    }
    report_loss(&commit(consumer, &open));
}

/// Says what it means that a last commit failed.
pub(super) fn report_loss(result: &Result<(), KafkaError>) {
    match result {
        Ok(()) => {}
        Err(error) if of_a_rebalance(error) => {
            tracing::debug!(%error, "the group has moved on; what was not committed comes again");
        }
        Err(error) => tracing::warn!(
            error = explain_error(error, None).text,
            "offsets could not be committed; events since the last commit come again, and the inbox skips them"
        ),
    }
}

/// Commits offsets and waits for the answer.
pub(super) fn commit(consumer: &BaseConsumer<Context>, offsets: &[((String, i32), i64)]) -> Result<(), KafkaError> {
    first_position::commit_all(consumer, offsets.iter().map(|(key, next)| (key, *next)))
}

/// Whether a commit came too late, because the group is being shared out anew. The rebalance sees to the rest.
pub(super) fn of_a_rebalance(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(Code::RebalanceInProgress | Code::IllegalGeneration | Code::UnknownMemberId | Code::AssignmentLost)
    )
}
