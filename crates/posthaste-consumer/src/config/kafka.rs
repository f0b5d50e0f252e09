//! The settings as properties of librdkafka.

use posthaste_kafka::{Connection, dead_letter};
use rdkafka::ClientConfig;

use super::{Assignment, ConsumerConfig, InvalidConfig, OffsetReset};

/// Properties that the consumer's promises rest on.
const OWNED: [(&str, &str); 7] = [
    (
        "enable.auto.commit",
        "leave it out; offsets are committed by hand, once what they cover is durable, or events would be lost",
    ),
    (
        "enable.auto.offset.store",
        "leave it out; offsets are stored once what they cover is durable, or events would be lost",
    ),
    ("group.id", "name the group in `group` instead"),
    ("max.poll.records", "set `max_poll_records` instead"),
    (
        "group.protocol",
        "leave it out; sessions and rebalances are the client's affair here, as in the protocol `classic`",
    ),
    (
        "enable.partition.eof",
        "leave it out; a consumer has no use for the end of a partition",
    ),
    (
        "transactional.id",
        "leave it out; the inbox, in the handler's own database, is what makes effects happen once",
    ),
];

/// What clients of every kind understand: the way to the cluster and the right to be there. The rest is the consumer's
/// own, and the other clients would complain of it in their logs.
const SHARED: [&str; 14] = [
    "allow.",
    "api.version.",
    "broker.",
    "client.",
    "connections.",
    "debug",
    "enable.ssl.",
    "log.",
    "reconnect.",
    "retry.backoff.",
    "sasl.",
    "security.",
    "socket.",
    "ssl",
];

impl ConsumerConfig {
    /// The properties that the consumer runs with: Posthaste's defaults, the fields, and `connection.properties` over
    /// both. Only `auto.offset.reset` is `earliest` where it says `latest`: a new group's position is committed before it
    /// reads.
    pub fn consumer_properties(&self) -> Result<ClientConfig, InvalidConfig> {
        self.connection.refuse(&OWNED)?;
        let fields = [
            ("group.id", self.group.clone()),
            ("enable.auto.commit", false.to_string()),
            ("enable.auto.offset.store", false.to_string()),
            ("session.timeout.ms", self.session_timeout.as_millis().to_string()),
            ("heartbeat.interval.ms", self.heartbeat_interval.as_millis().to_string()),
            ("max.poll.interval.ms", self.max_poll_interval.as_millis().to_string()),
            ("auto.offset.reset", reset(self.auto_offset_reset).to_owned()),
            ("partition.assignment.strategy", strategy(self.assignment).to_owned()),
            (
                "queued.max.messages.kbytes",
                (self.prefetch_bytes / 1024).max(1).to_string(),
            ),
            // A topic or a partition that was added is found this soon.
            ("topic.metadata.refresh.interval.ms", 30_000.to_string()),
            ("statistics.interval.ms", 15_000.to_string()),
        ];
        let defaults: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Ok(self.connection.client_config(&defaults)?)
    }

    /// The properties of the producer that writes dead letters.
    pub(crate) fn dead_letter_properties(&self) -> Result<ClientConfig, InvalidConfig> {
        let others = [("topic.metadata.propagation.max.ms", "5000")];
        Ok(dead_letter::producer_config(&shared(&self.connection), &others)?)
    }
}

pub(crate) fn shared(connection: &Connection) -> Connection {
    let is_shared = |name: &str| SHARED.iter().any(|prefix| name.starts_with(prefix));
    let mut connection = connection.clone();
    connection.properties.retain(|name, _| is_shared(name));
    connection
}

fn reset(reset: OffsetReset) -> &'static str {
    match reset {
        OffsetReset::Latest => "latest",
        OffsetReset::Earliest => "earliest",
        OffsetReset::Error => "error",
    }
}

fn strategy(assignment: Assignment) -> &'static str {
    match assignment {
        Assignment::Range => "range",
        Assignment::RoundRobin => "roundrobin",
        Assignment::CooperativeSticky => "cooperative-sticky",
    }
}
