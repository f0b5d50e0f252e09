//! Kafka's failures in one table: what each means, and what to do about it.

use std::time::Duration;

use posthaste_core::publisher::ErrorKind;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

/// What a failure comes down to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// Brokers cannot be reached or do not answer.
    BrokerUnavailable,
    /// The partition has no leader, or too few replicas in sync.
    PartitionUnavailable,
    /// The brokers do not know who we are.
    Authentication,
    /// They know, and do not let us use the topic or the group.
    Authorisation,
    /// They know, and do not let us use the cluster.
    ClusterAuthorisation,
    /// The topic, or the partition, is not there.
    UnknownTopic,
    /// The record is larger than the topic or the cluster takes.
    TooLarge,
    /// The record is refused for what it is.
    Refused,
    /// The client's own queue is full: wait.
    QueueFull,
    /// The cluster throttles.
    Throttled,
    /// The client has come to an end and must be made anew.
    Fatal,
    /// Settings that this cluster does not support.
    Unsupported,
    /// It was taken back before it was sent.
    Withdrawn,
    /// Anything else.
    Other,
}

impl Cause {
    /// How the engine treats it.
    ///
    /// What an operator or the cluster can fix is no reason to give a message up, and costs it no attempt: it is
    /// [`ErrorKind::Transport`], of the topic where it says nothing of others.
    pub fn kind(self) -> ErrorKind {
        match self {
            Self::BrokerUnavailable
            | Self::PartitionUnavailable
            | Self::Authentication
            | Self::Authorisation
            | Self::ClusterAuthorisation
            | Self::UnknownTopic => ErrorKind::Transport,
            Self::TooLarge | Self::Refused => ErrorKind::Permanent,
            Self::Throttled => ErrorKind::Throttled {
                retry_after: Duration::from_secs(1),
            },
            Self::QueueFull | Self::Fatal | Self::Unsupported | Self::Withdrawn => ErrorKind::Transient,
            Self::Other => ErrorKind::Unknown,
        }
    }
}

/// A failure in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What it comes down to.
    pub cause: Cause,
    /// What happened and what to do, in one sentence that begins with the topic where there is one.
    pub text: String,
}

/// Explains a failure that came with a code. `topic` is the topic it is about, if it is about one.
pub fn explain(code: Code, topic: Option<&str>) -> Explanation {
    let (cause, what, remedy) = meaning(code);
    let about = topic.map_or_else(|| "Kafka".to_owned(), |topic| format!("Kafka topic {topic}"));
    let topic = topic.unwrap_or("the topic");
    Explanation {
        cause,
        text: format!("{about}: {what} ({code:?}); {}", remedy.replace("{topic}", topic)),
    }
}

/// Explains any failure of the client library.
pub fn explain_error(error: &KafkaError, topic: Option<&str>) -> Explanation {
    match (error.rdkafka_error_code(), error) {
        (Some(code), _) => explain(code, topic),
        (None, KafkaError::ClientCreation(said) | KafkaError::AdminOpCreation(said)) => Explanation {
            cause: Cause::Unsupported,
            text: format!("Kafka: {said}; correct kafka.properties"),
        },
        (None, KafkaError::Canceled) => Explanation {
            cause: Cause::Withdrawn,
            text: "Kafka: the client was stopped; try again".to_owned(),
        },
        (None, other) => Explanation {
            cause: Cause::Other,
            text: format!("Kafka: {other}; see the brokers' logs"),
        },
    }
}

const START: &str = "start the brokers or correct kafka.brokers; it is tried again until it works";
const REPLICAS: &str = "bring the missing brokers back, or lower the topic's min.insync.replicas";
const WAIT: &str = "the cluster settles this by itself; it is tried again until it does";
const SMALLER: &str =
    "make the message smaller, or raise max.message.bytes of {topic} (and kafka.properties.message.max.bytes)";
const CREATE: &str =
    "create it with `posthaste topics apply` or kafka-topics.sh, or correct the message's topic or publisher.routes";
const CREDENTIALS: &str = "correct sasl.username and sasl.password, or the client's certificate, in kafka.properties";
const TLS: &str = "check security.protocol, ssl.ca.location and the broker's certificate";
const GRANT: &str = "grant this client's user the right with kafka-acls.sh";
const CONTENT: &str = "correct what the application enqueues, or the topic's settings";
const TIMESTAMP: &str = "leave publisher.timestamp out, correct this host's clock, or raise \
                         message.timestamp.before.max.ms and message.timestamp.after.max.ms of {topic}";
const SETTINGS: &str = "correct kafka.properties, or upgrade the brokers";
const REBUILD: &str = "a new producer takes over by itself";
const LOGS: &str = "see the brokers' logs";

#[expect(clippy::too_many_lines, reason = "one table, to be read from top to bottom")]
fn meaning(code: Code) -> (Cause, &'static str, &'static str) {
    match code {
        Code::BrokerTransportFailure | Code::NetworkException => {
            (Cause::BrokerUnavailable, "the connection to a broker failed", START)
        }
        Code::AllBrokersDown | Code::BrokerNotAvailable | Code::UnknownBroker | Code::NodeUpdate => {
            (Cause::BrokerUnavailable, "no broker can be reached", START)
        }
        Code::Resolve => (
            Cause::BrokerUnavailable,
            "a broker's host name cannot be resolved",
            START,
        ),
        Code::MessageTimedOut | Code::TimedOutQueue => (
            Cause::BrokerUnavailable,
            "no broker acknowledged the message in time",
            "start the brokers, or raise delivery.timeout.ms in kafka.properties; it is tried again until it works",
        ),
        Code::RequestTimedOut | Code::OperationTimedOut | Code::WaitCache => {
            (Cause::BrokerUnavailable, "no broker answered in time", START)
        }
        Code::LeaderNotAvailable
        | Code::NotLeaderForPartition
        | Code::ReplicaNotAvailable
        | Code::FencedLeaderEpoch
        | Code::UnknownLeaderEpoch
        | Code::StaleBrokerEpoch
        | Code::StaleControllerEpoch
        | Code::NotController
        | Code::PreferredLeaderNotAvailable
        | Code::EligibleLeadersNotAvailable
        | Code::RebootstrapRequired => (Cause::PartitionUnavailable, "the cluster is choosing a leader", WAIT),
        Code::CoordinatorLoadInProgress
        | Code::CoordinatorNotAvailable
        | Code::NotCoordinator
        | Code::WaitingForCoordinator => (Cause::BrokerUnavailable, "the cluster is choosing a coordinator", WAIT),
        Code::NotEnoughReplicas | Code::NotEnoughReplicasAfterAppend | Code::ISRInsufficient => (
            Cause::PartitionUnavailable,
            "fewer replicas are in sync than min.insync.replicas asks for",
            REPLICAS,
        ),
        Code::KafkaStorageError => (Cause::PartitionUnavailable, "a broker's disk fails", LOGS),
        Code::Authentication | Code::SaslAuthenticationFailed => (
            Cause::Authentication,
            "the brokers refuse these credentials",
            CREDENTIALS,
        ),
        Code::UnsupportedSASLMechanism | Code::IllegalSASLState | Code::SecurityDisabled => (
            Cause::Authentication,
            "the brokers do not offer this way of logging in",
            "correct security.protocol and sasl.mechanism in kafka.properties",
        ),
        Code::SSL => (Cause::Authentication, "the TLS handshake failed", TLS),
        Code::TopicAuthorizationFailed => (Cause::Authorisation, "access is denied", GRANT),
        Code::ClusterAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed
        | Code::DelegationTokenAuthorizationFailed => {
            (Cause::ClusterAuthorisation, "access to the cluster is denied", GRANT)
        }
        Code::GroupAuthorizationFailed => (Cause::Authorisation, "access to the consumer group is denied", GRANT),
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownTopicId => {
            (Cause::UnknownTopic, "the topic does not exist", CREATE)
        }
        Code::UnknownPartition => (Cause::UnknownTopic, "the partition does not exist", CREATE),
        Code::MessageSizeTooLarge | Code::MessageBatchTooLarge | Code::InvalidMessageSize => {
            (Cause::TooLarge, "the message is too large", SMALLER)
        }
        Code::InvalidTopic => (
            Cause::Refused,
            "no topic can have this name",
            "use at most 249 of letters, digits, `.`, `_` and `-`, or route the message elsewhere by publisher.routes",
        ),
        Code::InvalidRecord | Code::InvalidMessage | Code::BadMessage => (
            Cause::Refused,
            "the broker refuses the record; a compacted topic takes none without a key",
            CONTENT,
        ),
        // A matter of the topic's settings, or of a clock.
        Code::InvalidTimestamp => (
            Cause::Unsupported,
            "the broker refuses the record's timestamp",
            TIMESTAMP,
        ),
        Code::PolicyViolation => (Cause::Refused, "a policy of the cluster refuses it", CONTENT),
        Code::KeySerialization | Code::ValueSerialization => (Cause::Refused, "it cannot be written", CONTENT),
        // Its neighbour in the request was refused, not this one.
        Code::InvalidDifferentRecord => (
            Cause::Withdrawn,
            "another record of the same request was refused",
            "it is tried again without it",
        ),
        Code::QueueFull => (
            Cause::QueueFull,
            "the producer's queue is full",
            "raise queue.buffering.max.messages or queue.buffering.max.kbytes in kafka.properties",
        ),
        Code::ThrottlingQuotaExceeded => (
            Cause::Throttled,
            "a quota is used up",
            "it is tried again after a while",
        ),
        Code::Fatal
        | Code::OutOfOrderSequenceNumber
        | Code::UnknownProducerId
        | Code::InvalidProducerEpoch
        | Code::InvalidProducerIdMapping
        | Code::ProducerFenced
        | Code::Fenced
        | Code::GaplessGuarantee
        | Code::Inconsistent => (
            Cause::Fatal,
            "the producer and the brokers disagree on what was sent",
            REBUILD,
        ),
        Code::UnsupportedVersion
        | Code::UnsupportedFeature
        | Code::UnsupportedCompressionType
        | Code::UnsupportedForMessageFormat
        | Code::BadCompression
        | Code::NotImplemented
        | Code::InvalidRequiredAcks
        | Code::InvalidConfig
        | Code::InvalidArgument
        | Code::InvalidRequest => (Cause::Unsupported, "the brokers do not support this setting", SETTINGS),
        Code::PurgeQueue | Code::PurgeInflight | Code::BrokerDestroy | Code::DestroyBroker | Code::Interrupted => {
            (Cause::Withdrawn, "the client was stopped", "it is tried again")
        }
        _ => (Cause::Other, "an unexpected failure", LOGS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_cluster_or_an_operator_can_fix_counts_as_transport() {
        for code in [
            Code::BrokerTransportFailure,
            Code::AllBrokersDown,
            Code::MessageTimedOut,
            Code::RequestTimedOut,
            Code::NotLeaderForPartition,
            Code::LeaderNotAvailable,
            Code::NetworkException,
            Code::NotEnoughReplicas,
            Code::NotEnoughReplicasAfterAppend,
            Code::BrokerNotAvailable,
            Code::Resolve,
            Code::CoordinatorNotAvailable,
            Code::Authentication,
            Code::SaslAuthenticationFailed,
            Code::SSL,
            Code::TopicAuthorizationFailed,
            Code::ClusterAuthorizationFailed,
            Code::UnknownTopicOrPartition,
        ] {
            assert_eq!(explain(code, None).cause.kind(), ErrorKind::Transport, "{code:?}");
        }
    }

    /// Proves pitfall 26.
    #[test]
    fn only_what_no_operator_can_fix_is_permanent() {
        let permanent = |code| explain(code, None).cause.kind() == ErrorKind::Permanent;
        for code in [
            Code::MessageSizeTooLarge,
            Code::MessageBatchTooLarge,
            Code::InvalidRecord,
            Code::PolicyViolation,
            Code::InvalidTopic,
        ] {
            assert!(permanent(code), "{code:?}");
        }
        for code in [
            Code::TopicAuthorizationFailed,
            Code::ClusterAuthorizationFailed,
            Code::SaslAuthenticationFailed,
            Code::UnknownTopic,
            Code::UnknownTopicOrPartition,
            Code::InvalidDifferentRecord,
            Code::OutOfOrderSequenceNumber,
            Code::UnsupportedCompressionType,
            Code::InvalidTimestamp,
            Code::Unknown,
        ] {
            assert!(!permanent(code), "{code:?}");
        }
    }

    #[test]
    fn every_failure_is_one_sentence_with_topic_code_and_remedy() {
        let text = explain(Code::MessageSizeTooLarge, Some("order-events")).text;
        assert_eq!(
            text,
            "Kafka topic order-events: the message is too large (MessageSizeTooLarge); make the message smaller, or raise \
             max.message.bytes of order-events (and kafka.properties.message.max.bytes)"
        );
        let unknown = explain(Code::UnknownTopicOrPartition, Some("x")).text;
        assert!(unknown.contains("`posthaste topics apply`"), "{unknown}");
        let created = KafkaError::ClientCreation("nonsense".to_owned());
        assert_eq!(
            explain_error(&created, None).text,
            "Kafka: nonsense; correct kafka.properties"
        );
    }
}
