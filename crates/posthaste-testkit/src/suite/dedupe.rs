//! Enqueueing one logical event once.

use std::collections::HashSet;
use std::time::Duration;

use futures::future::join_all;
use posthaste_core::{AdminStore, Enqueued, Message, OutboxOptions};

use super::steps::{
    DAY, HOUR, MINUTE, SECOND, Worker, enqueue, enqueue_new, others_wait, plain, purge, records, try_enqueue,
};
use crate::backend::Backend;

fn keyed(key: &str) -> Message {
    plain("{}").dedupe_key(key)
}

fn window(dedupe_window: Duration) -> OutboxOptions {
    OutboxOptions::new().dedupe_window(dedupe_window)
}

async fn purge_all<B: Backend>(b: &B, keep: Duration) {
    while purge(b, keep, 1_000).await > 0 {}
}

/// Proves B4.
pub async fn a_second_enqueue_is_answered_with_the_first_id<B: Backend>(b: &B) {
    let first = enqueue_new(b, [keyed("k")]).await;
    assert_eq!(enqueue(b, [keyed("k")]).await, [Enqueued::Duplicate(first[0])]);
    assert_eq!(records(b).await.len(), 1);
    assert_eq!(Worker::new().claim(b, 10).await.ids(), first);
}

/// Proves B4.
pub async fn a_key_repeated_within_a_call_is_one_row<B: Backend>(b: &B) {
    let outcomes = enqueue(b, [keyed("k"), keyed("l"), keyed("k"), plain("x")]).await;
    let first = outcomes[0].id();
    assert_eq!(outcomes[2], Enqueued::Duplicate(first));
    let fresh: Vec<_> = outcomes.iter().map(|outcome| outcome.is_new()).collect();
    assert_eq!(fresh, [true, true, false, true]);
    assert_eq!(records(b).await.len(), 3);
}

/// Proves B4.
pub async fn a_key_repeated_within_a_transaction_is_one_row<B: Backend>(b: &B) {
    let options = OutboxOptions::default();
    let mut tx = b.begin().await;
    let first = b.enqueue(&mut tx, vec![keyed("k")], &options).await.expect("it is new");
    let second = b.enqueue(&mut tx, vec![keyed("k")], &options).await.expect("no error");
    b.commit(tx).await;
    assert_eq!(second, [Enqueued::Duplicate(first[0].id())]);
    assert_eq!(records(b).await.len(), 1);
}

/// As when a producer calls twice what enqueues. Proves B4.
pub async fn the_same_event_twice_in_a_transaction_is_one_row<B: Backend>(b: &B) {
    let (message, options) = (keyed("k"), OutboxOptions::default());
    let mut tx = b.begin().await;
    let first = b.enqueue(&mut tx, vec![message.clone()], &options).await;
    let first = first.expect("it is new")[0];
    assert!(first.is_new());
    for _ in 0..2 {
        let again = b.enqueue(&mut tx, vec![message.clone()], &options).await;
        assert_eq!(again.expect("no error"), [Enqueued::Duplicate(first.id())]);
    }
    b.commit(tx).await;
    assert_eq!(records(b).await.len(), 1);
}

/// Proves B4.
pub async fn new_and_known_keys_may_be_mixed_in_a_call<B: Backend>(b: &B) {
    let known = enqueue_new(b, [keyed("b")]).await;
    let outcomes = enqueue(b, [keyed("a"), keyed("b"), keyed("c")]).await;
    assert_eq!(outcomes[1], Enqueued::Duplicate(known[0]));
    assert!(outcomes[0].is_new() && outcomes[2].is_new());
    assert_eq!(records(b).await.len(), 3);
}

/// Proves B4.
pub async fn a_key_belongs_to_its_namespace_and_topic<B: Backend>(b: &B) {
    let message = |namespace: &str, topic: &str| Message::new(topic, "{}").namespace(namespace).dedupe_key("k");
    let first = enqueue_new(b, [message("a", "t"), message("a", "u"), message("b", "t")]).await;
    let again = enqueue(b, [message("b", "t"), message("a", "t"), message("a", "u")]).await;
    assert_eq!(again, [first[2], first[0], first[1]].map(Enqueued::Duplicate));
}

/// Proves B4.
pub async fn messages_without_a_key_are_never_duplicates<B: Backend>(b: &B) {
    enqueue_new(b, [plain("same"), plain("same")]).await;
    enqueue_new(b, [plain("same")]).await;
    assert_eq!(records(b).await.len(), 3);
}

/// Proves B2, B4.
pub async fn a_rolled_back_key_is_free<B: Backend>(b: &B) {
    let mut tx = b.begin().await;
    b.enqueue(&mut tx, vec![keyed("k")], &OutboxOptions::default())
        .await
        .expect("it is new");
    b.rollback(tx).await;
    let second = enqueue_new(b, [keyed("k")]).await;
    assert_eq!(Worker::new().claim(b, 10).await.ids(), second);
}

/// Proves B4.
pub async fn of_many_transactions_in_a_race_one_writes_the_row<B: Backend>(b: &B) {
    race(b, &OutboxOptions::default()).await;
}

/// Proves B4 and pitfall 23.
pub async fn a_race_is_decided_by_the_row_where_there_is_no_window<B: Backend>(b: &B) {
    race(b, &window(Duration::ZERO)).await;
}

async fn race<B: Backend>(b: &B, options: &OutboxOptions) {
    for round in 0..5 {
        let key = format!("round {round}");
        let racers = (0..12).map(|_| try_enqueue(b, vec![keyed(&key)], options));
        let outcomes: Vec<_> = join_all(racers)
            .await
            .into_iter()
            .map(|outcome| outcome.expect("a lost race is no error")[0])
            .collect();
        let winners = outcomes.iter().filter(|outcome| outcome.is_new()).count();
        assert_eq!(winners, 1, "{outcomes:?}");
        let ids: HashSet<_> = outcomes.iter().map(|outcome| outcome.id()).collect();
        assert_eq!(ids.len(), 1, "all are told the same id: {outcomes:?}");
    }
    assert_eq!(records(b).await.len(), 5);
}

/// Proves B4.
pub async fn races_for_several_keys_in_any_order_do_not_deadlock<B: Backend>(b: &B) {
    let racers = (0..12).map(|racer| {
        let mut messages: Vec<_> = (0..10).map(|n| keyed(&n.to_string())).collect();
        if racer % 2 == 1 {
            messages.reverse();
        }
        async move { try_enqueue(b, messages, &OutboxOptions::default()).await }
    });
    let outcomes = join_all(racers).await;
    let winners = outcomes
        .into_iter()
        .flat_map(|outcome| outcome.expect("nobody is thrown out of the race"))
        .filter(|outcome| outcome.is_new())
        .count();
    assert_eq!(winners, 10);
    assert_eq!(records(b).await.len(), 10);
}

/// Proves B4.
pub async fn the_second_wins_when_the_first_rolls_back<B: Backend>(b: &B) {
    let (first, second) = (keyed("k"), keyed("k"));
    let options = OutboxOptions::default();
    let mut tx = b.begin().await;
    b.enqueue(&mut tx, vec![first], &options).await.expect("it is new");
    let (outcome, ()) = tokio::join!(try_enqueue(b, vec![second.clone()], &options), async {
        others_wait().await;
        b.rollback(tx).await;
    });
    assert_eq!(outcome.expect("no error"), [Enqueued::Inserted(second.id)]);
    assert_eq!(Worker::new().claim(b, 10).await.ids(), [second.id]);
}

/// Proves B4.
pub async fn the_second_is_told_the_first_id_when_the_first_commits<B: Backend>(b: &B) {
    let (first, second) = (keyed("k"), keyed("k"));
    let options = OutboxOptions::default();
    let mut tx = b.begin().await;
    b.enqueue(&mut tx, vec![first.clone()], &options)
        .await
        .expect("it is new");
    let (outcome, ()) = tokio::join!(try_enqueue(b, vec![second], &options), async {
        others_wait().await;
        b.commit(tx).await;
    });
    assert_eq!(
        outcome.expect("a lost race is no error"),
        [Enqueued::Duplicate(first.id)]
    );
    assert_eq!(Worker::new().claim(b, 10).await.ids(), [first.id]);
}

/// Proves B4 and pitfall 23.
pub async fn a_key_is_held_within_its_window_after_its_row_was_purged<B: Backend>(b: &B) {
    let first = try_enqueue(b, vec![keyed("k")], &window(DAY)).await.expect("it is new");
    Worker::new().claim(b, 10).await.deliver(b).await;
    b.pass_time(HOUR).await;
    purge_all(b, Duration::ZERO).await;
    assert_eq!(records(b).await, [], "the row is gone");
    let again = try_enqueue(b, vec![keyed("k")], &window(DAY)).await.expect("no error");
    assert_eq!(again, [Enqueued::Duplicate(first[0].id())]);
    assert_eq!(records(b).await, []);
}

/// Proves pitfall 23.
pub async fn a_key_is_free_after_its_window_and_its_row<B: Backend>(b: &B) {
    try_enqueue(b, vec![keyed("k")], &window(DAY)).await.expect("it is new");
    Worker::new().claim(b, 10).await.deliver(b).await;
    b.pass_time(DAY + HOUR).await;
    purge_all(b, HOUR).await;
    let again = try_enqueue(b, vec![keyed("k")], &window(DAY)).await.expect("no error");
    assert!(again[0].is_new(), "{again:?}");
    let third = try_enqueue(b, vec![keyed("k")], &window(DAY)).await.expect("no error");
    assert_eq!(third, [Enqueued::Duplicate(again[0].id())], "it is taken anew");
}

/// Proves pitfall 23.
pub async fn a_key_is_free_after_its_window_without_another_purge<B: Backend>(b: &B) {
    let first = try_enqueue(b, vec![keyed("k")], &window(HOUR))
        .await
        .expect("it is new");
    Worker::new().claim(b, 10).await.deliver(b).await;
    b.pass_time(MINUTE).await;
    purge_all(b, Duration::ZERO).await;
    let early = try_enqueue(b, vec![keyed("k")], &window(HOUR)).await.expect("no error");
    assert_eq!(early, [Enqueued::Duplicate(first[0].id())], "within its window");
    b.pass_time(DAY).await;
    let late = try_enqueue(b, vec![keyed("k"), keyed("k")], &window(HOUR)).await;
    let late = late.expect("no error");
    assert!(late[0].is_new(), "{late:?}");
    assert_eq!(late[1], Enqueued::Duplicate(late[0].id()));
    let again = try_enqueue(b, vec![keyed("k")], &window(HOUR)).await.expect("no error");
    assert_eq!(again, [Enqueued::Duplicate(late[0].id())], "it is taken anew");
}

/// Proves B4 and pitfall 23.
pub async fn a_key_is_held_beyond_its_window_while_its_row_is_there<B: Backend>(b: &B) {
    let first = try_enqueue(b, vec![keyed("k")], &window(HOUR))
        .await
        .expect("it is new");
    b.pass_time(DAY).await;
    purge_all(b, Duration::ZERO).await;
    let again = try_enqueue(b, vec![keyed("k")], &window(HOUR)).await.expect("no error");
    assert_eq!(again, [Enqueued::Duplicate(first[0].id())], "it is pending");
    Worker::new().claim(b, 10).await.deliver(b).await;
    purge_all(b, DAY).await;
    let again = try_enqueue(b, vec![keyed("k")], &window(HOUR)).await.expect("no error");
    assert_eq!(again, [Enqueued::Duplicate(first[0].id())], "it is delivered and kept");
}

/// Proves pitfall 23.
pub async fn a_purge_of_keys_is_bounded_too<B: Backend>(b: &B) {
    let messages = (0..10).map(|n| keyed(&n.to_string())).collect();
    try_enqueue(b, messages, &window(HOUR)).await.expect("they are new");
    Worker::new().claim(b, 10).await.deliver(b).await;
    b.pass_time(DAY).await;
    let mut removed = Vec::new();
    while removed.last() != Some(&0) {
        removed.push(purge(b, Duration::ZERO, 4).await);
    }
    assert!(
        removed.iter().all(|n| *n <= 8),
        "four rows and four keys at a time: {removed:?}"
    );
    let again = try_enqueue(b, (0..10).map(|n| keyed(&n.to_string())).collect(), &window(HOUR)).await;
    assert!(again.expect("no error").iter().all(|outcome| outcome.is_new()));
}

/// Proves B4 and pitfall 23.
pub async fn the_same_event_again_after_its_row_was_purged_is_known<B: Backend>(b: &B) {
    let message = plain("1").dedupe_key("k");
    let id = enqueue_new(b, [message.clone()]).await[0];
    Worker::new().claim(b, 1).await.deliver(b).await;
    b.pass_time(HOUR).await;
    purge(b, SECOND, 10).await;
    assert!(
        b.store().show(id).await.expect("show works").is_none(),
        "the row is gone"
    );
    assert_eq!(enqueue(b, [message]).await, [Enqueued::Duplicate(id)]);
}
