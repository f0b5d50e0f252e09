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

/// At full speed a quarter of a second is tens of thousands of messages.
#[tokio::test]
async fn a_successor_repeats_nothing_of_the_many_that_were_settled_a_moment_ago() {
    const MANY: usize = 12_000;
    let log = Log::fresh().await;
    log.enqueue_backlog_from(0, MANY + 10).await;
    let token = LeaseToken::new();
    let claimed = log.claim_as(token, u32::try_from(MANY).unwrap()).await;
    assert_eq!(claimed.len(), MANY);
    log.settle_all(token, &claimed).await;
    let in_flight = log.claim(1).await;
    let successor = log.after_a_crash();
    let again = claim_once_free(&successor).await;
    assert_eq!(
        payloads(&again)[..1],
        payloads(&in_flight),
        "what was in flight, and nothing before it"
    );
    successor.store.close().await.unwrap();
}
