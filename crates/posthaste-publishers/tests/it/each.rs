//! One message at a time: order within lanes, company across them.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::Message;
use posthaste_core::publisher::{Delivery, ErrorKind, Outcome, PublishError, Receipt};
use posthaste_publishers::{EachMessage, PublishOne};
use tokio::sync::Barrier;

use crate::support::{message, publish, publish_without_lease, refused};

/// Notes when a message begins and ends, and does with it what its payload says.
struct Noted<'a> {
    log: &'a Mutex<Vec<String>>,
    meeting: &'a Barrier,
}

#[async_trait]
impl PublishOne for Noted<'static> {
    async fn publish_one(&self, delivery: &Delivery) -> Result<Receipt, PublishError> {
        let payload = String::from_utf8(delivery.message.payload.to_vec()).unwrap();
        self.log.lock().unwrap().push(format!("{payload} begins"));
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        if payload.contains("meet") {
            self.meeting.wait().await;
        }
        assert!(!payload.contains("panic"), "{payload} was asked to");
        self.log.lock().unwrap().push(format!("{payload} ends"));
        if payload.contains("fail") {
            Err(refused())
        } else {
            Ok(Receipt::default())
        }
    }

    fn name(&self) -> &'static str {
        "noted"
    }
}

fn noted(guests: usize) -> (EachMessage<Noted<'static>>, &'static Mutex<Vec<String>>) {
    let log: &'static Mutex<Vec<String>> = Box::leak(Box::default());
    let meeting = Box::leak(Box::new(Barrier::new(guests)));
    (EachMessage::new(Noted { log, meeting }), log)
}

/// What was noted of the messages whose payload begins with `lane`.
fn of_lane(log: &Mutex<Vec<String>>, lane: &str) -> Vec<String> {
    let log = log.lock().unwrap();
    log.iter().filter(|line| line.starts_with(lane)).cloned().collect()
}

#[tokio::test]
async fn a_lane_is_sent_in_order_and_one_at_a_time() {
    let (publisher, log) = noted(1);
    let messages: Vec<Message> = (0..30)
        .map(|n| message(["a", "b", "c"][n % 3], &format!("{}{}", ["a", "b", "c"][n % 3], n / 3)))
        .collect();
    let outcomes = publish(&publisher, &messages).await;
    assert!(outcomes.iter().all(Outcome::is_delivered));
    for lane in ["a", "b", "c"] {
        let expected: Vec<String> = (0..10)
            .flat_map(|n| [format!("{lane}{n} begins"), format!("{lane}{n} ends")])
            .collect();
        assert_eq!(of_lane(log, lane), expected);
    }
}

#[tokio::test]
async fn lanes_are_sent_side_by_side() {
    // Every message waits for all the others: this ends only if all five are in flight at once.
    let (publisher, _) = noted(5);
    let messages = ["a", "b", "c", "", ""].map(|key| message(key, "meet"));
    let outcomes = tokio::time::timeout(Duration::from_secs(10), publish(&publisher, &messages)).await;
    assert_eq!(outcomes.expect("the lanes meet"), vec![Outcome::DELIVERED; 5]);
}

#[tokio::test]
async fn no_more_lanes_than_asked_for_are_in_flight() {
    for concurrency in [0, 1, 2] {
        let (publisher, log) = noted(1);
        let publisher = publisher.concurrency(concurrency);
        publish(
            &publisher,
            &["x0", "x1", "x2", "x3", "x4"].map(|payload| message("", payload)),
        )
        .await;
        let mut in_flight = 0_usize;
        let mut most = 0;
        for line in of_lane(log, "x") {
            in_flight = if line.ends_with("begins") {
                in_flight + 1
            } else {
                in_flight - 1
            };
            most = most.max(in_flight);
        }
        assert_eq!(most, concurrency.max(1));
    }
}

#[tokio::test]
async fn a_failure_stops_its_lane_and_no_other() {
    let (publisher, log) = noted(1);
    let messages = [
        message("a", "a0"),
        message("a", "a1 fail"),
        message("b", "b0"),
        message("a", "a2"),
        message("", "fail"),
        message("", "lonely"),
        message("b", "b1"),
    ];
    let outcomes = publish(&publisher, &messages).await;
    let failed = || Outcome::Failed(refused());
    let (ok, not) = (|| Outcome::DELIVERED, || Outcome::NotAttempted);
    assert_eq!(outcomes, [ok(), failed(), ok(), not(), failed(), ok(), ok()]);
    assert!(of_lane(log, "a2").is_empty());
}

#[tokio::test]
async fn equal_keys_of_two_topics_are_two_lanes() {
    let (publisher, _) = noted(1);
    let other = Message::new("other", "x").key("a");
    let outcomes = publish(&publisher, &[message("a", "fail"), other]).await;
    assert_eq!(outcomes, [Outcome::Failed(refused()), Outcome::DELIVERED]);
}

#[tokio::test]
async fn a_panic_is_an_unknown_outcome_of_its_message_only() {
    let (publisher, _) = noted(1);
    let messages = [message("a", "a0 panic"), message("a", "a1"), message("b", "b0")];
    let outcomes = publish(&publisher, &messages).await;
    let Outcome::Failed(error) = &outcomes[0] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(error.kind, ErrorKind::Unknown);
    assert_eq!(error.message, "the publisher panicked: a0 panic was asked to");
    assert_eq!(outcomes[1..], [Outcome::NotAttempted, Outcome::DELIVERED]);
}

#[tokio::test]
async fn what_may_not_be_sent_is_not_attempted_nor_is_the_rest_of_its_lane() {
    let (publisher, log) = noted(1);
    let messages = [
        message("a", "a0"),
        message("a", "a1"),
        message("a", "a2"),
        message("", "lonely"),
        message("b", "b0"),
    ];
    let outcomes = publish_without_lease(&publisher, &messages, &[1, 3]).await;
    let (ok, not) = (|| Outcome::DELIVERED, || Outcome::NotAttempted);
    assert_eq!(outcomes, [ok(), not(), not(), not(), ok()]);
    assert_eq!(log.lock().unwrap().len(), 4);
}
