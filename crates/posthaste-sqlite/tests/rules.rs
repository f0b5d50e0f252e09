//! Rules at places where this store's SQL takes a path of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::time::Duration;

use posthaste_core::lifecycle::LeaseToken;
use posthaste_core::store::{Claim, ClaimRequest, DeadHead, Ordering, ProducerStore, RelayStore, Scope, WorkerId};
use posthaste_core::{Enqueued, Message, MessageId, OutboxOptions};
use posthaste_sqlite::SqliteStore;
use sqlx::Executor;

async fn enqueue(store: &SqliteStore, message: Message) -> Enqueued {
    let outcomes = store.enqueue_and_commit(&OutboxOptions::default(), vec![message]).await;
    outcomes.unwrap()[0]
}

async fn claim(store: &SqliteStore, tenant: &str) -> Claim {
    let request = ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit: 10,
        max_bytes: 1 << 20,
        look_ahead: None,
        lease: Duration::from_secs(30),
        max_attempts: 5,
        ordering: Ordering::PerKey {
            dead_head: DeadHead::Skip,
            except: Vec::new(),
        },
        scope: Scope {
            tenant: Some(tenant.to_owned()),
            ..Scope::default()
        },
    };
    store.claim(&request).await.unwrap()
}

fn ids(claim: &Claim) -> Vec<MessageId> {
    claim.messages.iter().map(|claimed| claimed.message.id).collect()
}

/// Proves pitfall 23.
#[tokio::test]
async fn a_key_that_nobody_has_purged_yet_is_free_once_its_time_is_over() {
    let store = support::store(1).await;
    let message = || Message::new("t", "x").dedupe_key("k");
    let first = enqueue(&store, message()).await;
    store.pool().execute("delete from posthaste_outbox").await.unwrap();
    assert_eq!(enqueue(&store, message()).await, Enqueued::Before(first.id()));
    let expire = "update posthaste_outbox_dedupe set expires_at = 0";
    store.pool().execute(expire).await.unwrap();
    let second = enqueue(&store, message()).await;
    assert!(second.is_new());
    store.pool().execute("delete from posthaste_outbox").await.unwrap();
    assert_eq!(
        enqueue(&store, message()).await,
        Enqueued::Before(second.id()),
        "it has a new holder and a new window"
    );
}

/// Proves pitfall 32.
#[tokio::test]
async fn the_same_message_again_is_not_sent_again_within_the_window_of_its_key() {
    let store = support::store(1).await;
    let message = Message::new("t", "x").dedupe_key("k");
    enqueue(&store, message.clone()).await;
    store.pool().execute("delete from posthaste_outbox").await.unwrap();
    assert_eq!(enqueue(&store, message.clone()).await, Enqueued::Before(message.id));
    assert_eq!(store.stats("default").await.unwrap().pending, 0);
}

/// Proves pitfall 4.
#[tokio::test]
async fn what_a_worker_of_another_scope_left_behind_holds_its_key_too() {
    let store = support::store(1).await;
    let message = |tenant: &str| Message::new("t", "x").key("k").tenant(tenant);
    let left = enqueue(&store, message("a")).await.id();
    assert_eq!(ids(&claim(&store, "a").await), [left]);
    let follower = enqueue(&store, message("b")).await.id();
    let expire = "update posthaste_outbox set locked_until = 0 where status = 'processing'";
    store.pool().execute(expire).await.unwrap();
    assert_eq!(ids(&claim(&store, "b").await), []);

    let again = claim(&store, "a").await;
    assert_eq!(ids(&again), [left]);
    assert!(again.reclaimed);
    let deliver = "update posthaste_outbox set status = 'delivered', lease_token = null where status = 'processing'";
    store.pool().execute(deliver).await.unwrap();
    assert_eq!(ids(&claim(&store, "b").await), [follower]);
}
