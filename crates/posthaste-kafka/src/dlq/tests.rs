use std::collections::BTreeMap;

use rdkafka::producer::{FutureProducer, FutureRecord};

use super::replay::ReplaySession;
use super::*;
use crate::topics::{self, DeclaredTopics};

/// The shared cluster, unless the test runner said that this machine has none.
fn cluster() -> Option<Connection> {
    let without = std::env::var("POSTHASTE_TEST_WITHOUT").unwrap_or_default();
    if without.split(',').any(|server| server == "kafka") {
        eprintln!("not tested: there is no Kafka on this machine");
        return None;
    }
    let brokers = std::env::var("POSTHASTE_TEST_KAFKA").expect("POSTHASTE_TEST_KAFKA: run `cargo xtask test`");
    Some(Connection::to(&brokers))
}

async fn with_letters(connection: &Connection, count: usize) -> DeadLetterTopic {
    let topic = format!("crash-{}", uuid::Uuid::new_v4().simple());
    topics::ensure(connection, &DeclaredTopics::named([&topic]))
        .await
        .unwrap();
    let dlq = format!("{topic}.dlq");
    let producer: FutureProducer = connection.client_config(&[]).unwrap().create().unwrap();
    for n in 0..count {
        let payload = n.to_string();
        let record = FutureRecord::to(&dlq).payload(&payload).key("k");
        producer.send(record, std::time::Duration::from_secs(10)).await.unwrap();
    }
    DeadLetterTopic::open(connection, &dlq).await.unwrap()
}

/// The same topic read as if it were a dead-letter topic: what came back to it.
async fn came_back(connection: &Connection, topic: &DeadLetterTopic) -> BTreeMap<Vec<u8>, usize> {
    let origin = crate::dead_letter::origin_of(topic.name()).unwrap();
    let origin = DeadLetterTopic::open(connection, origin).await.unwrap();
    let mut counts = BTreeMap::new();
    for letter in origin.letters(&Selection::default()).await.unwrap() {
        *counts.entry(letter.payload.unwrap().to_vec()).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn a_crash_between_sending_and_recording_repeats_letters_and_loses_none() {
    let Some(connection) = cluster() else { return };
    let topic = with_letters(&connection, 3).await;
    let run = ReplaySession::begin(&topic, topic.producer().unwrap()).await.unwrap();
    let letters = topic.letters(&Selection::default()).await.unwrap();
    let (done, failure) = run.send(&letters.iter().take(2).collect::<Vec<_>>()).await;
    assert_eq!((done.len(), failure), (2, None));
    drop(run);

    assert_eq!(topic.open_letters().await.unwrap(), 3, "nothing was recorded");
    assert_eq!(topic.replay(&Selection::default(), |_| {}).await.unwrap().letters, 3);
    let expected = [(b"0".to_vec(), 2), (b"1".to_vec(), 2), (b"2".to_vec(), 1)];
    assert_eq!(came_back(&connection, &topic).await, BTreeMap::from(expected));
}

/// A process that was halted and taken for dead must not overwrite what its successor recorded.
#[tokio::test]
async fn who_was_taken_for_dead_cannot_record() {
    let Some(connection) = cluster() else { return };
    let topic = with_letters(&connection, 3).await;
    let mut halted = ReplaySession::begin(&topic, topic.producer().unwrap()).await.unwrap();
    halted.lock.leave();
    assert_eq!(topic.replay(&Selection::default(), |_| {}).await.unwrap().letters, 3);
    let error = halted.record(0, super::progress::Progress::at(1)).await.unwrap_err();
    assert!(matches!(error, DlqError::Displaced { .. }), "{error}");
    let error = halted.replay(&Selection::default(), &mut |_| {}).await.unwrap_err();
    assert!(matches!(error, DlqError::Displaced { .. }), "{error}");
    assert_eq!(topic.open_letters().await.unwrap(), 0);
    assert!(came_back(&connection, &topic).await.values().all(|count| *count == 1));
}
