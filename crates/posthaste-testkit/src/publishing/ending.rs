//! Stopping.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::scene::{Scene, delivered, not_attempted};
use crate::counterpart::Counterpart;

/// No operator waits longer for a process to end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A lease that has run out, or a relay that stops.
pub async fn what_may_not_be_sent_is_not_sent<C: Counterpart>(scene: &Scene<C>) {
    let messages = scene.messages(&["a#1", "b#1", "a#2", "b#2", "a#3", "c#1"]);
    let answers = scene
        .publish_by(&*scene.publisher, &messages, |place| place.index() < 3)
        .await;
    delivered(&answers, &["a#1", "b#1", "a#2"]);
    not_attempted(&answers, &["b#2", "a#3", "c#1"]);
    assert_eq!(scene.arrived("a").await, ["a#1", "a#2"]);
    assert_eq!(scene.arrived("b").await, ["b#1"]);
    assert!(scene.arrived("c").await.is_empty());
}

/// The answer may change while the batch is on its way: after some questions it is no, and no lane has a gap.
pub async fn what_may_no_longer_be_sent_is_not_sent<C: Counterpart>(scene: &Scene<C>) {
    let names = ["a#1", "a#2", "a#3", "a#4", "a#5", "a#6"];
    let messages = scene.messages(&names);
    let questions = Arc::new(AtomicUsize::new(0));
    let may_send = move |_| questions.fetch_add(1, Ordering::SeqCst) < 3;
    let answers = scene.publish_by(&*scene.publisher, &messages, may_send).await;
    let sent = answers
        .iter()
        .take_while(|answer| answer.outcome.is_delivered())
        .count();
    assert!((1..=3).contains(&sent), "{answers:?}");
    not_attempted(&answers, &names[sent..]);
    assert_eq!(scene.arrived("a").await, names[..sent]);
}

/// Relays that share a publisher close it each.
pub async fn closing_ends_soon_also_twice_and_what_follows_opens_again<C: Counterpart>(scene: &Scene<C>) {
    scene.deliver(&["a#1"]).await;
    for _ in 0..2 {
        let began = Instant::now();
        scene.publisher.close().await;
        assert!(began.elapsed() < CLOSE_TIMEOUT, "it took {:?}", began.elapsed());
    }
    scene.deliver_in_the_end(scene.messages(&["a#2"])).await;
    assert_eq!(scene.arrived("a").await, ["a#1", "a#2"]);
}
