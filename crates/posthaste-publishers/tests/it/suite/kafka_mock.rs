//! A topic on brokers within the process, which die and fall silent on demand.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::{Message, Publisher};
use posthaste_testkit::publishing::{left_out, message};
use posthaste_testkit::{Ability, Counterpart, Disturbance};

use super::kafka::arrived;
use crate::support::kafka::Topic;
use crate::support::mock::{Cluster, all_brokers, cluster, publisher, slow};

const ANSWER_WITHIN: Duration = Duration::from_secs(4);

struct MockTopic {
    cluster: Cluster,
    topic: Arc<Topic>,
    publisher: Arc<dyn Publisher>,
}

impl Counterpart for MockTopic {
    fn lacks() -> &'static [(Ability, &'static str)] {
        &[
            (Ability::Panic, "no code of others runs"),
            (Ability::Throttle, "the client library waits by itself"),
            (Ability::Full, "these brokers have no disk"),
            (Ability::Neighbour, "these brokers make every topic that is asked for"),
        ]
    }

    async fn fresh(_: &[Ability]) -> Option<Self> {
        let (cluster, topic) = cluster();
        let properties = [("message.max.bytes", "2000"), ("reconnect.backoff.max.ms", "200")];
        Some(Self {
            publisher: Arc::new(publisher(&topic, &properties, ANSWER_WITHIN)),
            cluster,
            topic: Arc::new(topic),
        })
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::clone(&self.publisher)
    }

    fn topic(&self) -> String {
        self.topic.name.clone()
    }

    fn answer_within(&self) -> Duration {
        ANSWER_WITHIN
    }

    async fn arrived(&self) -> Vec<String> {
        arrived(&self.topic).await
    }

    async fn disturb(&self, disturbance: Disturbance) {
        match disturbance {
            Disturbance::Silence => slow(&self.cluster, Duration::from_hours(1)),
            Disturbance::Death => all_brokers(&self.cluster, false),
            Disturbance::Throttle(_) | Disturbance::Full => unreachable!("it is lacked"),
        }
    }

    async fn recover(&self) {
        slow(&self.cluster, Duration::ZERO);
        // Answers that were held back come no more once their connections are gone.
        all_brokers(&self.cluster, false);
        all_brokers(&self.cluster, true);
    }

    fn refused(&self, name: &str) -> Message {
        self.too_large(name)
    }

    fn too_large(&self, name: &str) -> Message {
        message(&self.topic.name, name, &"x".repeat(3_000))
    }
}

posthaste_testkit::publisher_suite!(MockTopic);

#[test]
fn what_is_left_out() {
    insta::assert_snapshot!(left_out::<MockTopic>());
}
