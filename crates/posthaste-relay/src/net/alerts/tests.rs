use std::time::Duration;

use posthaste_core::MessageId;
use posthaste_core::alert::{AlertKind, AlertMessage};
use tokio::time::{Instant, advance};

use super::throttle::Throttle;
use super::{AlertPolicy, Event};

fn event(topic: &str, cause: &str) -> Event {
    Event {
        kind: AlertKind::Net,
        topic: Some(topic.to_owned()),
        cause: cause.to_owned(),
        count: 1,
        messages: vec![AlertMessage {
            id: MessageId::new(),
            key: None,
            error: "no".to_owned(),
        }],
    }
}

fn throttle() -> Throttle {
    Throttle::new("default", AlertPolicy::default())
}

/// Sends all that may be sent now; returns how many messages each alert tells of, and how many of them late.
fn send(throttle: &mut Throttle, taken: bool) -> Vec<(u64, u64)> {
    let mut sent = Vec::new();
    while let Some(alert) = throttle.next(Instant::now()) {
        sent.push((alert.count, alert.suppressed));
        throttle.sent(alert, taken, Instant::now());
    }
    sent
}

/// Proves D7.
#[tokio::test(start_paused = true)]
async fn the_same_cause_is_told_once_and_then_as_a_summary() {
    let mut throttle = throttle();
    for _ in 0..1_000 {
        throttle.add(event("orders", "disk full"));
    }
    assert_eq!(send(&mut throttle, true), [(1_000, 0)]);
    for _ in 0..7 {
        throttle.add(event("orders", "disk full"));
    }
    assert_eq!(send(&mut throttle, true), [], "not so soon after the first");
    assert_eq!(throttle.take_suppressed(), 7);
    advance(Duration::from_mins(15)).await;
    assert_eq!(throttle.next_due().map(|due| due <= Instant::now()), Some(true));
    assert_eq!(send(&mut throttle, true), [(7, 7)]);
    assert_eq!(throttle.next_due(), None, "there is nothing left to tell");
}

#[tokio::test(start_paused = true)]
async fn another_topic_or_another_cause_is_told_at_once() {
    let mut throttle = throttle();
    throttle.add(event("orders", "disk full"));
    assert_eq!(send(&mut throttle, true), [(1, 0)]);
    throttle.add(event("invoices", "disk full"));
    throttle.add(event("orders", "permission denied"));
    assert_eq!(send(&mut throttle, true), [(1, 0), (1, 0)]);
}

#[tokio::test(start_paused = true)]
async fn no_more_than_so_many_are_sent_in_a_minute_and_none_is_lost() {
    let mut throttle = throttle();
    for topic in 0..25 {
        throttle.add(event(&topic.to_string(), "disk full"));
    }
    let mut sent = vec![send(&mut throttle, true).len()];
    while let Some(due) = throttle.next_due() {
        advance(due - Instant::now()).await;
        sent.push(send(&mut throttle, true).len());
    }
    assert_eq!(sent, [10, 10, 5]);
}

#[tokio::test(start_paused = true)]
async fn one_that_was_not_taken_is_sent_again_with_what_came_meanwhile() {
    let mut throttle = throttle();
    throttle.add(event("orders", "disk full"));
    assert_eq!(send(&mut throttle, false), [(1, 0)]);
    throttle.add(event("orders", "disk full"));
    assert_eq!(send(&mut throttle, true), []);
    advance(Duration::from_secs(30)).await;
    assert_eq!(send(&mut throttle, true), [(2, 0)]);
}

/// Proves D7.
#[tokio::test(start_paused = true)]
async fn what_has_a_place_by_the_time_of_the_alert_is_not_told() {
    let mut throttle = throttle();
    let events: Vec<_> = (0..3).map(|_| event("orders", "disk full")).collect();
    let ids: Vec<_> = events.iter().map(|event| event.messages[0].id).collect();
    for event in events {
        throttle.add(event);
    }
    assert_eq!(send(&mut throttle, false), [(3, 0)]);
    throttle.withdraw(&ids[..2]);
    throttle.withdraw(&ids[..2]);
    advance(Duration::from_secs(30)).await;
    assert_eq!(send(&mut throttle, false), [(1, 0)]);
    throttle.withdraw(&ids[2..]);
    assert_eq!(throttle.next_due(), None, "there is nothing left to tell");

    // What was told cannot be taken back, and takes nothing from what comes later.
    let told = event("orders", "disk full");
    let id = told.messages[0].id;
    throttle.add(told);
    advance(Duration::from_secs(30)).await;
    assert_eq!(send(&mut throttle, true), [(1, 0)]);
    throttle.add(event("orders", "disk full"));
    throttle.withdraw(&[id]);
    advance(Duration::from_mins(15)).await;
    assert_eq!(send(&mut throttle, true), [(1, 1)]);
}

#[tokio::test(start_paused = true)]
async fn endless_causes_take_no_endless_memory() {
    let mut throttle = throttle();
    for cause in 0..2_000 {
        throttle.add(event("orders", &cause.to_string()));
    }
    let (mut sent, mut told) = (0, 0);
    while let Some(due) = throttle.next_due() {
        advance(due.saturating_duration_since(Instant::now())).await;
        for (count, _) in send(&mut throttle, true) {
            sent += 1;
            told += count;
        }
    }
    assert_eq!((sent, told), (501, 2_000));
}
