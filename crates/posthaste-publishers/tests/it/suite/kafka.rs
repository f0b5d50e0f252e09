//! A topic on real brokers. They are shared, so they neither die nor fall silent: `kafka_mock` does.

use std::sync::Arc;

use posthaste_core::{Message, Publisher};
use posthaste_testkit::publishing::{left_out, message, names_in};
use posthaste_testkit::{Ability, Counterpart};

use crate::support::kafka::{Topic, shared};

const SHARED: &str = "the brokers are shared; see those within the process";

struct RealTopic {
    topic: Arc<Topic>,
    publisher: Arc<dyn Publisher>,
}

impl Counterpart for RealTopic {
    fn lacks() -> &'static [(Ability, &'static str)] {
        &[
            (Ability::Silence, SHARED),
            (Ability::Death, SHARED),
            (Ability::Panic, "no code of others runs"),
            (Ability::Throttle, "the client library waits by itself"),
            (Ability::Full, "the brokers' disk is shared"),
        ]
    }

    async fn fresh(_: &[Ability]) -> Option<Self> {
        let topic = Topic::create(&shared()?, 1, &[("max.message.bytes", "20000")]).await;
        Some(Self {
            publisher: Arc::new(topic.publisher(&[])),
            topic: Arc::new(topic),
        })
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::clone(&self.publisher)
    }

    fn topic(&self) -> String {
        self.topic.name.clone()
    }

    async fn arrived(&self) -> Vec<String> {
        arrived(&self.topic).await
    }

    /// What a broker refuses of a single message is its size.
    fn refused(&self, name: &str) -> Message {
        self.too_large(name)
    }

    fn too_large(&self, name: &str) -> Message {
        message(&self.topic.name, name, &"x".repeat(30_000))
    }

    fn beside_a_dead_one(&self) -> (Arc<dyn Publisher>, String) {
        (self.publisher(), Topic::absent(&self.topic.brokers).name)
    }
}

/// The names of the records.
pub(super) async fn arrived(topic: &Arc<Topic>) -> Vec<String> {
    let topic = Arc::clone(topic);
    let records = tokio::task::spawn_blocking(move || topic.records()).await.unwrap();
    let records = records.into_iter();
    records
        .flat_map(|record| names_in(&String::from_utf8(record.payload).unwrap()))
        .collect()
}

posthaste_testkit::publisher_suite!(RealTopic);

#[test]
fn what_is_left_out() {
    insta::assert_snapshot!(left_out::<RealTopic>());
}
