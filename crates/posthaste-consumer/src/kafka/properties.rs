//! The settings as properties of librdkafka.

use std::time::Duration;

use posthaste_kafka::{Connection, dead_letter};
use rdkafka::ClientConfig;

use crate::config::{Assignment, ConsumerConfig, InvalidConfig, OffsetReset, check};

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
    /// Checks that the settings can work together.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        self.check_handling()?;
        self.check_topics()?;
        // The properties have the last word, so they are what is checked.
        let effective = self.consumer_properties()?;
        let millis = |name: &str| {
            let value = effective.get(name).and_then(|value| value.parse().ok());
            value.map(Duration::from_millis).unwrap_or_default()
        };
        let (session, heartbeat) = (millis("session.timeout.ms"), millis("heartbeat.interval.ms"));
        check(
            heartbeat <= session / 3 && !heartbeat.is_zero(),
            "heartbeat_interval",
            heartbeat,
            "must be above 0 and at most a third of session_timeout, so that two lost heartbeats are not the end",
        )?;
        let poll = millis("max.poll.interval.ms");
        check(
            poll >= session,
            "max_poll_interval",
            poll,
            "must be at least session_timeout; librdkafka refuses less",
        )?;
        check(
            self.revoke_grace <= poll / 2,
            "revoke_grace",
            self.revoke_grace,
            "must be at most half of max_poll_interval, or the group goes on without this consumer",
        )
    }

    fn check_topics(&self) -> Result<(), InvalidConfig> {
        check(
            !self.topics.is_empty(),
            "topics",
            &self.topics,
            "name at least one topic, such as [\"order-events\"]",
        )?;
        let good = |topic: &&String| !topic.trim().is_empty() && !topic.starts_with('^');
        check(
            self.topics.iter().all(|topic| good(&topic)),
            "topics",
            &self.topics,
            "name each topic in full; patterns are not understood, because each topic needs its dead-letter topic",
        )?;
        check(
            !self.topics.iter().any(|topic| dead_letter::origin_of(topic).is_some()),
            "topics",
            &self.topics,
            "leave dead-letter topics out; bring their events back with `posthaste dlq replay`",
        )
    }

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
}

/// The properties of the producer that writes dead letters.
pub(super) fn dead_letter_properties(config: &ConsumerConfig) -> Result<ClientConfig, InvalidConfig> {
    let others = [("topic.metadata.propagation.max.ms", "5000")];
    Ok(dead_letter::producer_config(&shared(&config.connection), &others)?)
}

/// The connection, with the properties that all clients understand.
pub(super) fn shared(connection: &Connection) -> Connection {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The producer of dead letters and the client that asks about topics log in the same way, and get no properties that
    /// only a consumer knows.
    #[test]
    fn other_clients_share_the_way_to_the_cluster_only() {
        let connection = Connection::to("127.0.0.1:9092")
            .property("sasl.username", "shop")
            .property("socket.timeout.ms", "5000")
            .property("fetch.min.bytes", "1");
        let config = ConsumerConfig::new(connection, "statistics", ["order-events"]);
        let letters = dead_letter_properties(&config).unwrap();
        assert_eq!(letters.get("sasl.username"), Some("shop"));
        assert_eq!(letters.get("socket.timeout.ms"), Some("5000"));
        assert_eq!(letters.get("fetch.min.bytes"), None);
        assert_eq!(letters.get("acks"), Some("all"));
        assert_eq!(letters.get("enable.idempotence"), Some("true"));
    }
}
