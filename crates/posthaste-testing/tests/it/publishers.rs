//! The scripted publishers keep a publisher's contract while things go wrong.

use std::sync::{Arc, Mutex};

use chrono::Utc;
use posthaste_core::publisher::{Delivery, ErrorKind, LeaseCheck, Place};
use posthaste_core::{Batch, Message, Outcome, Publisher, Report};
use posthaste_testing::{Fault, FaultyPublisher, NullPublisher, RecordingPublisher, Rule};

type Outcomes = Arc<Mutex<Vec<(Place, Outcome)>>>;

struct Lease(Option<usize>);

impl LeaseCheck for Lease {
    fn may_send(&self, place: Place) -> bool {
        self.0 != Some(place.index())
    }
}

fn batch(messages: &[Message], unsendable: Option<usize>) -> Batch {
    let delivery = |message: &Message| Delivery::new(message.clone(), Utc::now());
    Batch::new(messages.iter().map(delivery).collect(), Arc::new(Lease(unsendable)))
}

fn reported() -> (Outcomes, Report) {
    let outcomes = Outcomes::default();
    let sink = Arc::clone(&outcomes);
    let report = Report::new(move |place, outcome| sink.lock().unwrap().push((place, outcome)));
    (outcomes, report)
}

/// Publishes and returns one letter per message: D(elivered), T(ransient), P(ermanent), N(ot attempted), - (nothing).
async fn outcomes(publisher: &impl Publisher, messages: &[Message]) -> String {
    let (outcomes, report) = reported();
    publisher.publish(batch(messages, None), report).await;
    let outcomes = outcomes.lock().unwrap();
    let letter = |index: usize| {
        let mut of_message = outcomes.iter().filter(|(place, _)| place.index() == index);
        let letter = match of_message.next() {
            None => '-',
            Some((_, Outcome::Delivered(_))) => 'D',
            Some((_, Outcome::NotAttempted)) => 'N',
            Some((_, Outcome::Failed(error))) if error.kind == ErrorKind::Permanent => 'P',
            Some((_, Outcome::Failed(_))) => 'T',
            Some((_, Outcome::Corrupt { .. })) => panic!("publishers do not report this"),
        };
        assert_eq!(of_message.next(), None, "one outcome per message");
        letter
    };
    (0..messages.len()).map(letter).collect()
}

fn messages<const N: usize>(keys: [&str; N]) -> [Message; N] {
    keys.map(|key| match key {
        "" => Message::new("t", "x"),
        key => Message::new("t", "x").key(key),
    })
}

fn faulty() -> FaultyPublisher<RecordingPublisher> {
    FaultyPublisher::new(RecordingPublisher::new())
}

#[tokio::test]
async fn a_failure_stops_its_lane_and_no_other() {
    let broker = faulty();
    let batch = messages(["a", "b", "a", "", "b", "a"]);
    broker.inject(Rule::new(Fault::transient()).on([batch[2].id]));
    assert_eq!(outcomes(&broker, &batch).await, "DDTDDN");
    assert_eq!(broker.inner().ids(), [0, 1, 3, 4].map(|place| batch[place].id));
}

#[tokio::test]
async fn the_next_messages_fail_and_no_more() {
    let broker = faulty();
    broker.fail_next(2);
    assert_eq!(outcomes(&broker, &messages(["", "", ""])).await, "TTD");
    assert_eq!(outcomes(&broker, &messages([""])).await, "D");
}

#[tokio::test]
async fn a_condition_and_a_refusal_hold_until_healed() {
    let broker = faulty();
    let batch = messages(["a", "b", "c"]);
    broker.fail_while(|message| message.ordering_key.as_deref() == Some("a"));
    broker.refuse([batch[1].id]);
    assert_eq!(outcomes(&broker, &batch).await, "TPD");
    assert_eq!(outcomes(&broker, &batch).await, "TPD");
    broker.heal();
    assert_eq!(outcomes(&broker, &batch).await, "DDD");
}

#[tokio::test]
async fn a_broker_that_is_down_fails_everything() {
    let broker = faulty();
    broker.down();
    assert_eq!(outcomes(&broker, &messages(["", "a"])).await, "TT");
    assert_eq!(broker.inner().ids(), []);
    broker.up();
    assert_eq!(outcomes(&broker, &messages(["", "a"])).await, "DD");
}

/// Proves pitfall 32.
#[tokio::test]
async fn a_lost_acknowledgement_is_a_delivery_nobody_knows_of() {
    let broker = faulty();
    let batch = messages(["a", "a"]);
    broker.lose_acknowledgements(1);
    assert_eq!(outcomes(&broker, &batch).await, "TN");
    assert_eq!(broker.inner().ids(), [batch[0].id]);
    assert_eq!(outcomes(&broker, &batch).await, "DD");
    assert_eq!(
        broker.inner().first_deliveries(),
        batch.each_ref().map(|message| message.id)
    );
    broker.inner().assert_order_per_key(&batch);
}

#[tokio::test]
async fn silence_is_no_outcome_at_all() {
    let broker = faulty();
    broker.fall_silent(1);
    assert_eq!(outcomes(&broker, &messages(["a", "a", "b"])).await, "-ND");
}

#[tokio::test]
async fn a_panic_comes_after_the_rest_of_the_batch() {
    let broker = faulty();
    broker.panic_next();
    let batch = messages(["a", "b"]);
    let (running, sent) = (broker.clone(), batch.clone());
    let panicked = tokio::spawn(async move { outcomes(&running, &sent).await }).await;
    assert!(panicked.unwrap_err().is_panic());
    assert_eq!(broker.inner().ids(), [batch[1].id]);
}

#[tokio::test]
async fn a_hanging_publication_goes_on_when_released() {
    let broker = faulty();
    broker.hang();
    let running = broker.clone();
    let publication = tokio::spawn(async move { outcomes(&running, &messages(["a"])).await });
    broker.wait_until_hanging(1).await;
    assert_eq!(broker.inner().ids(), []);
    broker.release();
    assert_eq!(publication.await.unwrap(), "D");
}

#[tokio::test]
async fn a_failure_behind_the_script_stops_the_lane_too() {
    let inner = faulty();
    inner.fail_next(1);
    let broker = FaultyPublisher::new(inner);
    let batch = messages(["a", "a"]);
    broker.refuse([batch[1].id]);
    assert_eq!(outcomes(&broker, &batch).await, "TN");
}

#[tokio::test]
async fn what_may_not_be_sent_is_not_attempted() {
    let batch_messages = messages(["", ""]);
    let (recording, faulty) = (RecordingPublisher::new(), faulty());
    for publisher in [&recording as &dyn Publisher, &faulty] {
        let (outcomes, report) = reported();
        publisher.publish(batch(&batch_messages, Some(0)), report).await;
        let mut outcomes = outcomes.lock().unwrap().clone();
        outcomes.sort_by_key(|(place, _)| *place);
        let expected = [Outcome::NotAttempted, Outcome::DELIVERED];
        assert_eq!(
            outcomes.into_iter().map(|(_, outcome)| outcome).collect::<Vec<_>>(),
            expected
        );
    }
    recording.assert_delivered_once(&[batch_messages[1].id]);
}

#[tokio::test]
async fn the_null_publisher_delivers_everything() {
    assert_eq!(outcomes(&NullPublisher, &messages(["", "a", "a"])).await, "DDD");
}

#[tokio::test]
#[should_panic(expected = "no such message was delivered; these were:")]
async fn a_missing_delivery_is_named() {
    let broker = RecordingPublisher::new();
    outcomes(&broker, &messages(["a"])).await;
    broker.assert_delivered(|message| message.topic == "elsewhere");
}

#[tokio::test]
#[should_panic(expected = "of the same key")]
async fn a_broken_order_is_named() {
    let broker = RecordingPublisher::new();
    let [first, second] = messages(["a", "a"]);
    outcomes(&broker, &[second.clone(), first.clone()]).await;
    broker.assert_order_per_key(&[first, second]);
}
