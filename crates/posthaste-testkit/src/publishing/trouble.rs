//! What becomes of messages while something is wrong with the counterpart, and afterwards.

use std::time::{Duration, Instant};

use posthaste_core::publisher::{ErrorKind, ErrorScope, Outcome, PublishError};

use super::scene::{RECOVERY_TIMEOUT, Scene, delivered, failure, not_attempted};
use crate::counterpart::{Counterpart, Disturbance};

/// What a time-out may take longer than it says, on a machine that is busy.
const SLACK: Duration = Duration::from_secs(5);

/// Whether it was taken is not known, so it counts neither as delivered nor as refused.
pub async fn silence_ends_with_the_publishers_own_time_out<C: Counterpart>(scene: &Scene<C>) {
    scene.deliver(&["a#1"]).await;
    scene.counterpart.disturb(Disturbance::Silence).await;
    let messages = scene.messages(&["a#2", "a#3", "b#1"]);
    let answers = scene.publish(&messages).await;
    let limit = scene.counterpart.answer_within() + SLACK;
    for answer in &answers {
        assert!(answer.after < limit, "not within {limit:?}: {answers:?}");
        assert!(!answer.outcome.is_delivered(), "{answers:?}");
    }
    for name in ["a#2", "b#1"] {
        let kind = failure(&answers, name).kind;
        let known = matches!(kind, ErrorKind::Transport | ErrorKind::Transient | ErrorKind::Unknown);
        assert!(known, "{answers:?}");
    }
    scene.counterpart.recover().await;
    scene.deliver_in_the_end(messages).await;
    assert_eq!(scene.arrived("a").await, ["a#1", "a#2", "a#3"]);
}

/// The publisher goes on by itself.
pub async fn a_counterpart_that_died_is_published_to_again_once_it_is_back<C: Counterpart>(scene: &Scene<C>) {
    scene.deliver(&["a#1", "b#1"]).await;
    scene.counterpart.disturb(Disturbance::Death).await;
    let messages = scene.messages(&["a#2", "a#3", "b#2"]);
    let answers = scene.publish(&messages).await;
    for name in ["a#2", "b#2"] {
        unavailable(&failure(&answers, name));
    }
    not_attempted(&answers, &["a#3"]);
    scene.counterpart.recover().await;
    scene.deliver_in_the_end(messages).await;
    assert_eq!(scene.arrived("a").await, ["a#1", "a#2", "a#3"]);
    assert_eq!(scene.arrived("b").await, ["b#1", "b#2"]);
}

/// Nobody knows how far it came; its neighbours have nothing to do with it.
pub async fn a_panic_fails_its_own_message_only<C: Counterpart>(scene: &Scene<C>) {
    let mut messages = scene.messages(&["a#1", "b#1", "b#2", "b#3", "c#1"]);
    messages[2] = scene.counterpart.panicking("b#2");
    let answers = scene.publish(&messages).await;
    delivered(&answers, &["a#1", "b#1", "c#1"]);
    assert_eq!(failure(&answers, "b#2").kind, ErrorKind::Unknown, "{answers:?}");
    not_attempted(&answers, &["b#3"]);
    scene.deliver(&["b#4"]).await;
}

/// It is waited for, not run into.
pub async fn a_pause_that_passes_in_time_costs_nothing<C: Counterpart>(scene: &Scene<C>) {
    let pause = Duration::from_secs(1);
    scene.counterpart.disturb(Disturbance::Throttle(pause)).await;
    let answers = scene.publish(&scene.messages(&["a#1", "a#2"])).await;
    delivered(&answers, &["a#1", "a#2"]);
    assert!(answers[0].after >= pause, "nobody waited: {answers:?}");
    assert_eq!(scene.arrived("a").await, ["a#1", "a#2"]);
}

/// The relay is told, rather than made to wait.
pub async fn a_pause_that_is_too_long_is_reported_with_its_time<C: Counterpart>(scene: &Scene<C>) {
    let pause = scene.counterpart.answer_within() * 10;
    scene.counterpart.disturb(Disturbance::Throttle(pause)).await;
    let answers = scene.publish(&scene.messages(&["a#1", "a#2"])).await;
    let kind = failure(&answers, "a#1").kind;
    let ErrorKind::Throttled { retry_after } = kind else {
        panic!("{answers:?}")
    };
    assert!(retry_after <= pause && retry_after > pause / 2, "{answers:?}");
    not_attempted(&answers, &["a#2"]);
    let limit = scene.counterpart.answer_within() + SLACK;
    assert!(answers.iter().all(|answer| answer.after < limit), "{answers:?}");
    assert!(scene.arrived("a").await.is_empty());
}

/// Only what no operator can fix is permanent, and only for the one that it is about.
pub async fn a_message_that_is_too_large_is_given_up_and_its_neighbours_are_delivered<C: Counterpart>(
    scene: &Scene<C>,
) {
    let mut messages = scene.messages(&["a#1", "b#1", "c#1", "c#2"]);
    messages[1] = scene.counterpart.too_large("b#1");
    let answers = scene.publish(&messages).await;
    delivered(&answers, &["a#1", "c#1", "c#2"]);
    let error = failure(&answers, "b#1");
    assert_eq!(
        (error.kind, &error.scope),
        (ErrorKind::Permanent, &ErrorScope::Message),
        "{error}"
    );
    assert!(scene.arrived("b").await.is_empty());
    assert_eq!(scene.arrived("c").await, ["c#1", "c#2"]);
}

/// The error says which destination it is, by the name under which the relay holds back its messages.
pub async fn a_dead_destination_does_not_hold_up_a_healthy_one<C: Counterpart>(scene: &Scene<C>) {
    let (publisher, dead_topic) = scene.counterpart.beside_a_dead_one();
    let dead = ["dead#1", "dead#2"].map(|name| super::message(&dead_topic, name, ""));
    let mut messages = dead.to_vec();
    messages.extend(scene.messages(&["a#1", "a#2"]));
    let answers = scene.publish_by(&*publisher, &messages, |_| true).await;
    delivered(&answers, &["a#1", "a#2"]);
    for answer in answers.iter().filter(|answer| answer.outcome.is_delivered()) {
        assert!(answer.after < SLACK, "it was held up: {answers:?}");
    }
    let ErrorScope::Destination(destination) = failure(&answers, "dead#1").scope else {
        panic!("{answers:?}")
    };
    if let Some(told_before) = publisher.destination(&messages[0]) {
        assert_eq!(destination, told_before);
    }
    assert_eq!(scene.arrived("a").await, ["a#1", "a#2"]);
    publisher.close().await;
}

/// Nothing of what was not delivered is left, and nothing of it is in the way of what follows.
pub async fn a_full_counterpart_is_unavailable_and_nothing_is_torn<C: Counterpart>(scene: &Scene<C>) {
    scene.deliver(&["a#1", "b#1"]).await;
    scene.counterpart.disturb(Disturbance::Full).await;
    // More than what may be left of a page.
    let filler = "x".repeat(5_000);
    let large = |name: &&str| super::message(&scene.counterpart.topic(), name, &filler);
    let messages: Vec<_> = ["a#2", "a#3", "b#2"].iter().map(large).collect();
    let answers = scene.publish(&messages).await;
    let first = answers.iter().find_map(|answer| match &answer.outcome {
        Outcome::Failed(error) => Some(error.clone()),
        _ => None,
    });
    unavailable(&first.expect("something failed"));
    for answer in &answers {
        let arrived = scene.counterpart.arrived().await.contains(&answer.name);
        assert_eq!(arrived, answer.outcome.is_delivered(), "{answers:?}");
    }
    scene.counterpart.recover().await;
    scene.deliver_in_the_end(messages).await;
    assert_eq!(scene.arrived("a").await, ["a#1", "a#2", "a#3"]);
    assert_eq!(scene.arrived("b").await, ["b#1", "b#2"]);
}

/// An operator asks before any message is at stake.
pub async fn a_check_finds_what_is_well_and_what_is_not<C: Counterpart>(scene: &Scene<C>) {
    let found = scene.publisher.check().await.expect("it is well");
    assert!(!found.is_empty());
    scene.counterpart.disturb(Disturbance::Death).await;
    let error = scene.publisher.check().await.expect_err("it is dead");
    unavailable(&error);
    assert!(error.message.contains(' '), "it is a sentence: {error}");
    scene.counterpart.recover().await;
    let deadline = Instant::now() + RECOVERY_TIMEOUT;
    while let Err(error) = scene.publisher.check().await {
        assert!(Instant::now() < deadline, "it does not recover: {error}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(scene.counterpart.arrived().await.is_empty(), "it only asked");
}

/// Every message would fail so, and it may pass.
fn unavailable(error: &PublishError) {
    assert_eq!(error.kind, ErrorKind::Transport, "{error:?}");
    let far = matches!(error.scope, ErrorScope::Broker | ErrorScope::Destination(_));
    assert!(far, "{error:?}");
}
