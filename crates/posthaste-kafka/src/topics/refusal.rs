//! Why a cluster does not create a topic, or would create one that is of no use.

use rdkafka::error::RDKafkaErrorCode as Code;

use super::spec::{MIN_INSYNC, WantedTopic};
use crate::error::explain;

/// What a code means for this topic. The brokers' own sentence does not come through the client library.
pub(super) fn refusal(code: Code, wanted: &WantedTopic, brokers: usize) -> String {
    let what = match (code, wanted.replication_factor) {
        (Code::InvalidReplicationFactor, Some(replicas)) => format!(
            "the cluster has {brokers} brokers, which cannot keep {replicas} copies; lower replication_factor or start \
             more brokers"
        ),
        (Code::InvalidReplicationFactor, None) => format!(
            "the cluster has {brokers} brokers, fewer than its default.replication.factor; set replication_factor"
        ),
        (Code::InvalidPartitions, _) => {
            format!("the cluster refuses {} partitions; set partitions", wanted.partitions)
        }
        (Code::InvalidConfig, _) => {
            let names: Vec<_> = wanted
                .config
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            format!(
                "the cluster refuses one of these settings: {}; correct its name or its value",
                names.join(", ")
            )
        }
        (Code::PolicyViolation, _) => {
            "a policy of the cluster (create.topic.policy.class.name) refuses it; ask the operators of the cluster what it \
             allows"
                .to_owned()
        }
        (Code::InvalidTopic, _) => {
            "a topic is there whose name Kafka cannot tell from it, since `.` and `_` count as one; rename it"
                .to_owned()
        }
        (Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed, _) => {
            "access is denied; grant this client's user Create and Describe on the topic with kafka-acls.sh".to_owned()
        }
        _ => return explain(code, Some(&wanted.name)).text,
    };
    format!("{what} ({code:?})")
}

/// A topic that asks for more copies in sync than it will have takes no record.
pub(super) fn unwritable(wanted: &WantedTopic, default_replicas: Option<u32>) -> Option<String> {
    let replicas = wanted.replication_factor.or(default_replicas)?;
    let in_sync: u32 = wanted.config.get(MIN_INSYNC)?.parse().ok()?;
    (in_sync > replicas).then(|| {
        format!(
            "min.insync.replicas = {in_sync}, but the cluster's default.replication.factor is {replicas}, so nothing \
             could be written; set replication_factor or lower min_insync_replicas"
        )
    })
}
