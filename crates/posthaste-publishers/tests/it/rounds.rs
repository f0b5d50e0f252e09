//! Requests with many messages.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::Message;
use posthaste_core::publisher::{Delivery, ErrorScope, Outcome, PublishError, Receipt, Shared};
use posthaste_publishers::{InRounds, PublishRound};

use crate::support::{message, publish, refused};

/// Remembers each request; answers as the payloads say.
#[derive(Clone, Default)]
struct Noted(Arc<Mutex<Vec<Vec<String>>>>);

impl Noted {
    fn requests(&self) -> Vec<Vec<String>> {
        self.0.lock().unwrap().clone()
    }
}

#[async_trait]
impl PublishRound for Noted {
    async fn publish_round(&self, round: &[&Delivery]) -> Result<Vec<Result<Receipt, PublishError>>, PublishError> {
        let payloads: Vec<String> = round
            .iter()
            .map(|delivery| String::from_utf8(delivery.message.payload.to_vec()).unwrap())
            .collect();
        self.0.lock().unwrap().push(payloads.clone());
        let has = |word: &str| payloads.iter().any(|payload| payload.contains(word));
        assert!(!has("panic"), "it was asked to");
        if has("poison") {
            return Err(PublishError::permanent("not this"));
        }
        if has("unavailable") {
            return Err(PublishError::transport("nobody is there"));
        }
        if has("strange") {
            return Err(PublishError::unknown("no idea").within(ErrorScope::Broker));
        }
        if has("hang") {
            std::future::pending::<()>().await;
        }
        let answer = |payload: &String| match payload {
            payload if payload.contains("fail") => Err(refused()),
            _ => Ok(Receipt::default()),
        };
        let silent = payloads.iter().filter(|payload| payload.contains("forgotten")).count();
        Ok(payloads.iter().take(payloads.len() - silent).map(answer).collect())
    }

    fn name(&self) -> &'static str {
        "noted"
    }
}

fn noted() -> (InRounds<Noted>, Noted) {
    let noted = Noted::default();
    (InRounds::new(noted.clone()).limits(1, Duration::from_mins(1)), noted)
}

fn unkeyed(payloads: &[&str]) -> Vec<Message> {
    payloads.iter().map(|payload| message("", payload)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_round_has_one_message_of_each_lane_and_the_next_of_a_lane_waits_for_the_answer() {
    let (publisher, noted) = noted();
    let messages = [
        message("a", "a1"),
        message("a", "a2"),
        message("b", "b1"),
        message("a", "a3"),
        message("", "1"),
    ];
    assert_eq!(publish(&publisher, &messages).await, vec![Outcome::DELIVERED; 5]);
    assert_eq!(noted.requests(), [vec!["a1", "b1", "1"], vec!["a2"], vec!["a3"]]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_ends_its_lane_and_no_other() {
    let (publisher, noted) = noted();
    let messages = [
        message("a", "a1 fail"),
        message("a", "a2"),
        message("b", "b1"),
        message("b", "b2"),
    ];
    let expected = [
        Outcome::Failed(refused()),
        Outcome::NotAttempted,
        Outcome::DELIVERED,
        Outcome::DELIVERED,
    ];
    assert_eq!(publish(&publisher, &messages).await, expected);
    assert_eq!(noted.requests(), [vec!["a1 fail", "b1"], vec!["b2"]]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_makes_a_request_fail_is_found_and_its_neighbours_go_out() {
    for word in ["poison", "panic"] {
        let (publisher, noted) = noted();
        let outcomes = publish(&publisher, &unkeyed(&["1", "2", "3", word, "5", "6", "7", "8"])).await;
        let delivered = outcomes.iter().filter(|outcome| outcome.is_delivered()).count();
        assert_eq!(delivered, 7, "{outcomes:?}");
        assert!(matches!(outcomes[3], Outcome::Failed(_)));
        assert_eq!(noted.requests().len(), 7, "by halves: {:?}", noted.requests());
    }
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_broker_is_not_asked_for_each_message() {
    let (publisher, noted) = noted();
    let outcomes = publish(&publisher, &unkeyed(&["1", "unavailable", "3"])).await;
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Failed(_))));
    assert_eq!(noted.requests().len(), 1);
}

/// What each message's failure says of its company.
fn shared(outcomes: &[Outcome]) -> Vec<Shared> {
    let shared = |outcome: &Outcome| match outcome {
        Outcome::Failed(error) => error.shared,
        other => panic!("{other:?}"),
    };
    outcomes.iter().map(shared).collect()
}

#[tokio::test(start_paused = true)]
async fn a_request_that_fails_is_one_failure_and_comes_again_in_halves() {
    let (publisher, noted) = noted();
    let messages = unkeyed(&["1", "unavailable", "3", "4"]);
    let outcomes = publish(&publisher, &messages).await;
    assert_eq!(
        shared(&outcomes),
        [Shared::Counted, Shared::Beside, Shared::Beside, Shared::Beside]
    );
    let outcomes = publish(&publisher, &messages).await;
    assert_eq!(shared(&outcomes[..2]), [Shared::Counted, Shared::Beside]);
    assert!(outcomes[2].is_delivered() && outcomes[3].is_delivered());
    let outcomes = publish(&publisher, &messages[..2]).await;
    assert!(outcomes[0].is_delivered());
    assert_eq!(shared(&outcomes[1..]), [Shared::No], "it is alone");
    let sizes: Vec<usize> = noted.requests().iter().map(Vec::len).collect();
    assert_eq!(sizes, [4, 2, 2, 1, 1]);
}

/// Else its messages would use no attempt and come again at once, without end.
#[tokio::test(start_paused = true)]
async fn only_a_request_that_did_not_arrive_is_shared() {
    let (publisher, _) = noted();
    let outcomes = publish(&publisher, &unkeyed(&["1", "strange"])).await;
    assert_eq!(shared(&outcomes), [Shared::No; 2]);
}

#[tokio::test(start_paused = true)]
async fn silence_is_told_in_time_and_a_message_without_answer_is_not_delivered() {
    let (publisher, _) = noted();
    let outcomes = publish(&publisher, &unkeyed(&["hang"])).await;
    let Outcome::Failed(error) = &outcomes[0] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(error.to_string(), "noted: no answer within 1m");
    let outcomes = publish(&publisher, &unkeyed(&["1", "forgotten"])).await;
    assert!(
        outcomes[0].is_delivered() && !outcomes[1].is_delivered(),
        "{outcomes:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_keeps_to_its_limits_and_a_larger_message_goes_alone() {
    let (publisher, noted) = noted();
    let publisher = publisher.max_request(2, 10);
    let messages = unkeyed(&["1", "2", "3", "larger than ten bytes", "5", "123456", "123456"]);
    publish(&publisher, &messages).await;
    let requests = noted.requests();
    let expected: [&[&str]; 5] = [
        &["1", "2"],
        &["3"],
        &["larger than ten bytes"],
        &["5", "123456"],
        &["123456"],
    ];
    assert_eq!(requests, expected);
}
