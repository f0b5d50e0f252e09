//! A table that says since when a row is claimed and not until when, with versions, limits per row, a word for what
//! failed and will be tried again, and a dead-letter table.

use std::time::Duration;

use posthaste_core::lifecycle::{LeaseToken, Settlement, State};
use posthaste_core::store::{
    AdminStore, ClaimRequest, ExtendRequest, Filter, ProducerStore, RecoverRequest, Recovered, RefusedRow, RelayStore,
    Scope,
};
use posthaste_core::validate::TypeNameRule;
use posthaste_core::{Enqueued, Message, OutboxOptions};
use posthaste_testkit::{Fault, FaultyPublisher, RecordingPublisher, Rule, drain};

use super::tables::{DONATION_DDL, MappedTable, donation_map, request};

const FIVE_MINUTES: Duration = Duration::from_mins(5);

async fn fresh() -> MappedTable {
    MappedTable::new(DONATION_DDL, donation_map()).await
}

async fn donate(mapped: &MappedTable, request_id: &str) -> Enqueued {
    let options = OutboxOptions::new().type_names(TypeNameRule::Any);
    let mut message = Message::new("donation-events", r#"{"amount":5}"#).event_type("DonationCreated");
    message.event_id = Some(request_id.into());
    mapped.store.enqueue_and_commit(&options, vec![message]).await.unwrap()[0]
}

async fn row(mapped: &MappedTable) -> (String, i64, i64, String) {
    let row = "select status, retry_count, version, coalesce(last_error, '') from donation_outbox where id = 1";
    sqlx::query_as(row).fetch_one(mapped.store.pool()).await.unwrap()
}

/// Proves D1.
#[tokio::test]
async fn a_donation_is_written_once_and_published_under_its_request() {
    let mapped = fresh().await;
    assert_eq!(donate(&mapped, "r-1").await, Enqueued::Inserted(1.into()));
    assert_eq!(donate(&mapped, "r-2").await, Enqueued::Inserted(2.into()));
    assert_eq!(donate(&mapped, "r-1").await, Enqueued::Duplicate(1.into()));
    let hashed = "select length(content_hash) from donation_outbox where id = 1";
    assert_eq!(mapped.number(hashed).await, 64);
    let broker = RecordingPublisher::new();
    drain(mapped.store.clone(), broker.clone()).await;
    let events: Vec<_> = broker
        .deliveries()
        .iter()
        .map(|d| d.message.effective_event_id().into_owned())
        .collect();
    assert_eq!(events, ["r-1", "r-2"]);
    assert_eq!(row(&mapped).await, ("COMPLETED".into(), 0, 2, String::new()));
}

/// Proves D3.
#[tokio::test]
async fn a_payload_that_was_changed_is_dead_and_never_published() {
    let mapped = fresh().await;
    donate(&mapped, "r-1").await;
    mapped
        .execute("update donation_outbox set payload = '{\"amount\":5000}'")
        .await;
    let broker = RecordingPublisher::new();
    drain(mapped.store.clone(), broker.clone()).await;
    assert!(broker.ids().is_empty());
    assert_eq!(row(&mapped).await.0, "DEAD_LETTER");
    assert_eq!(
        mapped
            .number("select count(*) from donation_dlq where request_id = 'r-1'")
            .await,
        1
    );
}

/// Proves D4 and D6.
#[tokio::test]
async fn what_failed_waits_under_its_own_label_and_the_row_says_how_often_it_may_be_tried() {
    let mapped = fresh().await;
    donate(&mapped, "r-1").await;
    mapped.execute("update donation_outbox set max_retries = 2").await;
    for retries in 1..=2 {
        let request = request();
        let claim = mapped.store.claim(&request).await.unwrap();
        let claimed = &claim.messages[0];
        assert_eq!((claimed.attempts, claimed.max_attempts), (retries, Some(3)));
        let mut retry = Settlement::retry(1.into(), request.token, Duration::from_secs(30), "refused");
        retry.version = claimed.version;
        assert!(mapped.store.settle(&[retry]).await.unwrap().lost.is_empty());
        let (status, retry_count, ..) = row(&mapped).await;
        assert_eq!((status.as_str(), retry_count), ("FAILED", i64::from(retries)));
        assert!(mapped.claim().await.messages.is_empty(), "not before its time");
        mapped
            .execute("update donation_outbox set next_retry_at = datetime('now', '-1 second')")
            .await;
    }
    let request = request();
    let claim = mapped.store.claim(&request).await.unwrap();
    assert_eq!(claim.messages[0].attempts, 3);
    let dead = Settlement::dead(1.into(), request.token, "refused for good");
    assert!(mapped.store.settle(&[dead]).await.unwrap().lost.is_empty());
    let (status, retry_count, _, error) = row(&mapped).await;
    assert_eq!(
        (status.as_str(), retry_count, error.as_str()),
        ("DEAD_LETTER", 2, "refused for good")
    );
    let letter = "select count(*) from donation_dlq
        where original_id = 1 and request_id = 'r-1' and reason = 'refused for good' and abs(unixepoch(created_at) - unixepoch()) < 60";
    assert_eq!(mapped.number(letter).await, 1);
}

/// Proves D6.
#[tokio::test]
async fn a_row_that_used_up_its_own_limit_is_given_up_whatever_the_policy_allows() {
    let mapped = fresh().await;
    for (limit, tried) in [(0, 0), (1, 2), (3, 3)] {
        let insert = format!(
            "insert into donation_outbox (request_id, event_type, payload, content_hash, max_retries, retry_count, status)
             values ('r-{limit}', 'x', '{{}}', 'h', {limit}, {tried}, 'FAILED')"
        );
        mapped.execute(&insert).await;
    }
    let claim = mapped.claim().await;
    assert_eq!(claim.died, []);
    let died = mapped.store.sweep(&request().scope, 5).await.unwrap();
    assert_eq!(died, [2.into()], "one retry was allowed, two were made");
    let ids: Vec<_> = claim.messages.iter().map(|claimed| claimed.message.id).collect();
    assert_eq!(
        ids,
        [1.into(), 3.into()],
        "no retry is one attempt, three retries are four"
    );
    assert_eq!(
        mapped
            .number("select count(*) from donation_dlq where original_id = 2")
            .await,
        1
    );
}

/// Proves D8.
#[tokio::test]
async fn a_row_that_was_changed_since_its_claim_is_lost() {
    let mapped = fresh().await;
    donate(&mapped, "r-1").await;
    let request = request();
    let claim = mapped.store.claim(&request).await.unwrap();
    assert_eq!(claim.messages[0].version, Some(1), "the claim is a change too");
    mapped.execute("update donation_outbox set version = version + 1").await;
    let mut settlement = Settlement::delivered(1.into(), request.token);
    settlement.version = claim.messages[0].version;
    assert_eq!(
        mapped.store.settle(&[settlement.clone()]).await.unwrap().lost,
        [1.into()]
    );
    assert_eq!(row(&mapped).await.0, "PROCESSING");
    settlement.version = Some(2);
    assert!(mapped.store.settle(&[settlement]).await.unwrap().lost.is_empty());
    assert_eq!(row(&mapped).await, ("COMPLETED".into(), 0, 3, String::new()));
}

/// Proves D5.
#[tokio::test]
async fn rows_of_vanished_workers_return_after_five_minutes_or_die() {
    let mapped = fresh().await;
    for request in ["r-1", "r-2", "r-3"] {
        donate(&mapped, request).await;
    }
    let request = request();
    assert_eq!(mapped.store.claim(&request).await.unwrap().messages.len(), 3);
    let stalled = RecoverRequest {
        scope: Scope::default(),
        max_attempts: 4,
        stalled_after: FIVE_MINUTES,
    };
    let recover = || mapped.store.recover(&stalled);
    assert_eq!(recover().await.unwrap(), Recovered::default(), "they are alive");
    mapped
        .execute("update donation_outbox set locked_at = datetime('now', '-10 minutes') where id < 3")
        .await;
    assert!(mapped.claim().await.messages.is_empty(), "a claim cannot know");
    // Work that takes long is renewed.
    assert_eq!(
        mapped
            .store
            .extend(ExtendRequest::new(request.token, &[1.into()], FIVE_MINUTES))
            .await
            .unwrap()
            .held,
        [1.into()]
    );
    assert_eq!(recover().await.unwrap().pending, [2.into()]);
    let lost = mapped
        .store
        .settle(&[Settlement::delivered(2.into(), request.token)])
        .await
        .unwrap();
    assert_eq!(lost.lost, [2.into()], "its worker comes too late");
    let returned = "select count(*) from donation_outbox where id = 2 and status = 'PENDING' and retry_count = 1
        and locked_by is null and locked_at is null and version = 2";
    assert_eq!(mapped.number(returned).await, 1);

    mapped
        .execute("update donation_outbox set locked_at = null, retry_count = 4 where id = 1")
        .await;
    let recovered = recover().await.unwrap();
    assert_eq!((recovered.pending, recovered.died), (vec![], vec![1.into()]));
    let (status, retries, _, error) = row(&mapped).await;
    assert_eq!((status.as_str(), retries, error.is_empty()), ("DEAD_LETTER", 3, false));
    assert_eq!(
        mapped
            .number("select count(*) from donation_dlq where original_id = 1")
            .await,
        1
    );
}

/// Proves D1.
#[tokio::test]
async fn the_dead_letter_and_the_verdict_are_one_transaction() {
    let mapped = fresh().await;
    donate(&mapped, "r-1").await;
    let request = request();
    mapped.store.claim(&request).await.unwrap();
    let full = "create trigger full before insert on donation_dlq begin select raise(abort, 'no'); end";
    mapped.execute(full).await;
    let dead = Settlement::dead(1.into(), request.token, "refused");
    mapped.store.settle(std::slice::from_ref(&dead)).await.unwrap_err();
    assert_eq!(row(&mapped).await.0, "PROCESSING", "neither was written");
    mapped.execute("drop trigger full").await;
    assert!(mapped.store.settle(&[dead]).await.unwrap().lost.is_empty());
    assert_eq!(mapped.number("select count(*) from donation_dlq").await, 1);
}

#[tokio::test]
async fn a_dead_letter_is_replayed_from_its_row() {
    let mapped = fresh().await;
    donate(&mapped, "r-1").await;
    let broker = FaultyPublisher::new(RecordingPublisher::new());
    broker.inject(Rule::new(Fault::permanent()).times(1));
    drain(mapped.store.clone(), broker.clone()).await;
    let dead = Filter {
        state: Some(State::Dead),
        ..Filter::default()
    };
    assert_eq!(mapped.store.list(&dead, None, 10).await.unwrap().len(), 1);
    assert_eq!(mapped.store.replay(&dead, 10).await.unwrap(), [1.into()]);
    assert_eq!(mapped.store.replay(&dead, 10).await.unwrap(), []);
    drain(mapped.store.clone(), broker.clone()).await;
    assert_eq!(row(&mapped).await.0, "COMPLETED");
    let stale = mapped
        .store
        .settle(&[Settlement::delivered(1.into(), LeaseToken::new())])
        .await
        .unwrap();
    assert_eq!(stale.lost, [1.into()]);
}

/// Proves pitfall 19.
#[tokio::test]
async fn a_row_that_cannot_be_changed_stops_neither_claims_nor_recovery() {
    let mapped = fresh().await;
    for n in 1..=50 {
        donate(&mapped, &format!("r-{n}")).await;
    }
    // Under a new name each time: another connection may not have seen yet that the first one is gone.
    let refuse = |trigger: &str| {
        format!(
            "create trigger {trigger} before update on donation_outbox when new.id = 20
            begin select raise(abort, 'no change'); end"
        )
    };
    let allow = |trigger: &str| format!("drop trigger {trigger}");
    let all = ClaimRequest {
        limit: 100,
        ..request()
    };
    let refused = |rows: &[RefusedRow]| rows.iter().map(|row| row.id).collect::<Vec<_>>();

    mapped.execute(&refuse("first")).await;
    let claim = mapped.store.claim(&all).await.unwrap();
    assert_eq!((claim.messages.len(), refused(&claim.refused)), (49, vec![20.into()]));
    mapped.execute(&allow("first")).await;
    assert_eq!(mapped.claim().await.messages[0].message.id, 20.into());

    mapped
        .execute("update donation_outbox set locked_at = datetime('now', '-10 minutes')")
        .await;
    mapped
        .execute("update donation_outbox set retry_count = 4 where id = 1")
        .await;
    mapped.execute(&refuse("second")).await;
    let stalled = RecoverRequest {
        scope: all.scope,
        max_attempts: 4,
        stalled_after: FIVE_MINUTES,
    };
    let recover = || mapped.store.recover(&stalled);
    let recovered = recover().await.unwrap();
    assert_eq!(recovered.pending.len(), 48);
    assert_eq!(
        (recovered.died, refused(&recovered.refused)),
        (vec![1.into()], vec![20.into()])
    );
    mapped.execute(&allow("second")).await;
    let recovered = recover().await.unwrap();
    assert_eq!((recovered.pending, recovered.refused), (vec![20.into()], vec![]));
}
