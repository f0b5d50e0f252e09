//! The outbox of a donation service, on its own tables as they stand.

use std::time::Duration;

use posthaste_core::integrity::ContentHash;
use posthaste_core::lifecycle::{LeaseToken, Settlement, State};
use posthaste_core::store::{
    Claim, ClaimRequest, ClaimedMessage, DeadHead, ExtendRequest, Filter, KeyOrdering, RecoverRequest, RefusedRow,
    Scope, WorkerId,
};
use posthaste_core::validate::TypeNameRule;
use posthaste_core::{AdminStore, Enqueued, Message, MessageId, OutboxOptions, RelayStore, RetryPolicy};
use posthaste_mysql::MySqlStore;
use posthaste_relay::{Relay, RelayConfig, RelayReport};
use posthaste_sql::table::BuiltinMap;
use posthaste_testkit::{FaultyPublisher, RecordingPublisher};
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use crate::support;

const MINUTE: Duration = Duration::from_mins(1);

/// What was claimed so long ago that its worker has crashed.
fn stalled() -> RecoverRequest {
    RecoverRequest {
        scope: Scope::default(),
        max_attempts: 4,
        stalled_after: MINUTE * 5,
    }
}

/// The service's own tables, empty.
async fn tables() -> MySqlStore {
    let pool = support::pool(8).await;
    let builtin = BuiltinMap::find("donation").unwrap();
    support::run(&pool, builtin.ddl).await;
    MySqlStore::with_map(pool, builtin.map().unwrap()).unwrap()
}

/// Writes a row as the service does. Returns its id.
async fn donate(store: &MySqlStore, request: &str) -> MessageId {
    let payload = format!(r#"{{"request":"{request}"}}"#);
    let hash = ContentHash::of(&[request.as_bytes(), b"DONATION_COMPLETED", payload.as_bytes()]);
    let done = sqlx::query(
        "insert into donation_outbox (request_id, event_type, payload, content_hash, created_at, updated_at)
         values (?, 'DONATION_COMPLETED', ?, ?, utc_timestamp(), utc_timestamp())",
    )
    .bind(request)
    .bind(payload)
    .bind(hash.to_string())
    .execute(store.pool())
    .await
    .unwrap();
    MessageId::Number(i64::try_from(done.last_insert_id()).unwrap())
}

async fn donate_many(store: &MySqlStore, count: usize) -> Vec<MessageId> {
    let mut ids = Vec::new();
    for n in 0..count {
        ids.push(donate(store, &format!("r{n}")).await);
    }
    ids
}

fn request(limit: u32) -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit,
        max_bytes: 1 << 20,
        scan_limit: None,
        lease: MINUTE * 5,
        max_attempts: 4,
        ordering: KeyOrdering::PerKey {
            dead_head: DeadHead::Skip,
            except: Vec::new(),
        },
        scope: Scope::default(),
        left_out: Vec::new(),
        pipelined: false,
    }
}

fn ids(claim: &Claim) -> Vec<MessageId> {
    claim.messages.iter().map(|claimed| claimed.message.id).collect()
}

fn settlement(
    claimed: &ClaimedMessage,
    request: &ClaimRequest,
    settle: impl FnOnce(MessageId, LeaseToken) -> Settlement,
) -> Settlement {
    let mut settlement = settle(claimed.message.id, request.token);
    settlement.version = claimed.version;
    settlement
}

async fn row(store: &MySqlStore, id: MessageId) -> MySqlRow {
    sqlx::query("select * from donation_outbox where id = ?")
        .bind(id.number())
        .fetch_one(store.pool())
        .await
        .unwrap()
}

async fn status(store: &MySqlStore, id: MessageId) -> String {
    row(store, id).await.get("status")
}

/// What the dead-letter table has: the row's id, its request and the reason.
async fn dead_letters(store: &MySqlStore) -> Vec<(i64, String, String)> {
    sqlx::query_as("select original_id, request_id, reason from donation_dlq where created_at is not null order by id")
        .fetch_all(store.pool())
        .await
        .unwrap()
}

/// Lets time pass: all that is stored moves into the past.
async fn pass_time(store: &MySqlStore, by: Duration) {
    let step = format!("interval {} second", by.as_secs());
    support::run(
        store.pool(),
        format!(
            "update donation_outbox set created_at = created_at - {step}, updated_at = updated_at - {step},
             next_retry_at = next_retry_at - {step}, locked_at = locked_at - {step}"
        ),
    )
    .await;
}

/// The settings that ship with the map.
fn config() -> RelayConfig {
    let policy = BuiltinMap::find("donation").unwrap().map().unwrap().policy().clone();
    serde_json::from_value(policy.into()).unwrap()
}

async fn drain(store: &MySqlStore, broker: &FaultyPublisher<RecordingPublisher>) -> RelayReport {
    let relay = Relay::new(store.clone(), broker.clone()).config(config());
    tokio::time::timeout(MINUTE, relay.drain()).await.unwrap().unwrap()
}

/// Proves D1.
#[tokio::test]
async fn the_relay_delivers_from_the_table_as_it_stands() {
    let store = tables().await;
    let donated = donate_many(&store, 3).await;
    let broker = FaultyPublisher::new(RecordingPublisher::new());
    let report = drain(&store, &broker).await;
    assert_eq!((report.delivered, report.died), (3, 0));

    let published = broker.inner().deliveries();
    let said: Vec<_> = published
        .iter()
        .map(|delivery| {
            let message = &delivery.message;
            (
                message.effective_event_id().into_owned(),
                message.topic.as_str(),
                message.event_type.as_deref(),
                message.source.as_deref(),
            )
        })
        .collect();
    let expected = |n: usize| {
        (
            format!("r{n}"),
            "donation-events",
            Some("DONATION_COMPLETED"),
            Some("donation-service"),
        )
    };
    assert_eq!(said, [expected(0), expected(1), expected(2)]);
    for id in donated {
        let row = row(&store, id).await;
        assert_eq!(row.get::<String, _>("status"), "COMPLETED");
        assert_eq!(row.get::<Option<String>, _>("locked_by"), None);
        assert_eq!(row.get::<i32, _>("retry_count"), 0, "a first attempt is no retry");
    }
    let stats = store.stats("default").await.unwrap();
    assert_eq!((stats.pending, stats.processing, stats.dead), (0, 0, 0));
}

/// Proves D4.
#[tokio::test]
async fn pending_and_failed_rows_that_are_due_are_claimed_by_id_under_the_workers_name() {
    let store = tables().await;
    let donated = donate_many(&store, 5).await;
    support::run(
        store.pool(),
        "update donation_outbox set status = 'FAILED', retry_count = 1, next_retry_at = utc_timestamp() - interval 1 second
            where request_id = 'r1';
         update donation_outbox set status = 'FAILED', retry_count = 1, next_retry_at = utc_timestamp() + interval 1 hour
            where request_id = 'r2';
         update donation_outbox set status = 'COMPLETED' where request_id = 'r3'",
    )
    .await;
    let request = request(100);
    let claim = store.claim(&request).await.unwrap();
    assert_eq!(ids(&claim), [donated[0], donated[1], donated[4]]);
    assert_eq!(claim.messages[1].attempts, 2, "the second try");
    let row = row(&store, donated[0]).await;
    assert_eq!(row.get::<String, _>("status"), "PROCESSING");
    let locked_by: String = row.get("locked_by");
    assert!(
        locked_by.starts_with(&request.worker.as_uuid().to_string()),
        "{locked_by}"
    );
    assert!(
        ids(&store.claim(&self::request(100)).await.unwrap()).is_empty(),
        "a row is held once"
    );
}

/// Proves D4.
#[tokio::test(flavor = "multi_thread")]
async fn relays_that_claim_at_once_never_share_a_row() {
    let store = tables().await;
    let donated = donate_many(&store, 100).await;
    let claims = (0..4).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            let request = ClaimRequest {
                ordering: KeyOrdering::None,
                ..request(40)
            };
            ids(&store.claim(&request).await.unwrap())
        })
    });
    let mut claimed = futures::future::try_join_all(claims).await.unwrap().concat();
    claimed.extend(ids(&store.claim(&request(100)).await.unwrap()));
    claimed.sort_unstable();
    assert_eq!(claimed, donated);
}

/// Proves D5.
#[tokio::test]
async fn rows_that_a_vanished_relay_held_for_five_minutes_are_taken_back() {
    let store = tables().await;
    let donated = donate_many(&store, 2).await;
    support::run(
        store.pool(),
        "update donation_outbox set max_retries = 0 where request_id = 'r1'",
    )
    .await;
    let held = request(100);
    assert_eq!(ids(&store.claim(&held).await.unwrap()), donated);

    pass_time(&store, MINUTE * 4).await;
    let recovered = store.recover(&stalled()).await.unwrap();
    assert_eq!(
        (recovered.pending, recovered.died),
        (vec![], vec![]),
        "not before its time"
    );
    assert_eq!(
        ids(&store.claim(&request(100)).await.unwrap()),
        [],
        "and no claim takes them"
    );

    pass_time(&store, MINUTE * 2).await;
    let recovered = store.recover(&stalled()).await.unwrap();
    assert_eq!(recovered.pending, donated[..1]);
    assert_eq!(recovered.died, donated[1..], "it had one attempt");
    let row = row(&store, donated[0]).await;
    assert_eq!(row.get::<String, _>("status"), "PENDING");
    assert_eq!(row.get::<Option<String>, _>("locked_by"), None);
    assert_eq!(status(&store, donated[1]).await, "DEAD_LETTER");
    let [(original, request_id, reason)] = &dead_letters(&store).await[..] else {
        panic!("one dead letter")
    };
    assert_eq!((*original, request_id.as_str()), (donated[1].number().unwrap(), "r1"));
    assert!(reason.contains("vanished"), "{reason}");

    let again = store.claim(&request(100)).await.unwrap();
    assert_eq!(
        (ids(&again), again.messages[0].attempts),
        (donated[..1].to_vec(), 2),
        "the lost attempt counts"
    );
    let late = Settlement::delivered(donated[0], held.token);
    assert_eq!(
        store.settle(&[late]).await.unwrap().lost,
        donated[..1],
        "the first relay's word comes too late"
    );
    assert_eq!(status(&store, donated[0]).await, "PROCESSING");
}

/// A claim that is renewed in time is not stalled.
///
/// Proves D5.
#[tokio::test]
async fn a_claim_that_is_renewed_is_not_taken_back() {
    let store = tables().await;
    let donated = donate_many(&store, 1).await;
    let held = request(100);
    let claim = store.claim(&held).await.unwrap();
    pass_time(&store, MINUTE * 4).await;
    assert_eq!(
        store
            .extend(ExtendRequest::new(held.token, &donated, held.lease))
            .await
            .unwrap()
            .held,
        donated
    );
    pass_time(&store, MINUTE * 2).await;
    assert_eq!(store.recover(&stalled()).await.unwrap().pending, []);
    let verdict = settlement(&claim.messages[0], &held, Settlement::delivered);
    assert_eq!(store.settle(&[verdict]).await.unwrap().lost, []);
    assert_eq!(status(&store, donated[0]).await, "COMPLETED");
}

/// Proves D6.
#[tokio::test]
async fn a_row_is_tried_again_as_often_as_it_says_itself_and_is_dead_then() {
    let store = tables().await;
    let [patient, hasty] = [donate(&store, "patient").await, donate(&store, "hasty").await];
    support::run(
        store.pool(),
        "update donation_outbox set max_retries = 1 where request_id = 'hasty'",
    )
    .await;
    let broker = FaultyPublisher::new(RecordingPublisher::new());
    broker.fail_while(|_| true);
    let waits = |row: &MySqlRow| {
        let [next, updated] =
            ["next_retry_at", "updated_at"].map(|column| row.get::<chrono::DateTime<chrono::Utc>, _>(column));
        (next - updated).num_seconds()
    };
    for (retry, wait) in [(1, 30), (2, 60), (3, 120)] {
        drain(&store, &broker).await;
        let row = row(&store, patient).await;
        assert_eq!(
            (
                row.get::<String, _>("status").as_str(),
                row.get::<i32, _>("retry_count")
            ),
            ("FAILED", retry)
        );
        // Times without fractions are cut, each for itself.
        assert!((wait - 1..=wait + 1).contains(&waits(&row)), "{} s", waits(&row));
        pass_time(&store, MINUTE * 3).await;
    }
    assert_eq!(status(&store, hasty).await, "DEAD_LETTER", "one retry and no more");
    drain(&store, &broker).await;
    assert_eq!(status(&store, patient).await, "DEAD_LETTER");
    let letters: Vec<_> = dead_letters(&store).await.into_iter().map(|letter| letter.1).collect();
    assert_eq!(letters, ["hasty", "patient"]);
    let retries: Vec<i32> = [row(&store, patient).await, row(&store, hasty).await]
        .iter()
        .map(|row| row.get("retry_count"))
        .collect();
    assert_eq!(retries, [3, 1]);
}

/// A retry that was scheduled counts, though it never came.
#[tokio::test]
async fn a_row_that_is_given_up_while_it_waits_keeps_its_count() {
    let store = tables().await;
    let id = donate(&store, "r").await;
    let exhausted = "update donation_outbox set status = 'FAILED', retry_count = 4, max_retries = 3";
    support::run(store.pool(), exhausted).await;
    assert_eq!(store.sweep(&Scope::default(), 10).await.unwrap(), [id]);
    let row = row(&store, id).await;
    assert_eq!(row.get::<String, _>("status"), "DEAD_LETTER");
    assert_eq!(row.get::<i32, _>("retry_count"), 4);
}

/// Proves D8.
#[tokio::test]
async fn every_change_raises_the_version_and_a_changed_row_is_left_alone() {
    let store = tables().await;
    let donated = donate_many(&store, 2).await;
    let held = request(100);
    let claim = store.claim(&held).await.unwrap();
    assert_eq!(
        claim.messages.iter().map(|claimed| claimed.version).collect::<Vec<_>>(),
        [Some(1), Some(1)]
    );
    support::run(
        store.pool(),
        "update donation_outbox set version = version + 1 where request_id = 'r1'",
    )
    .await;
    let verdicts: Vec<_> = claim
        .messages
        .iter()
        .map(|claimed| settlement(claimed, &held, Settlement::delivered))
        .collect();
    assert_eq!(
        store.settle(&verdicts).await.unwrap().lost,
        donated[1..],
        "somebody changed it meanwhile"
    );
    let version = |row: &MySqlRow| row.get::<i64, _>("version");
    assert_eq!(version(&row(&store, donated[0]).await), 2);
    assert_eq!(
        (
            version(&row(&store, donated[1]).await),
            status(&store, donated[1]).await.as_str()
        ),
        (2, "PROCESSING")
    );
}

/// Proves D3 and pitfall 24.
#[tokio::test]
async fn a_row_whose_bytes_were_changed_is_dead_and_never_published() {
    let store = tables().await;
    let donated = donate_many(&store, 3).await;
    support::run(
        store.pool(),
        "update donation_outbox set payload = replace(payload, 'r1', 'r9') where request_id = 'r1';
         update donation_outbox set content_hash = 'nonsense' where request_id = 'r2'",
    )
    .await;
    let broker = FaultyPublisher::new(RecordingPublisher::new());
    let report = drain(&store, &broker).await;
    assert_eq!((report.delivered, report.died), (1, 2));
    assert_eq!(broker.inner().deliveries().len(), 1);
    for id in &donated[1..] {
        assert_eq!(status(&store, *id).await, "DEAD_LETTER");
    }
    assert_eq!(dead_letters(&store).await.len(), 2);
}

/// Proves A7.
#[tokio::test]
async fn an_operator_sees_and_replays_dead_rows() {
    let store = tables().await;
    let donated = donate_many(&store, 1).await;
    let held = request(1);
    let claim = store.claim(&held).await.unwrap();
    let long = "x".repeat(600);
    let dead = settlement(&claim.messages[0], &held, |id, token| Settlement::dead(id, token, long));
    assert_eq!(store.settle(&[dead]).await.unwrap().lost, []);
    let filter = Filter {
        state: Some(State::Dead),
        ..Filter::default()
    };
    let rows = store.list(&filter, None, 10).await.unwrap();
    assert_eq!(
        (
            rows.len(),
            rows[0].message.id,
            rows[0].last_error.as_ref().unwrap().len()
        ),
        (1, donated[0], 500)
    );
    assert_eq!(store.replay(&filter, 10).await.unwrap(), donated);
    assert_eq!(status(&store, donated[0]).await, "PENDING");
    let pending = Filter {
        state: Some(State::Pending),
        ..Filter::default()
    };
    assert_eq!(store.list(&pending, None, 10).await.unwrap().len(), 1);
    assert_eq!(
        store
            .sweep(&Scope::default(), RetryPolicy::default().max_attempts)
            .await
            .unwrap(),
        []
    );
}

/// Proves D3.
#[tokio::test]
async fn the_library_writes_rows_that_the_table_and_its_hash_accept() {
    let store = tables().await;
    let outbox = store.outbox(OutboxOptions::new().type_names(TypeNameRule::Any));
    let donation = |request: &str| {
        let mut message = Message::new("donation-events", r#"{"points":1}"#).event_type("DONATION_COMPLETED");
        message.event_id = Some(request.into());
        message
    };
    let mut tx = store.pool().begin().await.unwrap();
    let first = outbox.enqueue(&mut tx, donation("r1")).await.unwrap();
    assert!(first.is_new() && first.id().number().is_some(), "{first:?}");
    let again = outbox
        .enqueue_all(&mut tx, [donation("r2"), donation("r1")])
        .await
        .unwrap();
    assert_eq!(
        (again[0].is_new(), again[1]),
        (true, Enqueued::Duplicate(first.id())),
        "a request counts once"
    );
    outbox
        .enqueue(&mut tx, donation(&"x".repeat(51)))
        .await
        .expect_err("it does not fit");
    tx.commit().await.unwrap();

    let broker = FaultyPublisher::new(RecordingPublisher::new());
    let report = drain(&store, &broker).await;
    assert_eq!((report.delivered, report.died), (2, 0));
    let published: Vec<_> = broker
        .inner()
        .deliveries()
        .into_iter()
        .map(|delivery| delivery.message.effective_event_id().into_owned())
        .collect();
    assert_eq!(published, ["r1", "r2"]);
}

/// In the second half of a second MySQL would round its time into the future.
#[tokio::test]
async fn what_is_due_now_is_due_though_the_table_has_whole_seconds_only() {
    let store = tables().await;
    let outbox = store.outbox(OutboxOptions::new().type_names(TypeNameRule::Any));
    let of_second = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .subsec_millis();
    let until_late = (1_600 - u64::from(of_second)) % 1_000;
    tokio::time::sleep(std::time::Duration::from_millis(until_late)).await;
    let mut message = Message::new("donation-events", r#"{"points":1}"#).event_type("DONATION_COMPLETED");
    message.event_id = Some("r1".into());
    let mut tx = store.pool().begin().await.unwrap();
    outbox.enqueue(&mut tx, message).await.unwrap();
    tx.commit().await.unwrap();
    let broker = FaultyPublisher::new(RecordingPublisher::new());
    assert_eq!(drain(&store, &broker).await.delivered, 1);
}

/// Proves pitfall 19.
#[tokio::test]
async fn a_row_that_cannot_be_changed_stops_neither_claims_nor_recovery() {
    let store = tables().await;
    let all = donate_many(&store, 50).await;
    let refuse = "create trigger no_change before update on donation_outbox for each row
        if new.id = 20 then signal sqlstate '45000' set message_text = 'no change'; end if";
    let allow = "drop trigger no_change";
    let others: Vec<_> = all.iter().copied().filter(|id| *id != all[19]).collect();
    let refused = |rows: &[RefusedRow]| rows.iter().map(|row| row.id).collect::<Vec<_>>();

    support::run(store.pool(), refuse).await;
    let claim = store.claim(&request(100)).await.unwrap();
    assert_eq!((ids(&claim), refused(&claim.refused)), (others.clone(), vec![all[19]]));
    support::run(store.pool(), allow).await;
    assert_eq!(ids(&store.claim(&request(100)).await.unwrap()), all[19..20]);

    pass_time(&store, MINUTE * 6).await;
    support::run(store.pool(), "update donation_outbox set retry_count = 4 where id = 1").await;
    support::run(store.pool(), refuse).await;
    let recovered = store.recover(&stalled()).await.unwrap();
    assert_eq!(recovered.pending.len(), 48);
    assert_eq!(
        (recovered.died, refused(&recovered.refused)),
        (all[..1].to_vec(), vec![all[19]])
    );
    support::run(store.pool(), allow).await;
    let recovered = store.recover(&stalled()).await.unwrap();
    assert_eq!((recovered.pending, recovered.refused), (all[19..20].to_vec(), vec![]));
}
