//! Settings of a consumer.

use std::time::Duration;

use posthaste_core::RetryPolicy;
use posthaste_kafka::Connection;
use serde::Deserialize;

/// Settings of a consumer. [`ConsumerConfig::new`] takes those that have no default.
///
/// Those that are properties of librdkafka have a field here for the common case; the same property in
/// `connection.properties` overrides the field.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct ConsumerConfig {
    /// The cluster, and further properties of librdkafka.
    pub connection: Connection,
    /// The consumer group. Consumers of one group share the partitions. Name the inbox after it.
    pub group: String,
    /// The topics to read. Each needs a dead-letter topic `{topic}.dlq`.
    pub topics: Vec<String>,
    /// Most events of a partition that make a batch. Offsets are committed after each; after a crash the events of the
    /// batch come again, and the inbox skips those that were handled. Defaults to 100.
    pub max_poll_records: u32,
    /// Most events of a partition that wait for their turn beside the batch. A partition whose queue is full is not read
    /// until there is room. Defaults to 100.
    pub queue_size: u32,
    /// Most bytes of a partition that are fetched ahead of the queue (`queued.max.messages.kbytes`, in whole kilobytes), and
    /// as many again that wait in the queue and the batch, above which no further record is taken. Bounds memory together
    /// with `queue_size`. Defaults to 4 MiB.
    pub prefetch_bytes: u64,
    /// A consumer that sends no heartbeat for so long is taken for dead (`session.timeout.ms`). Heartbeats are sent
    /// whatever the handlers do. Defaults to 30 s.
    #[serde(with = "humantime_serde")]
    pub session_timeout: Duration,
    /// How often heartbeats are sent (`heartbeat.interval.ms`). At most a third of `session_timeout`. Defaults to 10 s.
    #[serde(with = "humantime_serde")]
    pub heartbeat_interval: Duration,
    /// A consumer that asks for nothing for so long is taken for stuck (`max.poll.interval.ms`). Slow handlers do not
    /// count: the consumer goes on asking while they work. Defaults to 5 min.
    #[serde(with = "humantime_serde")]
    pub max_poll_interval: Duration,
    /// Where a group begins that has no offset (`auto.offset.reset`). Defaults to `latest`.
    pub auto_offset_reset: OffsetReset,
    /// How partitions are shared out (`partition.assignment.strategy`). The same in the whole group. Defaults to `range`.
    pub assignment: Assignment,
    /// Attempts, and the waits between them. A partition waits with its event; others go on. Then the event goes to the
    /// dead-letter topic. Defaults to 5 attempts and the usual backoff, about 12 s in all.
    pub retry: RetryPolicy,
    /// How long a handler may take. One that does not come to an end has failed: its transaction is rolled back, and the
    /// event is tried again or sent to the dead-letter topic. Without a limit a call that never returns would stop its
    /// partition for good, while the consumer keeps its place in the group. Defaults to 4 min.
    #[serde(with = "humantime_serde")]
    pub handler_timeout: Duration,
    /// How long the inbox may take to begin a transaction, to record an event or to commit. After that the database counts
    /// as unavailable: the event waits and uses up no attempt. Above the pool's own limit for a connection (30 s with
    /// sqlx). Defaults to 45 s.
    #[serde(with = "humantime_serde")]
    pub inbox_timeout: Duration,
    /// What happens to events that no handler is registered for. Defaults to `skip`.
    pub unhandled: Unhandled,
    /// What happens to records without a value. Defaults to `dead-letter`.
    pub tombstones: Tombstones,
    /// What happens to a record that is too large for its dead-letter topic. Defaults to `stub`.
    pub too_large: TooLarge,
    /// How long the handler of a partition that goes to another consumer may take to finish; then it is abandoned and
    /// its transaction rolled back. Well below `max_poll_interval`. Defaults to 10 s.
    #[serde(with = "humantime_serde")]
    pub revoke_grace: Duration,
    /// The same, when the consumer is asked to stop. Defaults to 10 s.
    #[serde(with = "humantime_serde")]
    pub shutdown_grace: Duration,
    /// How long the inbox remembers what was handled. At least as long as the brokers keep the topics (`retention.ms`),
    /// or a replay is handled again. Defaults to 7 days.
    #[serde(with = "humantime_serde")]
    pub inbox_retention: Duration,
    /// How often old records of the inbox are removed. Defaults to 10 min.
    #[serde(with = "humantime_serde")]
    pub janitor_interval: Duration,
}

/// Where a group begins that has no offset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OffsetReset {
    /// With what comes from its first assignment on; that position is committed at once. A group whose offsets were
    /// forgotten does not handle days of events anew. But a partition that is added to the topic is without an offset,
    /// too: what is written to it before the group finds it, half a minute later, is passed over. A partition without a
    /// leader at that moment is not read until it has one; the group then begins with what came in the hour before, to be sure
    /// that it passes nothing over.
    #[default]
    Latest,
    /// With the oldest event that is still there.
    Earliest,
    /// Nowhere: the consumer ends with an error.
    Error,
}

/// How partitions are shared out among the consumers of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Assignment {
    /// Neighbouring partitions of each topic to each consumer, so that equal keys of topics with equally many partitions
    /// come to the same one. In a rebalance all members commit, give everything up and take it again.
    #[default]
    Range,
    /// Partitions of all topics in turn. Rebalances as with `range`.
    RoundRobin,
    /// Only what moves is given up; the rest is worked on meanwhile. An offset that is committed in that moment may
    /// make the client give up everything it has, after all: nothing is lost or done twice, but some of it is begun
    /// again. That is why it is not the default.
    CooperativeSticky,
}

/// What happens to events that no handler is registered for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Unhandled {
    /// They are passed over.
    #[default]
    Skip,
    /// They go to the dead-letter topic.
    DeadLetter,
}

/// What happens to records without a value and without an event's headers, with which compacted topics delete a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Tombstones {
    /// They are passed over.
    Skip,
    /// They go to the dead-letter topic, as everything does that is no event.
    #[default]
    DeadLetter,
}

/// What happens to a record that its dead-letter topic does not take even without the error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TooLarge {
    /// A stub takes its place there: all that is known of the death, and where the record is. It stays in its topic for as
    /// long as brokers keep that.
    #[default]
    Stub,
    /// The partition waits until the dead-letter topic takes it.
    Wait,
}

impl Default for ConsumerConfig {
    fn default() -> Self {
        Self {
            connection: Connection::default(),
            group: String::new(),
            topics: Vec::new(),
            max_poll_records: 100,
            queue_size: 100,
            prefetch_bytes: 4 << 20,
            session_timeout: Duration::from_secs(30),
            heartbeat_interval: Duration::from_secs(10),
            max_poll_interval: Duration::from_mins(5),
            auto_offset_reset: OffsetReset::default(),
            assignment: Assignment::default(),
            retry: RetryPolicy {
                max_attempts: 5,
                ..RetryPolicy::default()
            },
            handler_timeout: Duration::from_mins(4),
            inbox_timeout: Duration::from_secs(45),
            unhandled: Unhandled::default(),
            tombstones: Tombstones::default(),
            too_large: TooLarge::default(),
            revoke_grace: Duration::from_secs(10),
            shutdown_grace: Duration::from_secs(10),
            inbox_retention: Duration::from_hours(168),
            janitor_interval: Duration::from_mins(10),
        }
    }
}

impl ConsumerConfig {
    /// Default settings for a group that reads some topics.
    pub fn new<T: Into<String>>(
        connection: Connection,
        group: impl Into<String>,
        topics: impl IntoIterator<Item = T>,
    ) -> Self {
        Self {
            connection,
            group: group.into(),
            topics: topics.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }
}
