//! Kafka as publisher, on real brokers.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use posthaste_core::publisher::{Delivery, ErrorKind, ErrorScope, LeaseCheck, Outcome, Place};
use posthaste_core::{Batch, Message, Publisher, Report};
use posthaste_kafka::event::Format;
use posthaste_publishers::Route;
use posthaste_publishers::kafka::{KafkaPublisher, RecordTimestamp, UnknownTopic};

use crate::support::kafka;
use crate::support::kafka::{Topic, failure, shared};
use crate::support::publish;

fn keyed(topic: &Topic, key: &str, payload: &str) -> Message {
    Message::new(topic.name.as_str(), payload.to_owned()).key(key)
}

fn run(topic: &Topic, key: &str, numbers: std::ops::Range<usize>) -> Vec<Message> {
    numbers.map(|n| keyed(topic, key, &n.to_string())).collect()
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

/// Proves A9 and E3.
#[tokio::test]
async fn a_record_carries_the_id_the_whole_payload_and_the_aggregate_as_its_key() {
    let Some(brokers) = shared() else { return };
    let topic = Topic::create(&brokers, 3, &[]).await;
    let mut options = topic.options();
    options.id_header = Some("messageId".to_owned());
    let publisher = KafkaPublisher::new(options).unwrap();
    let payload = r#"{ "orderId": 42, "text": "ä" }"#;
    let message = Message::new(topic.name.as_str(), payload)
        .aggregate("Order", "42")
        .event_type("acme.order.created.v1")
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    assert_eq!(
        publish(&publisher, std::slice::from_ref(&message)).await,
        [Outcome::DELIVERED]
    );

    let [record] = &topic.records()[..] else {
        panic!("one record")
    };
    assert_eq!(record.key.as_deref(), Some("42"));
    assert_eq!(record.payload, payload.as_bytes());
    assert_eq!(record.headers["ce_id"], message.id.to_string());
    assert_eq!(record.headers["messageId"], message.id.to_string());
    assert_eq!(record.headers["traceparent"], message.headers["traceparent"]);
    assert_eq!(record.event.aggregate_type.as_deref(), Some("Order"));
    // The partition that Java's clients choose for this key: murmur2("42") over three.
    assert_eq!(record.partition, 1);
    assert_eq!(publisher.name(), "kafka");
}

#[tokio::test]
async fn structured_mode_carries_the_event_as_json() {
    let Some(brokers) = shared() else { return };
    let topic = Topic::create(&brokers, 1, &[]).await;
    let mut options = topic.options();
    options.format = Format::Structured;
    let publisher = KafkaPublisher::new(options).unwrap();
    let message = keyed(&topic, "k", r#"{"n":1}"#);
    assert_eq!(
        publish(&publisher, std::slice::from_ref(&message)).await,
        [Outcome::DELIVERED]
    );
    let [record] = &topic.records()[..] else {
        panic!("one record")
    };
    assert_eq!(record.event.id, message.id.to_string());
    assert_eq!(record.event.payload, r#"{"n":1}"#);
    assert!(record.headers["content-type"].starts_with("application/cloudevents+json"));
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_keep_their_order_across_batches_and_brokers() {
    let Some(brokers) = shared() else { return };
    let topic = Topic::create(&brokers, 3, &[]).await;
    let publisher = topic.publisher(&[]);
    for batch in 0..5 {
        let mut messages = Vec::new();
        for n in 0..100 {
            for key in ["a", "b", "c", "d"] {
                messages.push(keyed(&topic, key, &(batch * 100 + n).to_string()));
            }
            messages.push(Message::new(topic.name.as_str(), "keyless"));
        }
        assert_eq!(publish(&publisher, &messages).await, vec![Outcome::DELIVERED; 500]);
    }
    for key in ["a", "b", "c", "d"] {
        assert_eq!(topic.payloads(key), numbers(0..500));
    }
    assert_eq!(topic.records().len(), 2_500, "nothing twice");
}

/// Makes the topic refuse what it took before, and returns a payload that it refuses.
async fn lower_the_limit(topic: &Topic) -> String {
    topic.set("max.message.bytes", "2000").await;
    let large = "x".repeat(5_000);
    let deadline = Instant::now() + kafka::TIMEOUT;
    while publish(&topic.publisher(&[]), &[keyed(topic, "probe", &large)]).await == [Outcome::DELIVERED] {
        assert!(Instant::now() < deadline, "the limit does not come into force");
    }
    large
}

/// Proves pitfall 5: messages of a key are on their way side by side, each in a request of its own, when the broker
/// refuses one in the middle.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_key_is_written_after_one_that_the_broker_refused() {
    let Some(brokers) = shared() else { return };
    let topic = Topic::create(&brokers, 1, &[]).await;
    let publisher = topic.publisher(&[("batch.num.messages", "1"), ("retry.backoff.ms", "10")]);
    // The publisher learns that the topic takes large messages, and its producer gets known to the broker.
    assert_eq!(
        publish(&publisher, &run(&topic, "k", 0..20)).await,
        vec![Outcome::DELIVERED; 20]
    );
    let large = lower_the_limit(&topic).await;
    let mut messages = run(&topic, "k", 20..60);
    messages[10] = keyed(&topic, "k", &large);
    let began = Instant::now();
    let outcomes = publish(&publisher, &messages).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(outcomes[..10], vec![Outcome::DELIVERED; 10]);
    let refused = failure(&outcomes[10]);
    assert_eq!(
        refused.kind,
        ErrorKind::Transient,
        "the limit has to be asked for first"
    );
    assert!(
        refused.message.contains("too large") && refused.message.contains(&topic.name),
        "{refused}"
    );
    assert_eq!(outcomes[11..], vec![Outcome::NotAttempted; 29]);
    assert_eq!(topic.payloads("k"), numbers(0..30));

    // By now the limit is known: the message is refused here, and for good.
    let again = publish(&publisher, &messages[10..]).await;
    let refused = failure(&again[0]);
    assert_eq!(refused.kind, ErrorKind::Permanent);
    assert!(refused.message.contains("the topic takes 2000"), "{refused}");
    assert_eq!(again[1..], vec![Outcome::NotAttempted; 29]);

    // And without it the key goes on, at first with one message, then together.
    let rest = &messages[11..];
    assert_eq!(publish(&publisher, rest).await, vec![Outcome::DELIVERED; 29]);
    let mut expected = numbers(0..30);
    expected.extend(numbers(31..60));
    assert_eq!(topic.payloads("k"), expected);
}

/// A broker that has never seen a producer takes any sequence number from it, so the second message of a key must wait
/// for the first one's answer.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_message_of_a_new_producer_goes_ahead_alone() {
    let Some(brokers) = shared() else { return };
    let topic = Topic::create(&brokers, 1, &[]).await;
    let publisher = topic.publisher(&[("batch.num.messages", "1")]);
    // The publisher learns that the topic takes large messages, by the producer for single ones.
    assert_eq!(
        publish(&publisher, &run(&topic, "other", 0..1)).await,
        [Outcome::DELIVERED]
    );
    let large = lower_the_limit(&topic).await;
    let mut messages = run(&topic, "k", 0..20);
    messages[0] = keyed(&topic, "k", &large);
    let outcomes = publish(&publisher, &messages).await;
    assert!(failure(&outcomes[0]).message.contains("too large"));
    assert_eq!(outcomes[1..], vec![Outcome::NotAttempted; 19]);
    assert!(topic.payloads("k").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn neighbours_of_a_message_that_is_too_large_are_not_refused_with_it() {
    let Some(brokers) = shared() else { return };
    let topic = Topic::create(&brokers, 1, &[("max.message.bytes", "4000")]).await;
    let publisher = topic.publisher(&[("linger.ms", "50")]);
    // Together they are far above the limit, so one request must not hold them all.
    let mut messages: Vec<_> = (0..40)
        .map(|n| keyed(&topic, &format!("k{n}"), &"x".repeat(1_000)))
        .collect();
    messages[20] = keyed(&topic, "k20", &"x".repeat(4_000));
    let mut outcomes = publish(&publisher, &messages).await;
    for (message, outcome) in messages.iter().zip(&mut outcomes) {
        // On a busy machine some may have been given back, to be published later.
        while *outcome == Outcome::NotAttempted {
            *outcome = publish(&publisher, std::slice::from_ref(message)).await.remove(0);
        }
    }
    for (n, outcome) in outcomes.iter().enumerate() {
        if n == 20 {
            assert_eq!(failure(outcome).kind, ErrorKind::Permanent);
        } else {
            assert_eq!(*outcome, Outcome::DELIVERED, "{n}");
        }
    }
    assert_eq!(topic.records().len(), 39);
}

#[tokio::test]
async fn how_large_a_message_may_be_is_for_the_topic_to_say() {
    let Some(brokers) = shared() else { return };
    let topic = Topic::create(&brokers, 1, &[("max.message.bytes", "5000000")]).await;
    let publisher = topic.publisher(&[]);
    let large = keyed(&topic, "k", &"x".repeat(3_000_000));
    assert_eq!(publish(&publisher, &[large]).await, [Outcome::DELIVERED]);
    assert_eq!(topic.payloads("k")[0].len(), 3_000_000);
}

/// What our estimate of a record's size says is what brokers say, to the byte.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_too_large_here_when_it_is_too_large_there() {
    let Some(brokers) = shared() else { return };
    let topic = Topic::create(&brokers, 1, &[]).await;
    let unaware = topic.publisher(&[]);
    // It learns that the topic takes large messages.
    assert_eq!(
        publish(&unaware, &[keyed(&topic, "k", "0")]).await,
        [Outcome::DELIVERED]
    );
    lower_the_limit(&topic).await;
    let publisher = topic.publisher(&[]);
    let of = |bytes: usize| vec![keyed(&topic, "k", &"x".repeat(bytes))];
    let refused = failure(&publish(&publisher, &of(3_000)).await[0]).message;
    let bytes: usize = refused.split(' ').find_map(|word| word.parse().ok()).unwrap();
    let largest = 2_000 - (bytes - 3_000);
    assert_eq!(publish(&publisher, &of(largest)).await, [Outcome::DELIVERED]);
    let here = failure(&publish(&publisher, &of(largest + 1)).await[0]);
    assert_eq!(here.kind, ErrorKind::Permanent);
    let there = publish(&unaware, &of(largest + 1)).await;
    assert_eq!(
        there,
        [Outcome::NotAttempted],
        "the broker refused it, perhaps for its neighbours"
    );
}

/// Proves pitfall 26.
#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_was_raised_is_noticed_before_a_message_is_given_up_for_it() {
    let Some(brokers) = shared() else { return };
    let topic = Topic::create(&brokers, 1, &[("max.message.bytes", "2000")]).await;
    let publisher = topic.publisher(&[]);
    let large = [keyed(&topic, "k", &"x".repeat(5_000))];
    assert_eq!(
        failure(&publish(&publisher, &large).await[0]).kind,
        ErrorKind::Permanent
    );
    topic.set("max.message.bytes", "10000").await;
    let deadline = Instant::now() + kafka::TIMEOUT;
    while publish(&publisher, &large).await != [Outcome::DELIVERED] {
        assert!(Instant::now() < deadline, "the raised limit is not noticed");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

struct Always;

impl LeaseCheck for Always {
    fn may_send(&self, _: Place) -> bool {
        true
    }
}

/// Publishes a message that was enqueued years ago.
async fn publish_late(publisher: &KafkaPublisher, message: &Message) -> Outcome {
    let delivery = Delivery::new(message.clone(), YEARS_AGO.parse().unwrap());
    let outcome: Arc<Mutex<Option<Outcome>>> = Arc::default();
    let sink = Arc::clone(&outcome);
    let report = Report::new(move |_, outcome| *sink.lock().unwrap() = Some(crate::support::without_receipt(outcome)));
    publisher
        .publish(Batch::new(vec![delivery], Arc::new(Always)), report)
        .await;
    outcome.lock().unwrap().take().unwrap()
}

const YEARS_AGO: &str = "2020-02-02T00:00:00Z";

/// By its timestamp Kafka deletes a record: one that is published late must not be deleted before it is read.
#[tokio::test(flavor = "multi_thread")]
async fn a_record_has_the_time_of_its_publication_unless_that_of_the_event_is_wanted() {
    let Some(brokers) = shared() else { return };
    let topic = Topic::create(&brokers, 1, &[("retention.ms", "-1")]).await;
    let before = chrono::Utc::now().timestamp_millis();
    let message = keyed(&topic, "k", "0");
    assert_eq!(publish_late(&topic.publisher(&[]), &message).await, Outcome::DELIVERED);
    let mut options = topic.options();
    options.timestamp = RecordTimestamp::Enqueued;
    let publisher = KafkaPublisher::new(options).unwrap();
    assert_eq!(publish_late(&publisher, &message).await, Outcome::DELIVERED);
    let records = topic.records();
    let day = 24 * 3_600_000;
    let near = before - day..before + day;
    assert!(near.contains(&records[0].timestamp), "{}", records[0].timestamp);
    let years_ago: chrono::DateTime<chrono::Utc> = YEARS_AGO.parse().unwrap();
    assert_eq!(records[1].timestamp, years_ago.timestamp_millis());
    assert!(records[0].headers["ce_time"].starts_with("2020-02-02"));

    // A topic that refuses old records can be changed, and so can the setting.
    topic.set("message.timestamp.before.max.ms", "60000").await;
    let deadline = Instant::now() + kafka::TIMEOUT;
    let refused = loop {
        match publish_late(&publisher, &message).await {
            Outcome::Failed(error) => break error,
            _ => assert!(Instant::now() < deadline, "the setting does not come into force"),
        }
    };
    assert_eq!(refused.kind, ErrorKind::Transient);
    assert!(refused.message.contains("publisher.timestamp"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_not_there_is_named_and_used_once_it_is() {
    let Some(brokers) = shared() else { return };
    let topic = Topic::absent(&brokers);
    let publisher = topic.publisher(&[]);
    let messages = run(&topic, "k", 0..3);
    let outcomes = publish(&publisher, &messages).await;
    let error = failure(&outcomes[0]);
    assert_eq!(error.kind, ErrorKind::Transport, "an operator can create it");
    assert_eq!(error.scope, ErrorScope::Destination(topic.name.as_str().into()));
    assert!(
        error.message.contains(&topic.name) && error.message.contains("`posthaste topics apply`"),
        "{error}"
    );
    assert_eq!(outcomes[1..], vec![Outcome::NotAttempted; 2]);

    let mut options = topic.options();
    options.unknown_topic = UnknownTopic::Dead;
    let strict = KafkaPublisher::new(options).unwrap();
    assert_eq!(
        failure(&publish(&strict, &messages[..1]).await[0]).kind,
        ErrorKind::Permanent
    );

    topic.make(1, &[]).await;
    let deadline = Instant::now() + kafka::TIMEOUT;
    while publish(&publisher, &messages[..1]).await != [Outcome::DELIVERED] {
        assert!(Instant::now() < deadline, "the topic is not noticed");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(publish(&publisher, &messages[1..]).await, vec![Outcome::DELIVERED; 2]);
    assert_eq!(topic.payloads("k"), numbers(0..3));
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_that_are_not_there_do_not_hold_up_the_others() {
    let Some(brokers) = shared() else { return };
    let topic = Topic::create(&brokers, 1, &[]).await;
    let publisher = topic.publisher(&[]);
    let mut messages: Vec<Message> = (0..50).map(|_| keyed(&Topic::absent(&brokers), "k", "x")).collect();
    messages.push(keyed(&topic, "k", "0"));
    assert_eq!(publish(&publisher, &messages).await[50], Outcome::DELIVERED);
    let began = Instant::now();
    for n in 1..=10 {
        messages[50] = keyed(&topic, "k", &n.to_string());
        let outcomes = publish(&publisher, &messages).await;
        assert_eq!(outcomes[50], Outcome::DELIVERED);
        assert!(
            outcomes[..50]
                .iter()
                .all(|outcome| failure(outcome).kind == ErrorKind::Transport)
        );
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(topic.payloads("k"), numbers(0..11));
}

#[tokio::test]
async fn routes_send_messages_elsewhere() {
    let Some(brokers) = shared() else { return };
    let topic = Topic::create(&brokers, 1, &[]).await;
    let mut options = topic.options();
    options.routes = vec![Route {
        event_type: Some("acme.order.*".to_owned()),
        to: topic.name.clone(),
        ..Route::default()
    }];
    let publisher = KafkaPublisher::new(options).unwrap();
    let message = Message::new("anything", "1")
        .key("k")
        .event_type("acme.order.created.v1");
    assert_eq!(publish(&publisher, &[message]).await, [Outcome::DELIVERED]);
    assert_eq!(topic.payloads("k"), ["1"]);
}

#[tokio::test]
async fn without_idempotence_a_key_goes_out_one_message_at_a_time() {
    let Some(brokers) = shared() else { return };
    let topic = Topic::create(&brokers, 1, &[]).await;
    let publisher = topic.publisher(&[("enable.idempotence", "false")]);
    let outcomes = publish(&publisher, &run(&topic, "k", 0..3)).await;
    assert_eq!(outcomes, vec![Outcome::DELIVERED; 3]);
    assert_eq!(topic.payloads("k"), numbers(0..3));
}

#[tokio::test]
async fn the_cluster_tells_who_it_is() {
    let Some(brokers) = shared() else { return };
    let cluster = Topic::absent(&brokers).publisher(&[]).cluster().await.unwrap();
    assert_eq!(cluster.brokers.len(), brokers.split(',').count());
    assert!(cluster.id.is_some());

    let began = Instant::now();
    let nobody = Topic::absent("127.0.0.1:1").publisher(&[]);
    let error = nobody.cluster().await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Transport);
    assert!(
        error.message.contains("kafka.brokers") && error.message.contains("refused"),
        "{error}"
    );
    assert!(began.elapsed() < Duration::from_secs(10));
}
