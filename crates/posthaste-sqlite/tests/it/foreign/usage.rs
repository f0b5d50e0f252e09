//! A leased table with dedupe keys, namespaces and tenants, whose times are texts.

use posthaste_core::lifecycle::{LeaseToken, Settlement};
use posthaste_core::store::{ExtendRequest, ProducerStore, RelayStore};
use posthaste_core::{Enqueued, Message, OutboxOptions};
use posthaste_testkit::{RecordingPublisher, drain};

use super::tables::{Foreign, USAGE_DDL, payloads, request, usage_map};

async fn fresh() -> Foreign {
    Foreign::new(USAGE_DDL, usage_map()).await
}

async fn enqueue(foreign: &Foreign, message: Message) -> Enqueued {
    let options = OutboxOptions::default();
    let outcomes = foreign.store.enqueue_and_commit(&options, vec![message]).await;
    outcomes.unwrap()[0]
}

/// Proves B3.
#[tokio::test]
async fn a_new_row_is_as_the_design_has_it() {
    let foreign = fresh().await;
    let id = enqueue(&foreign, Message::new("t", "{}")).await.id();
    let row =
        "select count(*) from modkit_outbox_events where status = 'pending' and attempts = 0 and locked_by is null
        and locked_until is null and next_attempt_at = created_at and abs(unixepoch(created_at) - unixepoch()) < 60";
    assert_eq!(foreign.number(row).await, 1);
    assert_eq!(
        foreign.text("select id from modkit_outbox_events").await,
        id.to_string()
    );
}

/// Proves B4.
#[tokio::test]
async fn a_dedupe_key_is_taken_by_the_row_that_has_it() {
    let foreign = fresh().await;
    let message = |body: &str| Message::new("t", body.to_owned()).dedupe_key("k");
    let first = enqueue(&foreign, message("1")).await;
    assert!(first.is_new());
    assert_eq!(enqueue(&foreign, message("2")).await, Enqueued::Duplicate(first.id()));
    assert!(
        enqueue(&foreign, Message::new("other", "3").dedupe_key("k"))
            .await
            .is_new()
    );
    foreign.execute("drop index modkit_outbox_events_dedupe").await;
    assert_eq!(
        enqueue(&foreign, message("4")).await,
        Enqueued::Duplicate(first.id()),
        "also without an index"
    );
    assert_eq!(foreign.number("select count(*) from modkit_outbox_events").await, 2);
}

/// Proves B6 and B15.
#[tokio::test]
async fn a_claim_leases_in_the_tables_order_and_counts() {
    let foreign = fresh().await;
    for (id, created) in [
        ("b", "2024-01-01 10:00:00.000"),
        ("c", "2024-01-01T09:00:00Z"),
        ("a", "2024-01-01 10:00:00.000"),
    ] {
        let insert = format!(
            "insert into modkit_outbox_events (id, namespace, topic, payload, status, created_at, next_attempt_at, updated_at)
             values ('{id}', 'default', 't', '\"{id}\"', 'pending', '{created}', '{created}', '{created}')"
        );
        foreign.execute(&insert).await;
    }
    let claim = foreign.claim().await;
    assert_eq!(
        payloads(&claim),
        ["\"a\"", "\"b\"", "\"c\""],
        "by the text of the times, then by id"
    );
    assert!(claim.messages.iter().all(|claimed| claimed.attempts == 1));
    assert_eq!(claim.messages[2].created_at.to_rfc3339(), "2024-01-01T09:00:00+00:00");
    let leased = "select count(*) from modkit_outbox_events where status = 'processing' and attempts = 1
        and unixepoch(locked_until) between unixepoch() + 20 and unixepoch() + 31 and unixepoch(updated_at) > unixepoch() - 60";
    assert_eq!(foreign.number(leased).await, 3);
    assert!(foreign.claim().await.messages.is_empty(), "all are leased");
}

/// Proves B7 and B8.
#[tokio::test]
async fn what_a_vanished_worker_held_is_reclaimed_and_dies_when_it_was_the_last_attempt() {
    let foreign = fresh().await;
    let id = enqueue(&foreign, Message::new("t", "{}")).await.id();
    for attempt in 1..=5 {
        let claim = foreign.claim().await;
        assert_eq!((claim.messages[0].attempts, claim.reclaimed), (attempt, attempt > 1));
        foreign
            .execute("update modkit_outbox_events set locked_until = '2024-01-01 00:00:00'")
            .await;
    }
    let claim = foreign.claim().await;
    assert_eq!((claim.messages.len(), claim.died), (0, vec![id]));
    assert_eq!(foreign.text("select status from modkit_outbox_events").await, "dead");
}

/// Proves B9 and pitfall 7.
#[tokio::test]
async fn the_column_for_the_worker_holds_a_proof_that_never_repeats() {
    let foreign = fresh().await;
    enqueue(&foreign, Message::new("t", "{}")).await;
    let first = request();
    let claim = foreign.store.claim(&first).await.unwrap();
    let id = claim.messages[0].message.id;
    foreign
        .execute("update modkit_outbox_events set locked_until = '2024-01-01 00:00:00'")
        .await;
    // The same worker has the row again.
    let mut second = request();
    second.worker = first.worker;
    foreign.store.claim(&second).await.unwrap();
    let late = [Settlement::delivered(id, first.token)];
    assert_eq!(foreign.store.settle(&late).await.unwrap().lost, [id], "lost");
    let held = foreign
        .store
        .extend(ExtendRequest::new(first.token, &[id], first.lease))
        .await
        .unwrap()
        .held;
    assert!(held.is_empty());
    assert_eq!(
        foreign.text("select status from modkit_outbox_events").await,
        "processing"
    );
    let lost = foreign
        .store
        .settle(&[Settlement::delivered(id, second.token)])
        .await
        .unwrap();
    assert!(lost.lost.is_empty());
    let unknown = foreign
        .store
        .settle(&[Settlement::delivered(id, LeaseToken::new())])
        .await
        .unwrap();
    assert_eq!(unknown.lost, [id]);
}

/// Proves B10 and B11.
#[tokio::test]
async fn a_row_goes_through_its_states_and_is_delivered() {
    let foreign = fresh().await;
    let tenant = "0192b7a6-1df8-7c7c-8d6e-0f3e6a0f3c11";
    let message = Message::new("t", r#"{"a":1}"#)
        .tenant(tenant)
        .dedupe_key(format!("{tenant}/1"));
    let id = enqueue(&foreign, message).await.id();
    let request = request();
    foreign.store.claim(&request).await.unwrap();
    let minute = std::time::Duration::from_mins(1);
    let retry = Settlement::retry(id, request.token, minute, "away");
    assert!(foreign.store.settle(&[retry]).await.unwrap().lost.is_empty());
    let waits = "select count(*) from modkit_outbox_events where status = 'pending' and last_error = 'away'
        and locked_by is null and locked_until is null
        and unixepoch(next_attempt_at) between unixepoch() + 55 and unixepoch() + 61";
    assert_eq!(foreign.number(waits).await, 1);
    assert!(foreign.claim().await.messages.is_empty(), "not before its time");
    let stats = foreign.store.stats("default").await.unwrap();
    assert_eq!((stats.pending, stats.waiting, stats.processing), (1, 1, 0));
    foreign
        .execute("update modkit_outbox_events set next_attempt_at = '2024-01-01 00:00:00'")
        .await;
    let broker = RecordingPublisher::new();
    drain(foreign.store.clone(), broker.clone()).await;
    assert_eq!(broker.ids(), [id]);
    let sent = &broker.deliveries()[0].message;
    assert_eq!(
        (sent.payload.as_ref(), sent.tenant.as_deref()),
        (br#"{"a":1}"#.as_ref(), Some(tenant))
    );
    assert_eq!(
        foreign.text("select status from modkit_outbox_events").await,
        "delivered"
    );
}
