//! A key whose messages are on their way side by side stops at one that is refused before it is sent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use posthaste_core::publisher::{ErrorKind, LeaseCheck, Outcome, Place};
use posthaste_core::{Batch, Message, Publisher, Report};
use posthaste_publishers::Route;
use posthaste_publishers::kafka::{KafkaOptions, KafkaPublisher};

use crate::support::kafka::{Topic, failure, shared};
use crate::support::mock::{Cluster, SOON, cluster, keyed, numbers, run, slow};
use crate::support::{deliveries, publish, publish_at_first, publish_without_lease};

/// An answer takes longer than all of the handing over, so that those ahead are unanswered when one is refused.
const ROUND_TRIP: Duration = Duration::from_millis(300);

/// A publisher that has the key `k` of the topic warm, with 0 and 1 in it.
async fn warm(topic: &Topic, options: KafkaOptions) -> KafkaPublisher {
    let publisher = KafkaPublisher::new(options).unwrap();
    for _ in 0..2 {
        publish_at_first(&publisher, &run(topic, "k", 0..2)).await;
    }
    publisher
}

fn warmed_up() -> Vec<String> {
    ["0", "1", "0", "1"].map(str::to_owned).to_vec()
}

/// 2 to 6 of the warm key, with `middle` at the place of 4.
fn around(topic: &Topic, middle: Message) -> Vec<Message> {
    let mut messages = run(topic, "k", 2..7);
    messages[2] = middle;
    messages
}

/// The first two are delivered, the third ends as it should, and nothing follows it.
fn stopped_at_the_third(topic: &Topic, outcomes: &[Outcome]) {
    assert_eq!(outcomes[..2], [Outcome::DELIVERED, Outcome::DELIVERED], "{outcomes:?}");
    assert_ne!(outcomes[2], Outcome::DELIVERED);
    assert_eq!(
        outcomes[3..],
        [Outcome::NotAttempted, Outcome::NotAttempted],
        "{outcomes:?}"
    );
    assert_eq!(topic.payloads("k"), [warmed_up(), numbers(2..4)].concat());
}

fn scene() -> (Cluster, Topic, KafkaOptions) {
    let (cluster, topic) = cluster();
    let mut options = topic.options();
    options.answer_within = Some(SOON);
    (cluster, topic, options)
}

/// Proves pitfall 5.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_above_the_clients_limit_stops_its_key() {
    let (cluster, topic, mut options) = scene();
    options.connection = options.connection.property("message.max.bytes", "2000");
    let publisher = warm(&topic, options).await;
    slow(&cluster, ROUND_TRIP);
    let large = Message::new(topic.name.as_str(), "x".repeat(3_000)).key("k");
    let outcomes = publish(&publisher, &around(&topic, large)).await;
    slow(&cluster, Duration::ZERO);
    assert_eq!(failure(&outcomes[2]).kind, ErrorKind::Permanent);
    stopped_at_the_third(&topic, &outcomes);
}

/// Proves pitfall 5.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_above_the_topics_limit_stops_its_key() {
    let Some(brokers) = shared() else { return };
    let topic = Topic::create(&brokers, 1, &[("max.message.bytes", "2000")]).await;
    let publisher = warm(&topic, topic.options()).await;
    let large = Message::new(topic.name.as_str(), "x".repeat(3_000)).key("k");
    let outcomes = publish(&publisher, &around(&topic, large)).await;
    assert_eq!(failure(&outcomes[2]).kind, ErrorKind::Permanent);
    stopped_at_the_third(&topic, &outcomes);
}

/// Proves pitfall 5.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_a_route_cannot_place_stops_its_key() {
    let (cluster, topic, mut options) = scene();
    options.routes = vec![Route {
        event_type: Some("acme.*".to_owned()),
        to: "of-{tenant}".to_owned(),
        ..Route::default()
    }];
    let publisher = warm(&topic, options).await;
    slow(&cluster, ROUND_TRIP);
    let homeless = keyed(&topic, "k", 4).event_type("acme.order.created.v1");
    let outcomes = publish(&publisher, &around(&topic, homeless)).await;
    slow(&cluster, Duration::ZERO);
    assert!(failure(&outcomes[2]).message.contains("has no tenant"));
    stopped_at_the_third(&topic, &outcomes);
}

/// Proves pitfall 5.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_for_a_topic_that_cannot_be_used_stops_its_key() {
    let (cluster, topic, mut options) = scene();
    options.routes = ["no such topic!", "x"]
        .map(|tenant| Route {
            tenant: Some(tenant.to_owned()),
            to: "of-{tenant}".to_owned(),
            ..Route::default()
        })
        .to_vec();
    let publisher = warm(&topic, options).await;
    slow(&cluster, ROUND_TRIP);
    let unusable = keyed(&topic, "k", 4).tenant("no such topic!");
    let outcomes = publish(&publisher, &around(&topic, unusable)).await;
    slow(&cluster, Duration::ZERO);
    assert!(failure(&outcomes[2]).message.contains("no topic can be called"));
    stopped_at_the_third(&topic, &outcomes);
}

/// Proves pitfall 5. Leases are renewed while a batch is handed over, so the one in the middle may be over and the next
/// one not.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_over_stops_its_key_although_the_next_one_holds() {
    let (cluster, topic, options) = scene();
    let publisher = warm(&topic, options).await;
    slow(&cluster, ROUND_TRIP);
    let outcomes = publish_without_lease(&publisher, &run(&topic, "k", 2..7), &[2]).await;
    slow(&cluster, Duration::ZERO);
    assert_eq!(outcomes[2], Outcome::NotAttempted);
    stopped_at_the_third(&topic, &outcomes);
}

/// Says yes, but to one message only once there is room again in the producer's queue.
struct Later {
    place: Place,
    first_is_answered: AtomicBool,
}

impl LeaseCheck for Later {
    fn may_send(&self, place: Place) -> bool {
        let deadline = Instant::now() + SOON;
        while place == self.place && !self.first_is_answered.load(Ordering::Acquire) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }
}

/// Proves pitfall 5.
#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_stays_full_stops_its_key_although_the_next_one_finds_room() {
    let (cluster, topic, mut options) = scene();
    options.connection = options.connection.property("queue.buffering.max.messages", "1");
    options.answer_within = Some(Duration::from_millis(700));
    let publisher = warm(&topic, options).await;
    slow(&cluster, Duration::from_secs(2));
    let messages = run(&topic, "k", 2..5);
    let lease = Arc::new(Later {
        place: Place::new(2),
        first_is_answered: AtomicBool::new(false),
    });
    let outcomes: Arc<Mutex<Vec<(Place, Outcome)>>> = Arc::default();
    let (sink, told) = (Arc::clone(&outcomes), Arc::clone(&lease));
    let report = Report::new(move |place, outcome| {
        sink.lock().unwrap().push((place, outcome));
        told.first_is_answered.store(true, Ordering::Release);
    });
    publisher
        .publish(Batch::new(deliveries(&messages), lease), report)
        .await;
    slow(&cluster, Duration::ZERO);
    let delivered = outcomes
        .lock()
        .unwrap()
        .iter()
        .filter(|(_, outcome)| outcome.is_delivered())
        .count();
    assert!(delivered <= 1, "{outcomes:?}");
    let written = topic.payloads("k");
    assert!(
        !written.contains(&"3".to_owned()) && !written.contains(&"4".to_owned()),
        "{written:?}"
    );
}

/// Publishes batches one after the other, each before the one before it is answered, as a relay does with those of a log.
async fn in_line(publisher: &KafkaPublisher, batches: Vec<Vec<Message>>) -> Vec<Vec<Outcome>> {
    let mut publishing: Vec<_> = batches
        .iter()
        .map(|messages| Box::pin(publish(publisher, messages)))
        .collect();
    for each in &mut publishing {
        // The first poll lines it up.
        let _ = futures::poll!(each);
    }
    futures::future::join_all(publishing).await
}

fn single(topic: &Topic, n: usize) -> Vec<Message> {
    vec![keyed(topic, "k", n)]
}

/// Also by single messages: one that went by another producer than those before it could overtake them.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_keeps_its_order_over_many_batches_that_are_on_their_way() {
    let (cluster, topic, options) = scene();
    let publisher = warm(&topic, options).await;
    slow(&cluster, ROUND_TRIP);
    let began = Instant::now();
    let batches = (2..32).map(|n| match n % 3 {
        0 => single(&topic, n),
        _ => vec![keyed(&topic, "k", n), Message::new(topic.name.as_str(), "unkeyed")],
    });
    let outcomes = in_line(&publisher, batches.collect()).await;
    slow(&cluster, Duration::ZERO);
    assert!(outcomes.iter().flatten().all(Outcome::is_delivered), "{outcomes:?}");
    assert_eq!(topic.payloads("k"), [warmed_up(), numbers(2..32)].concat());
    assert!(began.elapsed() < ROUND_TRIP * 20, "{:?}: side by side", began.elapsed());
}

/// Proves pitfall 5.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_above_the_topics_limit_stops_its_key_in_the_batches_behind_it() {
    let Some(brokers) = shared() else { return };
    let topic = Topic::create(&brokers, 1, &[("max.message.bytes", "2000")]).await;
    let publisher = warm(&topic, topic.options()).await;
    let large = Message::new(topic.name.as_str(), "x".repeat(3_000)).key("k");
    let batches = vec![
        single(&topic, 2),
        vec![keyed(&topic, "k", 3), large],
        run(&topic, "k", 4..7),
        single(&topic, 7),
    ];
    let outcomes = in_line(&publisher, batches).await;
    assert_eq!(outcomes[0], [Outcome::DELIVERED]);
    assert_eq!(outcomes[1][0], Outcome::DELIVERED);
    assert_eq!(failure(&outcomes[1][1]).kind, ErrorKind::Permanent);
    assert_eq!(outcomes[2], vec![Outcome::NotAttempted; 3]);
    assert_eq!(outcomes[3], [Outcome::NotAttempted]);
    assert_eq!(topic.payloads("k"), [warmed_up(), numbers(2..4)].concat());
    // It was dealt with: the key goes on.
    assert_eq!(
        publish(&publisher, &run(&topic, "k", 4..6)).await,
        vec![Outcome::DELIVERED; 2]
    );
}

/// Proves pitfall 5. The topic's limit is lowered when it is known, so the broker refuses what this side lets through,
/// while those behind it are on their way in later batches.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_broker_refuses_in_the_middle_of_a_key_is_followed_by_nothing_of_later_batches() {
    let Some(brokers) = shared() else { return };
    let topic = Topic::create(&brokers, 1, &[]).await;
    let mut options = topic.options();
    // One message a request, so that the refusal is one message's.
    options.connection = options.connection.property("batch.num.messages", "1");
    let publisher = warm(&topic, options).await;
    topic.set("max.message.bytes", "2000").await;
    let large = Message::new(topic.name.as_str(), "x".repeat(3_000)).key("k");
    let mut batches = vec![single(&topic, 2), vec![keyed(&topic, "k", 3), large]];
    batches.extend((4..12).map(|n| single(&topic, n)));
    let outcomes = in_line(&publisher, batches).await;
    assert!(!outcomes[1][1].is_delivered(), "{outcomes:?}");
    assert!(
        outcomes[2..].iter().flatten().all(|outcome| !outcome.is_delivered()),
        "{outcomes:?}"
    );
    let written = topic.payloads("k");
    let expected = [warmed_up(), numbers(2..4)].concat();
    assert!(expected.starts_with(&written) && written.len() >= 4, "{written:?}");
}
