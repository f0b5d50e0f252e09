//! Kafka as publisher, while brokers come and go.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use posthaste_core::Message;
use posthaste_core::publisher::{ErrorKind, Outcome};
use posthaste_publishers::kafka::KafkaPublisher;
use posthaste_servers::KafkaCluster;

use crate::support::kafka;
use crate::support::kafka::{TIMEOUT, Topic, failure, without_kafka};
use crate::support::{publish, publish_at_first};

fn cluster() -> Option<KafkaCluster> {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
    (!without_kafka()).then(|| KafkaCluster::start(parent).unwrap())
}

fn publisher(topic: &Topic, answer_within: Duration) -> KafkaPublisher {
    let mut options = topic.options();
    options.answer_within = Some(answer_within);
    KafkaPublisher::new(options).unwrap()
}

fn run(topic: &Topic, key: &str, numbers: std::ops::Range<usize>) -> Vec<Message> {
    let message = |n: usize| Message::new(topic.name.as_str(), n.to_string()).key(key);
    numbers.map(message).collect()
}

/// Proves pitfalls 5 and 32. One cluster serves both parts, because it takes a while to start.
#[tokio::test(flavor = "multi_thread")]
async fn brokers_come_and_go() {
    let Some(cluster) = cluster() else { return };
    let brokers = cluster.bootstrap();
    nothing_counts_as_delivered_without_enough_replicas(&cluster, &brokers).await;
    keys_keep_their_order_while_brokers_are_killed(cluster, &brokers).await;
}

/// A broker alone would take the messages: only `acks=all` with `min.insync.replicas` keeps them from counting.
async fn nothing_counts_as_delivered_without_enough_replicas(cluster: &KafkaCluster, brokers: &str) {
    let topic = Topic::create(brokers, 1, &[("min.insync.replicas", "3")]).await;
    let publisher = publisher(&topic, Duration::from_secs(8));
    publish_at_first(&publisher, &run(&topic, "k", 0..2)).await;
    cluster.kill(2).unwrap();
    let mut messages = run(&topic, "k", 2..12);
    messages.extend(run(&topic, "lone", 0..1));
    // While the leader still counts the dead broker in, requests just stay unanswered.
    let outcomes = publish(&publisher, &messages).await;
    for head in [0, 10] {
        assert_eq!(failure(&outcomes[head]).kind, ErrorKind::Transport, "{outcomes:?}");
    }
    assert!(!outcomes.contains(&Outcome::DELIVERED), "{outcomes:?}");
    let lone = failure(&publish(&publisher, &messages[10..]).await[0]);
    assert_eq!(lone.kind, ErrorKind::Transport);
    assert!(lone.message.contains("min.insync.replicas"), "{lone}");

    cluster.start_again(2).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    let mut done = 0;
    while done < 10 {
        assert!(Instant::now() < deadline, "only {done} delivered");
        let outcomes = publish(&publisher, &messages[done..10]).await;
        done += outcomes.iter().take_while(|outcome| outcome.is_delivered()).count();
    }
    first_ones_are_in_order(&topic, 12);
}

/// What is not known to be delivered is sent again, with the same id and in its place, and what
/// brokers took without saying so does no harm but to be there twice.
async fn keys_keep_their_order_while_brokers_are_killed(cluster: KafkaCluster, brokers: &str) {
    let topic = Topic::create(brokers, 3, &[]).await;
    let publisher = publisher(&topic, Duration::from_secs(4));
    let over = Arc::new(AtomicBool::new(false));
    let killing = {
        let over = Arc::clone(&over);
        tokio::task::spawn_blocking(move || {
            for broker in [0, 1, 2] {
                std::thread::sleep(Duration::from_millis(700));
                cluster.kill(broker).unwrap();
                std::thread::sleep(Duration::from_secs(2));
                cluster.start_again(broker).unwrap();
            }
            over.store(true, Ordering::Relaxed);
            cluster
        })
    };
    let keys = ["a", "b", "c", "d"];
    let mut next: BTreeMap<&str, Vec<Message>> = keys.map(|key| (key, run(&topic, key, 0..100_000))).into();
    let mut sent: BTreeMap<&str, usize> = keys.map(|key| (key, 0)).into();
    let mut disturbed = 0;
    while !over.load(Ordering::Relaxed) {
        let batch: Vec<Message> = next.values().flat_map(|messages| messages[..25].to_vec()).collect();
        let outcomes = publish(&publisher, &batch).await;
        disturbed += usize::from(outcomes.iter().any(|outcome| !outcome.is_delivered()));
        for (lane, key) in outcomes.chunks(25).zip(keys) {
            let delivered = lane.iter().take_while(|outcome| outcome.is_delivered()).count();
            assert!(!lane[delivered..].contains(&Outcome::DELIVERED), "{lane:?}");
            next.get_mut(key).unwrap().drain(..delivered);
            *sent.get_mut(key).unwrap() += delivered;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let cluster = killing.await.unwrap();
    assert!(cluster.is_running());
    println!("{sent:?} delivered, {disturbed} batches disturbed");
    for key in keys {
        let found = of_key(&topic, key);
        let ids: HashSet<_> = found.iter().map(|(id, n)| (id.clone(), *n)).collect();
        let firsts = firsts(&found);
        assert_eq!(ids.len(), firsts.len(), "one id for each");
        assert!(firsts.iter().copied().eq(0..firsts.len()), "{key}: {firsts:?}");
        assert!(firsts.len() >= sent[key], "what counts as delivered is there");
    }
}

fn of_key(topic: &Topic, key: &str) -> Vec<(String, usize)> {
    let records = topic
        .records()
        .into_iter()
        .filter(|record| record.key.as_deref() == Some(key));
    let numbered = |record: kafka::Stored| {
        let number = String::from_utf8(record.payload).unwrap().parse().unwrap();
        (record.headers["ce_id"].clone(), number)
    };
    records.map(numbered).collect()
}

/// The numbers in the order in which each was there first.
fn firsts(found: &[(String, usize)]) -> Vec<usize> {
    let mut seen = HashSet::new();
    found.iter().map(|(_, n)| *n).filter(|n| seen.insert(*n)).collect()
}

fn first_ones_are_in_order(topic: &Topic, count: usize) {
    let firsts = firsts(&of_key(topic, "k"));
    assert!(firsts.iter().copied().eq(0..count), "{firsts:?}");
}
