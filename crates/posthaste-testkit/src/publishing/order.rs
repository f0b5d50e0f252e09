//! Order within a lane.

use super::scene::{Scene, delivered, failure, not_attempted};
use crate::counterpart::Counterpart;

/// Several batches with several messages of each lane.
pub async fn lanes_side_by_side_arrive_in_order<C: Counterpart>(scene: &Scene<C>) {
    scene.deliver(&["a#1", "b#1", "a#2", "b#2", "a#3"]).await;
    scene.deliver(&["b#3", "a#4", "b#4"]).await;
    assert_eq!(scene.arrived("a").await, ["a#1", "a#2", "a#3", "a#4"]);
    assert_eq!(scene.arrived("b").await, ["b#1", "b#2", "b#3", "b#4"]);
}

/// What follows a failed message of its lane does not arrive before it, and costs no attempt.
pub async fn after_a_failure_the_rest_of_the_lane_waits_and_other_lanes_go_on<C: Counterpart>(scene: &Scene<C>) {
    let mut messages = scene.messages(&["a#1", "b#1", "a#2", "b#2", "a#3"]);
    messages[0] = scene.counterpart.refused("a#1");
    let answers = scene.publish(&messages).await;
    failure(&answers, "a#1");
    not_attempted(&answers, &["a#2", "a#3"]);
    delivered(&answers, &["b#1", "b#2"]);
    assert!(scene.arrived("a").await.is_empty());
    assert_eq!(scene.arrived("b").await, ["b#1", "b#2"]);
    // The same ids, once the message is as it should be.
    messages[0].payload = scene.message("a#1").payload;
    let again = [0, 2, 4].map(|place: usize| messages[place].clone());
    scene.deliver_in_the_end(again.to_vec()).await;
    assert_eq!(scene.arrived("a").await, ["a#1", "a#2", "a#3"]);
}

/// A transport that keeps several messages of a lane under way may have those behind the refused one on their way already.
pub async fn a_refusal_in_the_middle_of_a_warm_lane_is_not_overtaken<C: Counterpart>(scene: &Scene<C>) {
    scene.deliver(&["a#1", "a#2"]).await;
    scene.deliver(&["a#3", "a#4"]).await;
    let mut messages = scene.messages(&["a#5", "a#6", "a#7", "a#8", "b#1"]);
    messages[1] = scene.counterpart.refused("a#6");
    let answers = scene.publish(&messages).await;
    delivered(&answers, &["a#5", "b#1"]);
    failure(&answers, "a#6");
    not_attempted(&answers, &["a#7", "a#8"]);
    assert_eq!(scene.arrived("a").await, ["a#1", "a#2", "a#3", "a#4", "a#5"]);
    scene.deliver_in_the_end(scene.messages(&["a#6", "a#7", "a#8"])).await;
    let all = ["a#1", "a#2", "a#3", "a#4", "a#5", "a#6", "a#7", "a#8"];
    assert_eq!(scene.arrived("a").await, all);
}
