//! Order per key.

use chrono::Utc;
use posthaste_core::lifecycle::Verdict;
use posthaste_core::store::{DeadHead, Filter};
use posthaste_core::{AdminStore, Message, MessageId};

use super::steps::{
    HOUR, LEASE_AND_MORE, MINUTE, Worker, deliver_all, enqueue_new, keyed, kill, plain, replay, retry, settle,
};
use crate::backend::Backend;

fn dead(error: &str) -> Verdict {
    Verdict::Dead { error: error.into() }
}

fn only(id: MessageId) -> Filter {
    Filter {
        ids: vec![id],
        ..Filter::default()
    }
}

/// Proves pitfall 4.
pub async fn a_run_of_one_key_is_claimed_together_in_order<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..20).map(|n| keyed("k", &n.to_string()))).await;
    assert_eq!(Worker::new().claim(b, 20).await.ids(), ids);
}

/// Proves B14 and pitfall 4.
pub async fn a_key_in_flight_gives_out_nothing_more<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [keyed("k", "1"), keyed("k", "2"), keyed("k", "3")]).await;
    let first = Worker::new().claim(b, 1).await;
    assert_eq!(first.ids(), ids[..1]);
    assert_eq!(Worker::new().claim(b, 10).await.ids(), [], "the key is in flight");
    first.deliver(b).await;
    assert_eq!(Worker::new().claim(b, 10).await.ids(), ids[1..]);
}

/// Proves pitfall 4.
pub async fn a_key_in_flight_gives_out_nothing_that_was_replayed_either<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [keyed("k", "1"), keyed("k", "2")]).await;
    kill(b, ids[0]).await;
    let second = Worker::new().claim(b, 10).await;
    assert_eq!(second.ids(), ids[1..]);
    replay(b, ids[0]).await;
    assert_eq!(Worker::new().claim(b, 10).await.ids(), [], "batches never share a key");
    second.deliver(b).await;
    assert_eq!(Worker::new().claim(b, 10).await.ids(), ids[..1]);
}

/// Proves pitfall 4.
pub async fn equal_keys_of_other_topics_and_namespaces_are_other_lanes<B: Backend>(b: &B) {
    let ids = enqueue_new(
        b,
        [
            Message::new("a", "1").key("k").namespace("other"),
            Message::new("a", "2").key("k"),
            Message::new("b", "3").key("k"),
        ],
    )
    .await;
    let other = posthaste_core::store::Scope {
        namespace: "other".into(),
        ..Default::default()
    };
    assert_eq!(Worker::new().scope(other).claim(b, 1).await.ids(), ids[..1]);
    assert_eq!(Worker::new().claim(b, 1).await.ids(), ids[1..2]);
    assert_eq!(Worker::new().claim(b, 1).await.ids(), ids[2..]);
}

/// Proves pitfalls 5, 18.
pub async fn rows_without_a_key_wait_for_nobody<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..4).map(|n| plain(&n.to_string()))).await;
    let work = Worker::new().claim(b, 2).await;
    assert_eq!(settle(b, vec![work.verdict(ids[0], retry(HOUR))]).await, []);
    assert_eq!(Worker::new().claim(b, 10).await.ids(), ids[2..]);
}

/// Proves pitfall 5.
pub async fn a_failed_head_stops_its_key_and_no_other<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [keyed("a", "1"), keyed("b", "2"), keyed("a", "3"), keyed("b", "4")]).await;
    let work = Worker::new().claim(b, 2).await;
    assert_eq!(
        settle(
            b,
            vec![
                work.verdict(ids[0], retry(HOUR)),
                work.verdict(ids[1], Verdict::Delivered)
            ]
        )
        .await,
        []
    );
    let work = Worker::new().claim(b, 10).await;
    assert_eq!(work.ids(), [ids[3]], "key b goes on, key a waits");
    work.deliver(b).await;

    b.pass_time(HOUR + MINUTE).await;
    let work = Worker::new().claim(b, 10).await;
    assert_eq!(work.ids(), [ids[0]], "the retry goes alone");
    work.deliver(b).await;
    assert_eq!(Worker::new().claim(b, 10).await.ids(), [ids[2]]);
}

/// Proves pitfall 5.
pub async fn a_scheduled_row_holds_back_what_follows_and_nothing_else<B: Backend>(b: &B) {
    let ids = enqueue_new(
        b,
        [
            keyed("k", "1"),
            keyed("k", "2").not_before(Utc::now() + HOUR),
            keyed("k", "3"),
        ],
    )
    .await;
    let work = Worker::new().claim(b, 10).await;
    assert_eq!(work.ids(), ids[..1], "what was enqueued before does not wait");
    work.deliver(b).await;
    assert_eq!(Worker::new().claim(b, 10).await.ids(), []);
    b.pass_time(HOUR + MINUTE).await;
    let work = Worker::new().claim(b, 10).await;
    assert_eq!(work.ids(), ids[1..2]);
    work.deliver(b).await;
    assert_eq!(Worker::new().claim(b, 10).await.ids(), ids[2..]);
}

/// Proves pitfall 5.
pub async fn a_scheduled_row_that_is_due_does_not_overtake_earlier_ones<B: Backend>(b: &B) {
    let ids = enqueue_new(
        b,
        [
            keyed("k", "1"),
            keyed("k", "2").not_before(Utc::now() + HOUR),
            keyed("k", "3").not_before(Utc::now() + MINUTE),
        ],
    )
    .await;
    b.pass_time(HOUR + MINUTE).await;
    assert_eq!(deliver_all(b, &Worker::new()).await, ids);
}

/// Proves pitfall 5.
pub async fn scheduled_and_other_rows_of_a_key_go_by_sequence<B: Backend>(b: &B) {
    let key = |n: usize| format!("k{}", n % 2);
    let message = |n: usize| match n % 5 {
        // Due in any order but that of the call.
        0 | 3 => keyed(&key(n), &n.to_string()).not_before(Utc::now() + MINUTE * u32::try_from(60 - n).unwrap_or(1)),
        _ => keyed(&key(n), &n.to_string()),
    };
    let ids = enqueue_new(b, (0..40).map(message)).await;
    // Heads that fail once go back to their places.
    let first = Worker::new().claim(b, 3).await;
    first.settle(b, retry(MINUTE)).await;
    b.pass_time(HOUR + HOUR).await;
    let mut delivered = Vec::new();
    loop {
        let work = Worker::new().claim(b, 7).await;
        if work.messages.is_empty() {
            break;
        }
        delivered.extend(work.ids());
        work.deliver(b).await;
    }
    assert_eq!(delivered.len(), ids.len());
    for lane in 0..2 {
        let of_lane = |id: &&MessageId| ids.iter().position(|other| other == *id).is_some_and(|n| n % 2 == lane);
        let in_order: Vec<_> = ids.iter().filter(of_lane).collect();
        assert_eq!(delivered.iter().filter(of_lane).collect::<Vec<_>>(), in_order);
    }
}

/// Proves pitfall 18.
pub async fn a_deep_backlog_that_is_held_back_hides_nothing<B: Backend>(b: &B) {
    let head = enqueue_new(b, [keyed("held", "head")]).await;
    Worker::new().claim(b, 1).await.settle(b, retry(HOUR)).await;
    enqueue_new(b, (0..1_200).map(|n| keyed("held", &n.to_string()))).await;
    let free = enqueue_new(b, [plain("free"), keyed("other", "1"), keyed("other", "2")]).await;
    let work = Worker::new().claim(b, 20).await;
    assert_eq!(work.ids(), free);
    work.deliver(b).await;
    assert_eq!(Worker::new().claim(b, 20).await.ids(), []);
    b.pass_time(HOUR + MINUTE).await;
    assert_eq!(Worker::new().claim(b, 20).await.ids(), head, "the retry goes alone");
}

/// Proves pitfall 5.
pub async fn a_replayed_row_goes_before_a_follower_that_waits<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [keyed("k", "1"), keyed("k", "2")]).await;
    kill(b, ids[0]).await;
    Worker::new().claim(b, 10).await.settle(b, retry(MINUTE)).await;
    replay(b, ids[0]).await;
    b.pass_time(HOUR).await;
    assert_eq!(deliver_all(b, &Worker::new()).await, ids);
}

/// Proves B7 and pitfall 4.
pub async fn an_expired_row_goes_before_what_follows_it<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [keyed("k", "1"), keyed("k", "2")]).await;
    Worker::new().claim(b, 1).await;
    b.pass_time(LEASE_AND_MORE).await;
    let work = Worker::new().claim(b, 10).await;
    assert_eq!(work.ids(), ids[..1]);
    assert!(work.reclaimed);
    assert_eq!(Worker::new().claim(b, 10).await.ids(), [], "the key is in flight again");
    work.deliver(b).await;
    assert_eq!(Worker::new().claim(b, 10).await.ids(), ids[1..]);
}

/// Proves B7 and pitfalls 4, 33.
pub async fn a_reclaimed_part_of_a_run_holds_back_the_rest<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..10).map(|n| keyed("k", &n.to_string()))).await;
    let worker = Worker::new().max_attempts(2);
    assert_eq!(worker.claim(b, 10).await.ids(), ids);
    b.pass_time(LEASE_AND_MORE).await;
    for id in &ids {
        let work = worker.claim(b, 10).await;
        assert_eq!(work.ids(), [*id], "one at a time before the last attempt");
        assert_eq!(worker.claim(b, 10).await.ids(), [], "the next one waits for it");
        work.deliver(b).await;
    }
}

/// Proves pitfall 5.
pub async fn a_failed_row_is_not_overtaken_by_a_follower_whose_worker_vanished<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [keyed("k", "1"), keyed("k", "2")]).await;
    let work = Worker::new().claim(b, 10).await;
    assert_eq!(settle(b, vec![work.verdict(ids[0], retry(HOUR))]).await, []);
    b.pass_time(LEASE_AND_MORE).await; // the worker died before it could settle the second
    assert_eq!(
        Worker::new().claim(b, 10).await.ids(),
        [],
        "the first waits for its retry"
    );
    b.pass_time(HOUR).await;
    let work = Worker::new().claim(b, 10).await;
    assert_eq!(work.ids(), ids[..1]);
    work.deliver(b).await;
    assert_eq!(Worker::new().claim(b, 10).await.ids(), ids[1..]);
}

/// Proves pitfall 5.
pub async fn a_released_row_is_not_overtaken_by_a_follower_whose_worker_vanished<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [keyed("k", "1"), keyed("k", "2")]).await;
    let work = Worker::new().claim(b, 10).await;
    assert_eq!(settle(b, vec![work.verdict(ids[0], Verdict::Released)]).await, []);
    b.pass_time(LEASE_AND_MORE).await; // the worker died before it could settle the second
    assert_eq!(deliver_all(b, &Worker::new()).await, ids);
}

/// Proves pitfall 5.
pub async fn a_released_row_keeps_its_place<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..4).map(|n| keyed("k", &n.to_string()))).await;
    let work = Worker::new().claim(b, 3).await;
    let verdicts = [Verdict::Delivered, Verdict::Released, Verdict::Released];
    let settlements = ids.iter().zip(verdicts).map(|(id, verdict)| work.verdict(*id, verdict));
    assert_eq!(settle(b, settlements.collect()).await, []);
    let work = Worker::new().claim(b, 10).await;
    assert_eq!(work.ids(), ids[1..]);
    assert!(
        work.messages.iter().all(|claimed| claimed.attempts == 1),
        "a release is no attempt"
    );
}

/// Proves pitfall 17.
pub async fn a_dead_head_is_skipped_by_default<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [keyed("k", "1"), keyed("k", "2")]).await;
    kill(b, ids[0]).await;
    let work = Worker::new().dead_heads(DeadHead::Skip, &[]).claim(b, 10).await;
    assert_eq!(work.ids(), ids[1..]);
}

/// Proves pitfall 17.
pub async fn a_dead_head_may_block_its_key_until_it_is_replayed<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [keyed("k", "1"), keyed("k", "2"), keyed("l", "3")]).await;
    kill(b, ids[0]).await;
    let worker = Worker::new().dead_heads(DeadHead::Block, &[]);
    let work = worker.claim(b, 10).await;
    assert_eq!(work.ids(), ids[2..], "only its own key waits");
    work.deliver(b).await;
    b.pass_time(HOUR).await;
    assert_eq!(worker.claim(b, 10).await.ids(), [], "however long");
    replay(b, ids[0]).await;
    assert_eq!(deliver_all(b, &worker).await, ids[..2]);
}

/// Proves pitfall 17.
pub async fn a_dead_head_may_block_its_key_until_it_is_discarded<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [keyed("k", "1"), keyed("k", "2")]).await;
    kill(b, ids[0]).await;
    let worker = Worker::new().dead_heads(DeadHead::Block, &[]);
    assert_eq!(worker.claim(b, 10).await.ids(), []);
    b.store().discard(&only(ids[0]), 10).await.expect("discard works");
    assert_eq!(worker.claim(b, 10).await.ids(), ids[1..]);
}

/// Proves pitfall 17.
pub async fn a_blocking_dead_row_holds_nothing_that_comes_before_it<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [keyed("k", "1"), keyed("k", "2"), keyed("k", "3")]).await;
    kill(b, ids[1]).await;
    let worker = Worker::new().dead_heads(DeadHead::Block, &[]);
    let work = worker.claim(b, 10).await;
    assert_eq!(work.ids(), ids[..1]);
    work.deliver(b).await;
    assert_eq!(worker.claim(b, 10).await.ids(), [], "what follows it waits");
}

/// Proves pitfall 17.
pub async fn a_blocking_dead_head_also_holds_what_its_worker_left<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [keyed("k", "1"), keyed("k", "2")]).await;
    let worker = Worker::new().dead_heads(DeadHead::Block, &[]);
    let work = worker.claim(b, 10).await;
    assert_eq!(settle(b, vec![work.verdict(ids[0], dead("refused"))]).await, []);
    b.pass_time(LEASE_AND_MORE).await;
    assert_eq!(worker.claim(b, 10).await.ids(), []);
    assert_eq!(
        Worker::new().claim(b, 10).await.ids(),
        ids[1..],
        "another policy would let it go"
    );
}

/// Proves pitfall 17.
pub async fn topics_may_have_the_other_policy<B: Backend>(b: &B) {
    let message = |topic: &str| Message::new(topic, "x").key("k");
    let ids = enqueue_new(b, ["a", "b", "a", "b"].map(message)).await;
    for id in &ids[..2] {
        kill(b, *id).await;
    }
    for (policy, except, free) in [
        (DeadHead::Skip, "a", ids[3]),
        (DeadHead::Skip, "b", ids[2]),
        (DeadHead::Block, "a", ids[2]),
        (DeadHead::Block, "b", ids[3]),
    ] {
        let work = Worker::new().dead_heads(policy, &[except]).claim(b, 10).await;
        assert_eq!(work.ids(), [free], "{policy:?} except {except}");
        work.settle(b, Verdict::Released).await;
    }
}

/// Proves pitfall 17.
pub async fn a_dead_row_without_a_key_blocks_nothing<B: Backend>(b: &B) {
    let ids = enqueue_new(b, [plain("1"), plain("2")]).await;
    kill(b, ids[0]).await;
    let work = Worker::new().dead_heads(DeadHead::Block, &[]).claim(b, 10).await;
    assert_eq!(work.ids(), ids[1..]);
}

/// Proves pitfall 18.
pub async fn a_hot_key_does_not_starve_the_others<B: Backend>(b: &B) {
    let hot = (0..495).map(|n| keyed("hot", &n.to_string()));
    enqueue_new(b, hot).await;
    let cold = enqueue_new(b, (0..5).map(|n| keyed(&format!("cold {n}"), "x"))).await;

    let in_flight = Worker::new().claim(b, 10).await;
    assert_eq!(
        Worker::new().claim(b, 10).await.ids(),
        cold,
        "past everything of the hot key"
    );
    in_flight.settle(b, retry(HOUR)).await;
    let more = enqueue_new(b, [keyed("cold 9", "x"), plain("x")]).await;
    assert_eq!(
        Worker::new().claim(b, 10).await.ids(),
        more,
        "also while the hot key waits for a retry"
    );
}

/// Proves pitfall 4.
pub async fn without_order_keys_are_ignored<B: Backend>(b: &B) {
    let ids = enqueue_new(b, (0..4).map(|n| keyed("k", &n.to_string()))).await;
    let worker = Worker::new().unordered();
    let first = worker.claim(b, 2).await;
    assert_eq!(first.ids(), ids[..2]);
    first.settle(b, retry(HOUR)).await;
    assert_eq!(worker.claim(b, 10).await.ids(), ids[2..]);
}
