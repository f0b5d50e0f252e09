//! Brokers within the process, which fail on demand.
#![allow(dead_code, reason = "each test binary uses its own part of it")]

use std::time::Duration;

use posthaste_core::Message;
use posthaste_publishers::kafka::KafkaPublisher;
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use super::kafka::Topic;

pub const SOON: Duration = Duration::from_secs(20);

pub type Cluster = MockCluster<'static, DefaultProducerContext>;

pub fn cluster() -> (Cluster, Topic) {
    let cluster = MockCluster::new(3).unwrap();
    let topic = Topic::absent(&cluster.bootstrap_servers());
    cluster.create_topic(&topic.name, 1, 3).unwrap();
    (cluster, topic)
}

pub fn publisher(topic: &Topic, properties: &[(&str, &str)], answer_within: Duration) -> KafkaPublisher {
    let mut options = topic.options();
    options.answer_within = Some(answer_within);
    for (name, value) in properties {
        options.connection = options.connection.property(*name, *value);
    }
    KafkaPublisher::new(options).unwrap()
}

pub fn keyed(topic: &Topic, key: &str, n: usize) -> Message {
    Message::new(topic.name.as_str(), n.to_string()).key(key)
}

pub fn run(topic: &Topic, key: &str, numbers: std::ops::Range<usize>) -> Vec<Message> {
    numbers.map(|n| keyed(topic, key, n)).collect()
}

pub fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

pub fn refuse(cluster: &Cluster, errors: &[RDKafkaRespErr]) {
    cluster.request_errors(RDKafkaApiKey::Produce, errors);
}

pub fn all_brokers(cluster: &Cluster, up: bool) {
    for broker in 1..=3 {
        if up {
            cluster.broker_up(broker).unwrap();
        } else {
            cluster.broker_down(broker).unwrap();
        }
    }
}

/// Makes every answer take this long.
pub fn slow(cluster: &Cluster, round_trip: Duration) {
    for broker in 1..=3 {
        cluster.broker_round_trip_time(broker, round_trip).unwrap();
    }
}
