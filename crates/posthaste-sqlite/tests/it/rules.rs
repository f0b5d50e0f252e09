//! Rules at places where this store's SQL takes a path of its own.

use std::time::Duration;

use chrono::Utc;
use posthaste_core::lifecycle::LeaseToken;
use posthaste_core::store::{Claim, ClaimRequest, DeadHead, KeyOrdering, ProducerStore, RelayStore, Scope, WorkerId};
use posthaste_core::{Enqueued, Message, MessageId, OutboxOptions};
use posthaste_sqlite::SqliteStore;
use sqlx::Executor;

use crate::support;

async fn enqueue(store: &SqliteStore, message: Message) -> Enqueued {
    let outcomes = store.enqueue_and_commit(&OutboxOptions::default(), vec![message]).await;
    outcomes.unwrap()[0]
}

fn request() -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit: 10,
        max_bytes: 1 << 20,
        scan_limit: None,
        lease: Duration::from_secs(30),
        max_attempts: 5,
        ordering: KeyOrdering::PerKey {
            dead_head: DeadHead::Skip,
            except: Vec::new(),
        },
        scope: Scope::default(),
        left_out: Vec::new(),
        pipelined: false,
    }
}

async fn claim(store: &SqliteStore, tenant: &str) -> Claim {
    let scope = Scope {
        tenant: Some(tenant.to_owned()),
        ..Scope::default()
    };
    store.claim(&ClaimRequest { scope, ..request() }).await.unwrap()
}

async fn look(store: &SqliteStore, scan_limit: Option<u32>) -> Claim {
    let claim = store
        .claim(&ClaimRequest {
            scan_limit,
            ..request()
        })
        .await;
    claim.unwrap()
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
    assert_eq!(enqueue(&store, message()).await, Enqueued::Duplicate(first.id()));
    let expire = "update posthaste_outbox_dedupe set expires_at = 0";
    store.pool().execute(expire).await.unwrap();
    let second = enqueue(&store, message()).await;
    assert!(second.is_new());
    store.pool().execute("delete from posthaste_outbox").await.unwrap();
    assert_eq!(
        enqueue(&store, message()).await,
        Enqueued::Duplicate(second.id()),
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
    assert_eq!(enqueue(&store, message.clone()).await, Enqueued::Duplicate(message.id));
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

/// Proves pitfalls 4, 18.
#[tokio::test]
async fn a_shallow_look_sees_little_and_breaks_no_order() {
    let store = support::store(1).await;
    let keyed = |key: &str| Message::new("t", "x").key(key);
    let first = enqueue(&store, keyed("hot")).await.id();
    assert_eq!(ids(&look(&store, None).await), [first]);
    for _ in 0..3 {
        enqueue(&store, keyed("hot")).await;
    }
    let cold = enqueue(&store, keyed("cold")).await.id();
    let scheduled = enqueue(&store, keyed("cold").not_before(Utc::now() + Duration::from_mins(1)))
        .await
        .id();
    let free = Message::new("t", "x").not_before(Utc::now() + Duration::from_mins(1));
    let free = enqueue(&store, free).await.id();
    let pass_time =
        "update posthaste_outbox set created_at = created_at - 100000, next_attempt_at = next_attempt_at - 100000";
    store.pool().execute(pass_time).await.unwrap();

    let shallow = look(&store, Some(2)).await;
    assert_eq!(
        ids(&shallow),
        [free],
        "the cold key lies beyond three rows of the hot one"
    );
    let deep = look(&store, Some(4)).await;
    assert_eq!(ids(&deep), [cold, scheduled], "in order");
}
