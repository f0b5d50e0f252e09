//! Kafka as publisher, with few messages under way.

use std::time::{Duration, Instant};

use futures::future::join_all;
use posthaste_core::publisher::Outcome;
use posthaste_publishers::kafka::KafkaPublisher;

use crate::support::kafka::Topic;
use crate::support::mock::{SOON, cluster, keyed, numbers, publisher, run, slow};
use crate::support::{publish, publish_at_first};

/// The quickest of some messages, each published when the one before is acknowledged: how long others take is also up to the
/// machine.
async fn quickest(publisher: &KafkaPublisher, topic: &Topic) -> Duration {
    let mut quickest = Duration::MAX;
    for n in 0..50 {
        let begun = Instant::now();
        let outcomes = publish(publisher, &[keyed(topic, &format!("k{n}"), n)]).await;
        assert_eq!(outcomes, [Outcome::DELIVERED]);
        quickest = quickest.min(begun.elapsed());
    }
    quickest
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_is_alone_waits_for_no_company_unless_it_is_told_to() {
    let (_cluster, topic) = cluster();
    let prompt = publisher(&topic, &[], SOON);
    publish_at_first(&prompt, &run(&topic, "first", 0..1)).await;
    let quickest_prompt = quickest(&prompt, &topic).await;
    assert!(quickest_prompt < Duration::from_millis(2), "{quickest_prompt:?}");
    let patient = publisher(&topic, &[("linger.ms", "20")], SOON);
    publish_at_first(&patient, &run(&topic, "first", 0..1)).await;
    let quickest_patient = quickest(&patient, &topic).await;
    assert!(quickest_patient >= Duration::from_millis(20), "{quickest_patient:?}");
}

/// Each batch has one message of the key, and is handed over before the one before is answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_with_a_message_in_each_batch_does_not_wait_for_each_answer() {
    const BATCHES: usize = 100;
    const ROUND_TRIP: Duration = Duration::from_millis(50);
    let (cluster, topic) = cluster();
    let publisher = publisher(&topic, &[], SOON);
    // Both producers are there, and know the partition.
    publish_at_first(&publisher, &run(&topic, "k", 0..2)).await;
    publish_at_first(&publisher, &run(&topic, "first", 0..1)).await;
    slow(&cluster, ROUND_TRIP);
    let batches: Vec<_> = (2..2 + BATCHES).map(|n| run(&topic, "k", n..n + 1)).collect();
    let begun = Instant::now();
    let outcomes = join_all(batches.iter().map(|batch| publish(&publisher, batch))).await;
    let took = begun.elapsed();
    assert!(
        outcomes.iter().all(|outcomes| *outcomes == [Outcome::DELIVERED]),
        "{outcomes:?}"
    );
    assert_eq!(topic.payloads("k"), numbers(0..2 + BATCHES));
    let one_by_one = ROUND_TRIP * u32::try_from(BATCHES).unwrap();
    assert!(took < one_by_one / 3, "{took:?}");
}
