//! Handling each delivery once.

use std::time::Duration;

use futures::future::join_all;
use posthaste_core::Mark;
use posthaste_core::store::StoreErrorKind;

use super::steps::{DAY, HOUR, others_wait};
use crate::backend::{Backend, Trouble};

/// What a consumer does: records the key and, if it is new, has an effect; all in one transaction.
async fn handle<B: Backend>(b: &B, consumer: &str, key: &str) -> bool {
    let mut tx = b.begin().await;
    let new = b.record_handled(&mut tx, consumer, key).await.expect("record works");
    if new {
        b.write_business_row(&mut tx, &format!("{consumer} handled {key}"))
            .await;
    }
    tokio::task::yield_now().await; // so that transactions in a race overlap on every backend
    b.commit(tx).await;
    new
}

/// Proves pitfall 20.
pub async fn a_delivery_is_handled_once<B: Backend>(b: &B) {
    assert!(handle(b, "statistics", "event 1").await);
    assert!(!handle(b, "statistics", "event 1").await);
    assert!(handle(b, "statistics", "event 2").await);
    let mut effects = b.business_rows().await;
    effects.sort();
    assert_eq!(effects, ["statistics handled event 1", "statistics handled event 2"]);
}

/// Each consumer has records of its own.
pub async fn two_consumers_are_independent<B: Backend>(b: &B) {
    assert!(handle(b, "statistics", "event 1").await);
    assert!(handle(b, "mail", "event 1").await);
    assert!(!handle(b, "mail", "event 1").await);
}

/// Proves pitfall 20.
pub async fn a_rollback_forgets_both_the_effect_and_the_record<B: Backend>(b: &B) {
    let mut tx = b.begin().await;
    assert!(
        b.record_handled(&mut tx, "statistics", "event 1")
            .await
            .expect("record works")
    );
    b.write_business_row(&mut tx, "lost").await;
    b.rollback(tx).await;
    assert!(
        handle(b, "statistics", "event 1").await,
        "the delivery is handled when it comes again"
    );
    assert_eq!(b.business_rows().await, ["statistics handled event 1"]);
}

/// Proves pitfall 20.
pub async fn a_delivery_repeated_within_a_transaction_is_handled_once<B: Backend>(b: &B) {
    let mut tx = b.begin().await;
    assert!(
        b.record_handled(&mut tx, "statistics", "event 1")
            .await
            .expect("record works")
    );
    assert!(
        !b.record_handled(&mut tx, "statistics", "event 1")
            .await
            .expect("record works")
    );
    b.write_business_row(&mut tx, "the transaction is still usable").await;
    b.commit(tx).await;
    assert_eq!(b.business_rows().await.len(), 1);
}

/// Proves pitfall 20.
pub async fn of_concurrent_deliveries_one_is_handled<B: Backend>(b: &B) {
    for round in 0..5 {
        let key = format!("event {round}");
        let handled = join_all((0..12).map(|_| handle(b, "statistics", &key))).await;
        assert_eq!(handled.into_iter().filter(|now| *now).count(), 1);
    }
    assert_eq!(b.business_rows().await.len(), 5, "one effect each");
}

/// Proves pitfall 20.
pub async fn a_waiting_delivery_is_handled_when_the_first_rolls_back<B: Backend>(b: &B) {
    let mut first = b.begin().await;
    assert!(
        b.record_handled(&mut first, "statistics", "event 1")
            .await
            .expect("record works")
    );
    let (second, ()) = tokio::join!(handle(b, "statistics", "event 1"), async {
        others_wait().await;
        b.rollback(first).await;
    });
    assert!(second);
    assert_eq!(b.business_rows().await, ["statistics handled event 1"]);
}

/// Proves pitfall 20.
pub async fn a_waiting_delivery_is_skipped_when_the_first_commits<B: Backend>(b: &B) {
    let mut first = b.begin().await;
    assert!(
        b.record_handled(&mut first, "statistics", "event 1")
            .await
            .expect("record works")
    );
    let (second, ()) = tokio::join!(handle(b, "statistics", "event 1"), async {
        others_wait().await;
        b.commit(first).await;
    });
    assert!(!second);
}

/// Keys are of any length, and none is cut: two that differ at the end are two.
pub async fn long_keys_are_told_apart<B: Backend>(b: &B) {
    // Nothing that an index could compress.
    let digits = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_string();
    let long: String = (1..400).map(digits).collect();
    let (one, other) = (format!("{long}1"), format!("{long}2"));
    assert!(handle(b, "statistics", &one).await);
    assert!(handle(b, "statistics", &other).await);
    assert!(!handle(b, "statistics", &one).await);
    assert!(!handle(b, "statistics", &other).await);
}

/// A handler that writes, meets with trouble, goes on as if nothing had happened and says that all is well. Whether the
/// transaction was proved to be there before its commit.
async fn handle_carelessly<B: Backend>(b: &B, key: &str, trouble: Trouble) -> bool {
    let mut tx = b.begin().await;
    let recorded = b.record_handled(&mut tx, "statistics", key).await;
    assert!(recorded.expect("record works"));
    let mark = Mark::unique();
    b.mark(&mut tx, mark).await.expect("mark works");
    b.write_business_row(&mut tx, &format!("statistics handled {key}"))
        .await;
    b.meet(&mut tx, trouble).await;
    match b.prove(&mut tx, mark).await {
        Ok(()) => b.commit(tx).await,
        Err(error) => {
            assert_eq!(error.kind, StoreErrorKind::Other, "the handler is to blame: {error}");
            assert!(error.to_string().contains("nothing of it was kept"), "{error}");
            drop(tx); // not by a statement: some databases refuse to roll back what is gone
            return false;
        }
    }
    true
}

/// Proves pitfall 20.
pub async fn a_tolerated_error_never_passes_for_a_handled_delivery<B: Backend>(b: &B) {
    let effect = ["statistics handled event 1"];
    if handle_carelessly(b, "event 1", Trouble::RefusedStatement).await {
        assert_eq!(b.business_rows().await, effect, "what was proved was kept");
        assert!(!handle(b, "statistics", "event 1").await, "with its record");
    } else {
        assert!(b.business_rows().await.is_empty(), "what was not proved was not kept");
        assert!(handle(b, "statistics", "event 1").await, "nor its record");
        assert_eq!(b.business_rows().await, effect);
    }
}

/// Proves pitfall 20.
pub async fn a_transaction_that_was_rolled_back_never_passes_for_a_handled_delivery<B: Backend>(b: &B) {
    assert!(!handle_carelessly(b, "event 1", Trouble::Rollback).await);
    assert!(
        handle(b, "statistics", "event 1").await,
        "the delivery is handled when it comes again"
    );
    assert_eq!(b.business_rows().await, ["statistics handled event 1"]);
}

/// A handler may use the inbox itself, for an effect within the effect.
pub async fn marks_may_be_nested<B: Backend>(b: &B) {
    let (outer, inner) = (Mark::unique(), Mark::unique());
    let mut tx = b.begin().await;
    b.mark(&mut tx, outer).await.expect("mark works");
    b.mark(&mut tx, inner).await.expect("mark works");
    b.write_business_row(&mut tx, "kept").await;
    b.prove(&mut tx, inner).await.expect("the inner is there");
    b.prove(&mut tx, outer).await.expect("the outer is there, too");
    b.commit(tx).await;
    assert_eq!(b.business_rows().await, ["kept"]);
}

/// Retention of the inbox counts from the handling.
pub async fn a_purge_keeps_young_records<B: Backend>(b: &B) {
    handle(b, "statistics", "old").await;
    b.pass_time(DAY).await;
    handle(b, "statistics", "young").await;
    assert_eq!(b.purge_inbox("statistics", DAY * 2, 100).await.expect("purge works"), 0);
    assert_eq!(b.purge_inbox("statistics", HOUR, 100).await.expect("purge works"), 1);
    assert!(!handle(b, "statistics", "young").await);
    assert!(handle(b, "statistics", "old").await);
}

/// One consumer's retention says nothing of another's.
pub async fn a_purge_keeps_the_records_of_other_consumers<B: Backend>(b: &B) {
    handle(b, "statistics", "event 1").await;
    handle(b, "mail", "event 1").await;
    b.pass_time(DAY).await;
    assert_eq!(b.purge_inbox("statistics", HOUR, 100).await.expect("purge works"), 1);
    assert!(!handle(b, "mail", "event 1").await);
    assert!(handle(b, "statistics", "event 1").await);
}

/// Proves pitfall 16.
pub async fn a_purge_of_records_is_bounded<B: Backend>(b: &B) {
    for n in 0..5 {
        handle(b, "statistics", &n.to_string()).await;
    }
    b.pass_time(HOUR).await;
    let mut removed = Vec::new();
    for _ in 0..4 {
        removed.push(
            b.purge_inbox("statistics", Duration::ZERO, 2)
                .await
                .expect("purge works"),
        );
    }
    assert_eq!(removed, [2, 2, 1, 0]);
}
