//! What a reader leaves to its successor.

use std::time::{Duration, Instant};

use posthaste_core::lifecycle::{LeaseToken, Verdict};
use posthaste_core::store::ClaimedMessage;
use posthaste_core::{Message, OutboxOptions, RelayStore};

use crate::fixture::{Log, numbered, payloads};

/// What a relay claims as soon as the server has ended the connection of the one before.
async fn claim_once_free(log: &Log) -> Vec<ClaimedMessage> {
    let begun = Instant::now();
    loop {
        let claimed = log.claim(100).await;
        if !claimed.is_empty() || begun.elapsed() > Duration::from_secs(20) {
            return claimed;
        }
        tokio::task::yield_now().await;
    }
}

/// Proves C9.
#[tokio::test]
async fn a_successor_repeats_nothing_that_was_settled_beside_an_open_transaction() {
    let log = Log::fresh().await;
    // It takes the first number, and keeps the position below everything else.
    let mut open = log.pool.begin().await.unwrap();
    let outbox = log.store.outbox(OutboxOptions::default());
    let late = Message::new("orders", "late").key("late");
    outbox.enqueue(&mut open, late).await.unwrap();
    // It shares the reader with its store.
    drop(outbox);
    log.enqueue(numbered(0..20)).await;
    let token = LeaseToken::new();
    let claimed = log.claim_as(token, 100).await;
    assert_eq!(claimed.len(), 20, "nobody waits for it");
    for one in &claimed[..19] {
        log.settle(token, one.message.id, Verdict::Delivered).await;
    }
    // It is written down a few times a second.
    log.store.pass_time(Duration::from_secs(1));
    assert!(log.claim(100).await.is_empty());
    let successor = log.after_a_crash();
    let again = claim_once_free(&successor).await;
    assert_eq!(
        payloads(&again),
        payloads(&claimed[19..]),
        "what was in flight, and nothing else"
    );
    open.commit().await.unwrap();
    assert_eq!(payloads(&claim_once_free(&successor).await), ["late"]);
    successor.store.close().await.unwrap();
}
