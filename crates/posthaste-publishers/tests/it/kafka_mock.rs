//! Kafka as publisher, on brokers that fail on demand.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use posthaste_core::publisher::{ErrorKind, ErrorScope, LeaseCheck, Outcome, Place};
use posthaste_core::{Batch, Message, Publisher, Report};
use rdkafka::types::RDKafkaRespErr;

use crate::support::kafka;
use crate::support::kafka::failure;
use crate::support::mock::{SOON, all_brokers, cluster, keyed, numbers, publisher, refuse, run};
use crate::support::{deliveries, publish, publish_at_first, publish_without_lease};

const AT_ONCE: Duration = Duration::from_millis(1_500);

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_is_waited_for() {
    let (cluster, topic) = cluster();
    for broker in 1..=3 {
        cluster
            .broker_round_trip_time(broker, Duration::from_millis(20))
            .unwrap();
    }
    let publisher = publisher(&topic, &[("queue.buffering.max.messages", "10")], SOON);
    let mut messages = run(&topic, "hot", 0..100);
    messages.extend((0..100).map(|n| keyed(&topic, &format!("k{n}"), n)));
    assert_eq!(publish(&publisher, &messages).await, vec![Outcome::DELIVERED; 200]);
    assert_eq!(topic.payloads("hot"), numbers(0..100));
    assert_eq!(topic.records().len(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_are_unavailable_cost_the_head_of_each_key_an_attempt_and_nothing_is_sent_late() {
    let (cluster, topic) = cluster();
    let publisher = publisher(&topic, &[], AT_ONCE);
    publish_at_first(&publisher, &run(&topic, "a", 0..2)).await;
    all_brokers(&cluster, false);
    let mut messages = run(&topic, "a", 2..5);
    messages.push(keyed(&topic, "b", 0));
    messages.push(Message::new(topic.name.as_str(), "keyless"));
    let began = Instant::now();
    let outcomes = publish(&publisher, &messages).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    for head in [0, 3, 4] {
        let error = failure(&outcomes[head]);
        assert_eq!(error.kind, ErrorKind::Transport, "{error}");
        assert_eq!(error.scope, ErrorScope::Broker, "{error}");
        assert!(error.message.contains("within 1.5s"), "{error}");
    }
    assert_eq!(outcomes[1..3], vec![Outcome::NotAttempted; 2]);

    all_brokers(&cluster, true);
    // It may take a while until they are tried again.
    let mut rest = messages;
    let deadline = Instant::now() + SOON;
    while !rest.is_empty() {
        assert!(Instant::now() < deadline, "they are not found again");
        let mut outcomes = publish(&publisher, &rest).await.into_iter();
        rest.retain(|_| outcomes.next() != Some(Outcome::DELIVERED));
    }
    assert_eq!(topic.payloads("a"), numbers(0..5), "none twice, none late");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_waits_for_any_more_is_taken_back() {
    let (cluster, topic) = cluster();
    let publisher = publisher(&topic, &[], SOON);
    publish_at_first(&publisher, &run(&topic, "k", 0..2)).await;
    all_brokers(&cluster, false);
    let messages = run(&topic, "k", 2..5);
    let abandoned = tokio::time::timeout(Duration::from_millis(300), publish(&publisher, &messages)).await;
    assert!(abandoned.is_err());
    // The producer is given a second to hear of answers that are on their way.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    all_brokers(&cluster, true);
    assert_eq!(
        publish(&publisher, &run(&topic, "other", 0..1)).await,
        [Outcome::DELIVERED]
    );
    assert_eq!(topic.payloads("k"), numbers(0..2), "not sent after it was abandoned");
    assert_eq!(publish(&publisher, &messages).await, vec![Outcome::DELIVERED; 3]);
    assert_eq!(topic.payloads("k"), numbers(0..5));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_outcome_is_lost_when_the_publisher_is_dropped() {
    let (cluster, topic) = cluster();
    let publisher = Arc::new(publisher(&topic, &[], SOON));
    publish_at_first(&publisher, &run(&topic, "k", 0..2)).await;
    all_brokers(&cluster, false);
    let messages = run(&topic, "k", 2..5);
    let outcomes: Arc<Mutex<Vec<(Place, Outcome)>>> = Arc::default();
    let sink = Arc::clone(&outcomes);
    let report = Report::new(move |place, outcome| sink.lock().unwrap().push((place, outcome)));
    let batch = Batch::new(deliveries(&messages), Arc::new(Always));
    let task = {
        let publisher = Arc::clone(&publisher);
        tokio::spawn(async move { publisher.publish(batch, report).await })
    };
    tokio::time::sleep(Duration::from_millis(300)).await;
    task.abort();
    assert!(task.await.unwrap_err().is_cancelled());
    drop(publisher);
    let deadline = Instant::now() + SOON;
    while outcomes.lock().unwrap().len() < 3 {
        assert!(Instant::now() < deadline, "{outcomes:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let outcomes = outcomes.lock().unwrap();
    assert!(
        outcomes.iter().all(|(_, outcome)| *outcome == Outcome::NotAttempted),
        "{outcomes:?}"
    );
}

struct Always;

impl LeaseCheck for Always {
    fn may_send(&self, _: Place) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn passing_failures_are_retried_by_the_producer_as_often_as_configured() {
    let (cluster, topic) = cluster();
    let not_enough = RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS;
    let publisher = publisher(
        &topic,
        &[("retry.backoff.ms", "10"), ("retry.backoff.max.ms", "10")],
        SOON,
    );
    refuse(&cluster, &[not_enough; 3]);
    assert_eq!(
        publish(&publisher, &[keyed(&topic, "k", 0)]).await,
        [Outcome::DELIVERED]
    );
    refuse(&cluster, &[not_enough; 4]);
    let error = failure(&publish(&publisher, &[keyed(&topic, "k", 1)]).await[0]);
    assert_eq!(error.kind, ErrorKind::Transport);
    assert_eq!(error.scope, ErrorScope::Destination(topic.name.as_str().into()));
    assert!(error.message.contains("min.insync.replicas"), "{error}");
    // Several messages of a key must not lose one in the middle: they are tried until the publisher gives up.
    assert_eq!(
        publish(&publisher, &[keyed(&topic, "k", 1)]).await,
        [Outcome::DELIVERED]
    );
    refuse(&cluster, &[not_enough; 20]);
    assert_eq!(
        publish(&publisher, &run(&topic, "k", 2..5)).await,
        vec![Outcome::DELIVERED; 3]
    );
    assert_eq!(topic.payloads("k"), numbers(0..5));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_that_came_to_an_end_is_replaced() {
    let (cluster, topic) = cluster();
    let publisher = publisher(&topic, &[], SOON);
    publish_at_first(&publisher, &run(&topic, "k", 0..2)).await;
    refuse(
        &cluster,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER],
    );
    let began = Instant::now();
    let outcomes = publish(&publisher, &run(&topic, "k", 2..5)).await;
    assert!(began.elapsed() < SOON / 2, "{:?}", began.elapsed());
    let error = failure(&outcomes[0]);
    assert_eq!(error.kind, ErrorKind::Transient);
    assert!(error.message.contains("a new producer takes over"), "{error}");
    assert_eq!(outcomes[1..], vec![Outcome::NotAttempted; 2]);
    for n in 2..5 {
        assert_eq!(
            publish(&publisher, &[keyed(&topic, "k", n)]).await,
            [Outcome::DELIVERED]
        );
    }
    assert_eq!(
        publish(&publisher, &run(&topic, "k", 5..9)).await,
        vec![Outcome::DELIVERED; 4]
    );
    assert_eq!(topic.payloads("k"), numbers(0..9));
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_rights_pass_once_they_are_granted() {
    let (cluster, topic) = cluster();
    let publisher = publisher(&topic, &[], SOON);
    refuse(
        &cluster,
        &[RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED],
    );
    let error = failure(&publish(&publisher, &[keyed(&topic, "k", 0)]).await[0]);
    assert_eq!(error.kind, ErrorKind::Transport, "an operator can grant them");
    assert_eq!(error.scope, ErrorScope::Destination(topic.name.as_str().into()));
    assert!(
        error.message.contains("kafka-acls.sh") && error.message.contains(&topic.name),
        "{error}"
    );
    let deadline = Instant::now() + SOON;
    while publish(&publisher, &[keyed(&topic, "k", 0)]).await != [Outcome::DELIVERED] {
        assert!(Instant::now() < deadline, "the rights are not noticed");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_leaders_breaks_no_order() {
    let (cluster, topic) = cluster();
    for broker in 1..=3 {
        cluster
            .broker_round_trip_time(broker, Duration::from_millis(5))
            .unwrap();
    }
    let publisher = publisher(&topic, &[("retry.backoff.ms", "10"), ("batch.num.messages", "5")], SOON);
    let mut sent = 0;
    for batch in 0..10 {
        cluster.partition_leader(&topic.name, 0, Some(batch % 3 + 1)).unwrap();
        let messages = run(&topic, "k", sent..sent + 50);
        let outcomes = publish(&publisher, &messages).await;
        // The engine goes on after what was delivered.
        sent += outcomes.iter().take_while(|outcome| outcome.is_delivered()).count();
        assert!(
            !outcomes
                .iter()
                .skip_while(|o| o.is_delivered())
                .any(Outcome::is_delivered)
        );
    }
    assert!(sent > 0);
    assert_eq!(topic.payloads("k"), numbers(0..sent));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_sent_is_not_attempted_nor_is_the_rest_of_its_key() {
    let (_cluster, topic) = cluster();
    let publisher = publisher(&topic, &[], SOON);
    let mut messages = run(&topic, "a", 0..3);
    messages.push(Message::new(topic.name.as_str(), "keyless"));
    messages.push(keyed(&topic, "b", 0));
    let outcomes = publish_without_lease(&publisher, &messages, &[1, 3]).await;
    let (ok, not) = (|| Outcome::DELIVERED, || Outcome::NotAttempted);
    assert_eq!(outcomes, [ok(), not(), not(), not(), ok()]);
    assert_eq!(topic.records().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_above_the_clients_own_limit_is_refused_for_good() {
    let (_cluster, topic) = cluster();
    let publisher = publisher(&topic, &[("message.max.bytes", "2000")], SOON);
    let large = Message::new(topic.name.as_str(), "x".repeat(3_000)).key("k");
    let outcomes = publish(&publisher, &[keyed(&topic, "k", 0), large, keyed(&topic, "k", 2)]).await;
    assert_eq!(outcomes[0], Outcome::DELIVERED);
    let error = failure(&outcomes[1]);
    assert_eq!(error.kind, ErrorKind::Permanent);
    assert!(error.message.contains("message.max.bytes"), "{error}");
    assert_eq!(outcomes[2], Outcome::NotAttempted);
}

/// The brokers in this process do not answer when they are asked for a topic's limit, as those do not that do not let us.
#[tokio::test(flavor = "multi_thread")]
async fn where_limits_are_not_known_it_is_for_the_brokers_to_say_what_is_too_large() {
    let (_cluster, topic) = cluster();
    let publisher = publisher(&topic, &[], SOON);
    let large = || Message::new(topic.name.as_str(), "x".repeat(2_000_000)).key("k");
    assert_eq!(
        publish(&publisher, &[large(), large()]).await,
        vec![Outcome::DELIVERED; 2]
    );
}

/// A relay gives up a publisher that is silent for longer than its `publish_timeout`.
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_new_topics_do_not_wait_one_after_the_other_for_brokers_that_are_unavailable() {
    let nobody = kafka::Topic::absent("127.0.0.1:1");
    let publisher = publisher(&nobody, &[], Duration::from_secs(8));
    let messages: Vec<Message> = (0..100).map(|n| Message::new(format!("topic-{n}"), "x")).collect();
    let began = Instant::now();
    let outcomes = publish(&publisher, &messages).await;
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    for outcome in &outcomes {
        let error = failure(outcome);
        assert_eq!((error.kind, error.scope), (ErrorKind::Transport, ErrorScope::Broker));
    }
}
