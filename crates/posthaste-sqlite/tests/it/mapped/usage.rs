//! A leased table with dedupe keys, namespaces and tenants, whose times are texts.

use posthaste_core::lifecycle::{LeaseToken, Settlement};
use posthaste_core::store::{ExtendRequest, ProducerStore, RelayStore};
use posthaste_core::{Enqueued, Message, OutboxOptions};
use posthaste_testkit::{RecordingPublisher, drain};

use super::tables::{MappedTable, USAGE_DDL, payloads, request, usage_map};

async fn fresh() -> MappedTable {
    MappedTable::new(USAGE_DDL, usage_map()).await
}

async fn enqueue(mapped: &MappedTable, message: Message) -> Enqueued {
    let options = OutboxOptions::default();
    let outcomes = mapped.store.enqueue_and_commit(&options, vec![message]).await;
    outcomes.unwrap()[0]
}

/// Proves B3.
#[tokio::test]
async fn a_new_row_is_as_the_design_has_it() {
    let mapped = fresh().await;
    let id = enqueue(&mapped, Message::new("t", "{}")).await.id();
    let row =
        "select count(*) from modkit_outbox_events where status = 'pending' and attempts = 0 and locked_by is null
        and locked_until is null and next_attempt_at = created_at and abs(unixepoch(created_at) - unixepoch()) < 60";
    assert_eq!(mapped.number(row).await, 1);
    assert_eq!(mapped.text("select id from modkit_outbox_events").await, id.to_string());
}

/// Proves B4.
#[tokio::test]
async fn a_dedupe_key_is_taken_by_the_row_that_has_it() {
    let mapped = fresh().await;
    let message = |body: &str| Message::new("t", body.to_owned()).dedupe_key("k");
    let first = enqueue(&mapped, message("1")).await;
    assert!(first.is_new());
    assert_eq!(enqueue(&mapped, message("2")).await, Enqueued::Duplicate(first.id()));
    assert!(
        enqueue(&mapped, Message::new("other", "3").dedupe_key("k"))
            .await
            .is_new()
    );
    mapped.execute("drop index modkit_outbox_events_dedupe").await;
    assert_eq!(
        enqueue(&mapped, message("4")).await,
        Enqueued::Duplicate(first.id()),
        "also without an index"
    );
    assert_eq!(mapped.number("select count(*) from modkit_outbox_events").await, 2);
}

/// Proves B6 and B15.
#[tokio::test]
async fn a_claim_leases_in_the_tables_order_and_counts() {
    let mapped = fresh().await;
    for (id, created) in [
        ("b", "2024-01-01 10:00:00.000"),
        ("c", "2024-01-01T09:00:00Z"),
        ("a", "2024-01-01 10:00:00.000"),
    ] {
        let insert = format!(
            "insert into modkit_outbox_events (id, namespace, topic, payload, status, created_at, next_attempt_at, updated_at)
             values ('{id}', 'default', 't', '\"{id}\"', 'pending', '{created}', '{created}', '{created}')"
        );
        mapped.execute(&insert).await;
    }
    let claim = mapped.claim().await;
    assert_eq!(
        payloads(&claim),
        ["\"a\"", "\"b\"", "\"c\""],
        "by the text of the times, then by id"
    );
    assert!(claim.messages.iter().all(|claimed| claimed.attempts == 1));
    assert_eq!(claim.messages[2].created_at.to_rfc3339(), "2024-01-01T09:00:00+00:00");
    let leased = "select count(*) from modkit_outbox_events where status = 'processing' and attempts = 1
        and unixepoch(locked_until) between unixepoch() + 20 and unixepoch() + 31 and unixepoch(updated_at) > unixepoch() - 60";
    assert_eq!(mapped.number(leased).await, 3);
    assert!(mapped.claim().await.messages.is_empty(), "all are leased");
}

/// Proves B7 and B8.
#[tokio::test]
async fn what_a_vanished_worker_held_is_reclaimed_and_dies_when_it_was_the_last_attempt() {
    let mapped = fresh().await;
    let id = enqueue(&mapped, Message::new("t", "{}")).await.id();
    for attempt in 1..=5 {
        let claim = mapped.claim().await;
        assert_eq!((claim.messages[0].attempts, claim.reclaimed), (attempt, attempt > 1));
        mapped
            .execute("update modkit_outbox_events set locked_until = '2024-01-01 00:00:00'")
            .await;
    }
    let claim = mapped.claim().await;
    assert_eq!((claim.messages.len(), claim.died), (0, vec![id]));
    assert_eq!(mapped.text("select status from modkit_outbox_events").await, "dead");
}

/// Proves B9 and pitfall 7.
#[tokio::test]
async fn the_column_for_the_worker_holds_a_proof_that_never_repeats() {
    let mapped = fresh().await;
    enqueue(&mapped, Message::new("t", "{}")).await;
    let first = request();
    let claim = mapped.store.claim(&first).await.unwrap();
    let id = claim.messages[0].message.id;
    mapped
        .execute("update modkit_outbox_events set locked_until = '2024-01-01 00:00:00'")
        .await;
    // The same worker has the row again.
    let mut second = request();
    second.worker = first.worker;
    mapped.store.claim(&second).await.unwrap();
    let late = [Settlement::delivered(id, first.token)];
    assert_eq!(mapped.store.settle(&late).await.unwrap().lost, [id], "lost");
    let held = mapped
        .store
        .extend(ExtendRequest::new(first.token, &[id], first.lease))
        .await
        .unwrap()
        .held;
    assert!(held.is_empty());
    assert_eq!(
        mapped.text("select status from modkit_outbox_events").await,
        "processing"
    );
    let lost = mapped
        .store
        .settle(&[Settlement::delivered(id, second.token)])
        .await
        .unwrap();
    assert!(lost.lost.is_empty());
    let unknown = mapped
        .store
        .settle(&[Settlement::delivered(id, LeaseToken::new())])
        .await
        .unwrap();
    assert_eq!(unknown.lost, [id]);
}

/// Proves B10 and B11.
#[tokio::test]
async fn a_row_goes_through_its_states_and_is_delivered() {
    let mapped = fresh().await;
    let tenant = "0192b7a6-1df8-7c7c-8d6e-0f3e6a0f3c11";
    let message = Message::new("t", r#"{"a":1}"#)
        .tenant(tenant)
        .dedupe_key(format!("{tenant}/1"));
    let id = enqueue(&mapped, message).await.id();
    let request = request();
    mapped.store.claim(&request).await.unwrap();
    let minute = std::time::Duration::from_mins(1);
    let retry = Settlement::retry(id, request.token, minute, "away");
    assert!(mapped.store.settle(&[retry]).await.unwrap().lost.is_empty());
    let waits = "select count(*) from modkit_outbox_events where status = 'pending' and last_error = 'away'
        and locked_by is null and locked_until is null
        and unixepoch(next_attempt_at) between unixepoch() + 55 and unixepoch() + 61";
    assert_eq!(mapped.number(waits).await, 1);
    assert!(mapped.claim().await.messages.is_empty(), "not before its time");
    let stats = mapped.store.stats("default").await.unwrap();
    assert_eq!((stats.pending, stats.waiting, stats.processing), (1, 1, 0));
    mapped
        .execute("update modkit_outbox_events set next_attempt_at = '2024-01-01 00:00:00'")
        .await;
    let broker = RecordingPublisher::new();
    drain(mapped.store.clone(), broker.clone()).await;
    assert_eq!(broker.ids(), [id]);
    let sent = &broker.deliveries()[0].message;
    assert_eq!(
        (sent.payload.as_ref(), sent.tenant.as_deref()),
        (br#"{"a":1}"#.as_ref(), Some(tenant))
    );
    assert_eq!(
        mapped.text("select status from modkit_outbox_events").await,
        "delivered"
    );
}
