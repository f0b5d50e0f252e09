//! Kafka as publisher, where nobody tells how much a topic takes: on real brokers.

use posthaste_core::Message;
use posthaste_core::publisher::Outcome;
use posthaste_publishers::kafka::KafkaPublisher;

use crate::support::kafka::{Topic, failure, shared};
use crate::support::publish;

/// A topic of which a request may have 20,000 bytes, and a publisher that cannot know it: a topic's settings are the one
/// answer that is too long for it, which fails the question as a missing right does.
async fn scene() -> Option<(Topic, KafkaPublisher)> {
    let topic = Topic::create(&shared()?, 1, &[("max.message.bytes", "20000")]).await;
    let publisher = topic.publisher(&[
        ("receive.message.max.bytes", "1000"),
        ("linger.ms", "50"),
        ("retry.backoff.ms", "10"),
    ]);
    Some((topic, publisher))
}

fn message(topic: &Topic, key: &str, n: usize, bytes: usize) -> Message {
    Message::new(topic.name.as_str(), format!("{n:0bytes$}")).key(key)
}

/// Publishes as a relay does: what was not attempted comes again. Returns what failed, with its error.
async fn relay(publisher: &KafkaPublisher, mut messages: Vec<Message>) -> Vec<(Message, String)> {
    let mut failed = Vec::new();
    // From a megabyte to less than a message it is not far.
    for _ in 0..12 {
        let outcomes = publish(publisher, &messages).await;
        let mut left = Vec::new();
        for (message, outcome) in messages.into_iter().zip(outcomes) {
            match outcome {
                Outcome::Delivered(_) => {}
                Outcome::NotAttempted => left.push(message),
                outcome => failed.push((message, failure(&outcome).message)),
            }
        }
        messages = left;
        if messages.is_empty() {
            break;
        }
    }
    assert!(messages.is_empty(), "{} messages never went out", messages.len());
    failed
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_fit_one_by_one_are_not_given_up_because_a_request_of_many_was_refused() {
    let Some((topic, publisher)) = scene().await else {
        return;
    };
    let messages = (0..100).map(|n| message(&topic, &format!("k{n}"), n, 1_000)).collect();
    assert_eq!(relay(&publisher, messages).await, []);
    assert_eq!(topic.records().len(), 100, "and nothing twice");

    // It is remembered: the next ones go out at once.
    let messages: Vec<_> = (0..100).map(|n| message(&topic, &format!("l{n}"), n, 1_000)).collect();
    assert_eq!(publish(&publisher, &messages).await, vec![Outcome::DELIVERED; 100]);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_keep_their_order_while_a_limit_is_found() {
    let Some((topic, publisher)) = scene().await else {
        return;
    };
    let keys = ["a", "b", "c"];
    for from in [0, 50] {
        let messages = (from..from + 50).flat_map(|n| keys.map(|key| message(&topic, key, n, 1_000)));
        assert_eq!(relay(&publisher, messages.collect()).await, []);
    }
    for key in keys {
        let numbers: Vec<usize> = topic.payloads(key).iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_message_that_is_too_large_alone_is_refused_for_its_size() {
    let Some((topic, publisher)) = scene().await else {
        return;
    };
    let mut messages: Vec<_> = (0..60).map(|n| message(&topic, &format!("k{n}"), n, 1_000)).collect();
    messages[30] = message(&topic, "k30", 30, 30_000);
    let large = messages[30].clone();
    let failed = relay(&publisher, messages).await;
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0].0, large);
    assert!(failed[0].1.contains("too large"), "{}", failed[0].1);
    assert_eq!(topic.records().len(), 59);
}
