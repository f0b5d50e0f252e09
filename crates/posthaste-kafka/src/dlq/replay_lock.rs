//! Lets one process at a time replay a topic: the member of a consumer group that has its first partition.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rdkafka::TopicPartitionList;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::groups::GroupInfo;

use super::error::DlqError;
use super::group::group_of;
use super::topic::DeadLetterTopic;
use crate::cluster::{ErrorRecorder, config_with};
use crate::error::Cause;

/// How long the group may take to decide who has the partition. A broker waits three seconds for further members.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// After so long without a sign of life a member counts as dead.
const SESSION_TIMEOUT_MS: &str = "10000";

const POLL_TIMEOUT: Duration = Duration::from_millis(50);

/// The broker's word for a group whose members know their parts.
const STABLE_GROUP: &str = "Stable";

/// How long one question about the group may take.
const GROUP_QUERY_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Membership {
    /// The partitions that were given to us, once it was decided.
    given: Mutex<Option<Vec<i32>>>,
    lost: AtomicBool,
    witness: ErrorRecorder,
}

impl ClientContext for Membership {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.witness.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.witness.error(error, reason);
    }
}

impl ConsumerContext for Membership {
    fn pre_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let gone = |partitions: &TopicPartitionList| partitions.elements().iter().any(|gone| gone.partition() == 0);
        match rebalance {
            Rebalance::Revoke(partitions) if gone(partitions) => self.lost.store(true, Ordering::Relaxed),
            Rebalance::Error(_) => self.lost.store(true, Ordering::Relaxed),
            _ => {}
        }
    }

    fn post_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let Rebalance::Assign(partitions) = rebalance else {
            return;
        };
        // Another client reads; this one only holds the place.
        let _ = consumer.pause(partitions);
        if let Ok(mut given) = self.given.lock() {
            let ids = partitions.elements().into_iter().map(|given| given.partition());
            given.get_or_insert_default().extend(ids);
        }
    }
}

/// The right to replay a topic. It ends with the value.
pub(super) struct ReplayLock {
    consumer: BaseConsumer<Membership>,
    topic: String,
}

impl ReplayLock {
    /// Takes the right, or says who has it. Blocks.
    pub(super) fn acquire(topic: &DeadLetterTopic) -> Result<Self, DlqError> {
        let settings = [
            ("group.id", group_of(&topic.name)),
            ("enable.auto.commit", "false".to_owned()),
            ("session.timeout.ms", SESSION_TIMEOUT_MS.to_owned()),
            ("heartbeat.interval.ms", "1000".to_owned()),
            // Who comes later takes nothing away from who is there.
            ("partition.assignment.strategy", "cooperative-sticky".to_owned()),
        ];
        let config = config_with(topic.cluster.connection(), &settings)?;
        let consumer = config.create_with_context(Membership::default());
        let lock = Self {
            consumer: consumer.map_err(crate::InvalidConnection::from)?,
            topic: topic.name.clone(),
        };
        let explain = |error: KafkaError| topic.cluster.explain(&error, Some(&topic.name));
        lock.consumer.subscribe(&[&topic.name]).map_err(explain)?;
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            if let Some(Err(error)) = lock.consumer.poll(POLL_TIMEOUT) {
                let explanation = explain(error);
                if !matches!(
                    explanation.cause,
                    Cause::BrokerUnavailable | Cause::PartitionUnavailable | Cause::Other
                ) || Instant::now() > deadline
                {
                    return Err(explanation.into());
                }
            }
            let given = lock.consumer.context().given.lock().map_or(None, |given| given.clone());
            match given {
                Some(partitions) if partitions.contains(&0) => {
                    lock.wait_until_alone(deadline);
                    return Ok(lock);
                }
                Some(_) => return Err(lock.replay_in_progress()),
                None if Instant::now() > deadline => {
                    return Err(explain(KafkaError::Global(Code::CoordinatorNotAvailable)).into());
                }
                None => {}
            }
        }
    }

    /// Lets those who came at the same moment leave. Each of them changes the group, and a commit in the middle of a
    /// change can cost us our place in it.
    fn wait_until_alone(&self, deadline: Instant) {
        let group = group_of(&self.topic);
        while Instant::now() < deadline {
            self.consumer.poll(POLL_TIMEOUT);
            let alone = self
                .consumer
                .fetch_group_list(Some(&group), GROUP_QUERY_TIMEOUT)
                .is_ok_and(|list| {
                    let of_ours = |info: &GroupInfo| info.state() == STABLE_GROUP && info.members().len() == 1;
                    list.groups().iter().all(of_ours)
                });
            if alone {
                return;
            }
        }
    }

    fn replay_in_progress(&self) -> DlqError {
        DlqError::ReplayInProgress {
            topic: self.topic.clone(),
            who: None,
        }
    }

    /// Whether the right is still ours.
    pub(super) fn is_held(&self) -> bool {
        while self.consumer.poll(Duration::ZERO).is_some() {}
        !self.consumer.context().lost.load(Ordering::Relaxed) && !self.consumer.assignment_lost()
    }

    /// Loses the right, as a process does that is halted for too long.
    #[cfg(test)]
    pub(super) fn leave(&self) {
        self.consumer.unsubscribe();
        let deadline = Instant::now() + LOCK_TIMEOUT;
        while self.consumer.assignment().is_ok_and(|left| left.count() > 0) {
            assert!(Instant::now() < deadline, "it never left");
            self.consumer.poll(POLL_TIMEOUT);
        }
    }

    /// Commits in the name of the member that we are; a member that was replaced cannot. Blocks.
    pub(super) fn commit(&self, offsets: &TopicPartitionList) -> Result<(), KafkaError> {
        let deadline = Instant::now() + LOCK_TIMEOUT;
        loop {
            // The client would commit as a stranger, which the brokers allow while the group is empty.
            if !self.is_held() {
                return Err(KafkaError::ConsumerCommit(Code::AssignmentLost));
            }
            match self.consumer.commit(offsets, CommitMode::Sync) {
                Err(error)
                    if Instant::now() < deadline && error.rdkafka_error_code() == Some(Code::RebalanceInProgress) =>
                {
                    // Serves the group's change.
                    self.consumer.poll(POLL_TIMEOUT);
                }
                result => return result,
            }
        }
    }
}

/// Who is in the group, if anybody is and the cluster tells.
pub(super) async fn current_member(topic: &DeadLetterTopic) -> Option<String> {
    let group = group_of(&topic.name);
    let answer = topic.cluster.query(move |client, timeout| {
        let groups = client.fetch_group_list(Some(&group), timeout)?;
        let members = groups.groups().iter().flat_map(GroupInfo::members);
        Ok(members
            .map(|member| format!("client {} at {}", member.client_id(), member.client_host()))
            .next())
    });
    answer.await.ok().flatten()
}
