//! A table that says since when a row is held, counts retries, limits them per row, keeps a version, a hash and a table of
//! dead letters. Here on PostgreSQL; its home is MySQL.

use std::time::Duration;

use posthaste_core::lifecycle::{Settlement, Verdict};
use posthaste_core::store::{Claim, ClaimRequest, ClaimedMessage, ExtendRequest, RecoverRequest, RefusedRow, Scope};
use posthaste_core::{Enqueued, Message, MessageId, RelayStore};
use posthaste_sql::table::BuiltinMap;

use super::place::{Place, claim, ids, request, unordered};
use super::sql::DONATION;

/// What was claimed so long ago that its worker has crashed.
fn stalled() -> RecoverRequest {
    RecoverRequest {
        scope: Scope::default(),
        max_attempts: 4,
        stalled_after: STALLED,
    }
}

async fn place() -> Place {
    Place::new(BuiltinMap::find("donation").unwrap().map().unwrap(), DONATION, 4).await
}

fn donation(n: u32) -> Message {
    Message {
        event_id: Some(format!("request-{n}").into()),
        ..Message::new("donation-events", format!("{{\"n\":{n}}}")).event_type("Donated")
    }
}

async fn donate(place: &Place, count: u32) -> Vec<MessageId> {
    let outcomes = place.enqueue((0..count).map(donation).collect()).await.unwrap();
    assert!(outcomes.iter().all(|outcome| outcome.is_new()));
    outcomes.into_iter().map(Enqueued::id).collect()
}

fn verdict(request: &ClaimRequest, claimed: &ClaimedMessage, verdict: Verdict) -> Settlement {
    Settlement {
        id: claimed.message.id,
        token: request.token,
        verdict,
        version: claimed.version,
        without_letter: false,
    }
}

fn failed() -> Verdict {
    Verdict::Retry {
        delay: Duration::ZERO,
        error: "away".into(),
    }
}

async fn fail(place: &Place) -> Claim {
    let request = request(10);
    let work = claim(&place.store, &request).await;
    let settlements: Vec<_> = work
        .messages
        .iter()
        .map(|row| verdict(&request, row, failed()))
        .collect();
    assert_eq!(place.store.settle(&settlements).await.unwrap().lost, []);
    work
}

const ROW: &str =
    "select concat_ws(' ', status, retry_count, version, locked_by is null, locked_at is null) from donation_outbox";
const LETTERS: &str = "select concat_ws(' ', original_id, request_id, payload, reason) from donation_dlq order by id";
const STALLED: Duration = Duration::from_mins(5);

#[tokio::test(flavor = "multi_thread")]
async fn ids_come_from_the_database_and_a_second_enqueue_is_told_the_first() {
    let place = place().await;
    let ids = donate(&place, 3).await;
    assert_eq!(ids, [1, 2, 3].map(MessageId::from));
    let again = place
        .enqueue(vec![donation(7), donation(1), donation(8)])
        .await
        .unwrap();
    assert_eq!(again[1], Enqueued::Duplicate(ids[1]), "by the table's own unique index");
    assert!(again[0].is_new() && again[2].is_new());
    let work = claim(&place.store, &request(10)).await;
    assert_eq!(work.messages[0].message.effective_event_id(), "request-0");
    assert!(work.messages.iter().all(|claimed| {
        let hash = claimed.hash.as_ref().unwrap();
        hash.expected == Some(hash.recipe.hash(&claimed.message))
    }));
    place.dispose().await;
}

/// Proves D8.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_was_changed_is_not_settled() {
    let place = place().await;
    donate(&place, 1).await;
    let request = request(10);
    let work = claim(&place.store, &request).await;
    assert_eq!(
        (work.messages[0].version, place.text(ROW).await.as_str()),
        (Some(1), "PROCESSING 1 1 f f")
    );
    place.run("update donation_outbox set version = version + 1").await;
    let delivered = [verdict(&request, &work.messages[0], Verdict::Delivered)];
    assert_eq!(place.store.settle(&delivered).await.unwrap().lost, ids(&work));
    place.run("update donation_outbox set version = version - 1").await;
    assert_eq!(place.store.settle(&delivered).await.unwrap().lost, []);
    assert_eq!(
        place.text(ROW).await,
        "COMPLETED 0 2 t t",
        "incremented, and no retry was scheduled"
    );
    place.dispose().await;
}

/// Proves D6.
#[tokio::test(flavor = "multi_thread")]
async fn each_row_has_a_limit_of_its_own() {
    let place = place().await;
    donate(&place, 1).await;
    place.run("update donation_outbox set max_retries = 1").await;
    let work = fail(&place).await;
    assert_eq!((work.messages[0].attempts, work.messages[0].max_attempts), (1, Some(2)));
    assert_eq!(place.text(ROW).await, "FAILED 1 2 t t", "the label between two tries");
    // A second failure leaves nothing: one retry is two attempts, whatever the relay's policy says.
    fail(&place).await;
    assert!(claim(&place.store, &request(10)).await.messages.is_empty());
    assert_eq!(place.store.sweep(&Scope::default(), 50).await.unwrap(), [1.into()]);
    assert!(place.text(ROW).await.starts_with("DEAD_LETTER"));
    assert_eq!(place.text(LETTERS).await, "1 request-0 {\"n\":0} away");
    place.dispose().await;
}

/// Proves D5.
#[tokio::test(flavor = "multi_thread")]
async fn rows_of_a_vanished_worker_are_recovered_after_five_minutes() {
    let place = place().await;
    let all = donate(&place, 2).await;
    let first = unordered(10);
    let work = claim(&place.store, &first).await;
    assert_eq!(ids(&work), all);
    assert!(claim(&place.store, &unordered(10)).await.messages.is_empty());
    let recover = async || place.store.recover(&stalled()).await.unwrap();
    assert_eq!(recover().await, posthaste_core::store::Recovered::default(), "not yet");
    place
        .run("update donation_outbox set locked_at = locked_at - interval '6 minutes'")
        .await;
    assert_eq!(
        place
            .store
            .extend(ExtendRequest::new(first.token, &all[..1], STALLED))
            .await
            .unwrap()
            .held,
        all[..1],
        "one is alive"
    );
    assert_eq!(recover().await.pending, all[1..]);
    let settled = place
        .store
        .settle(&[verdict(&first, &work.messages[1], Verdict::Delivered)])
        .await
        .unwrap();
    assert_eq!(settled.lost, all[1..], "the lost claim has no say");
    place
        .run("update donation_outbox set retry_count = 4, locked_at = locked_at - interval '6 minutes' where id = 1")
        .await;
    assert_eq!(recover().await.died, all[..1]);
    assert_eq!(
        place.text(LETTERS).await,
        "1 request-0 {\"n\":0} the worker vanished on the last attempt"
    );
    let last = unordered(10);
    let work = claim(&place.store, &last).await;
    assert_eq!(
        (ids(&work), work.messages[0].attempts),
        (all[1..].to_vec(), 2),
        "the lost attempt counts"
    );
    place.dispose().await;
}

/// The row and its letter are one transaction: if there is no letter the row is not dead.
///
/// Proves D1.
#[tokio::test(flavor = "multi_thread")]
async fn no_row_is_dead_without_its_letter() {
    let place = place().await;
    donate(&place, 1).await;
    let request = request(10);
    let work = claim(&place.store, &request).await;
    let dead = [verdict(
        &request,
        &work.messages[0],
        Verdict::Dead { error: "x".repeat(900) },
    )];
    place
        .run("alter table donation_dlq add constraint full_up check (false)")
        .await;
    place.store.settle(&dead).await.unwrap_err();
    assert_eq!(place.text(ROW).await, "PROCESSING 1 1 f f");
    place.run("alter table donation_dlq drop constraint full_up").await;
    assert_eq!(place.store.settle(&dead).await.unwrap().lost, []);
    assert_eq!(place.text(ROW).await, "DEAD_LETTER 0 2 t t");
    assert_eq!(
        place.text("select length(reason)::text from donation_dlq").await,
        "500",
        "as much as the column holds"
    );
    place.dispose().await;
}

/// Proves pitfall 19.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_cannot_be_changed_stops_neither_claims_nor_recovery() {
    let place = place().await;
    let all = donate(&place, 50).await;
    let refuse = "alter table donation_outbox add constraint no_change check (id <> 20) not valid";
    let allow = "alter table donation_outbox drop constraint no_change";
    let others: Vec<_> = all.iter().copied().filter(|id| *id != all[19]).collect();
    let refused = |rows: &[RefusedRow]| rows.iter().map(|row| row.id).collect::<Vec<_>>();

    place.run(refuse).await;
    let work = claim(&place.store, &unordered(100)).await;
    assert_eq!((ids(&work), refused(&work.refused)), (others.clone(), vec![all[19]]));
    place.run(allow).await;
    assert_eq!(ids(&claim(&place.store, &unordered(100)).await), all[19..20]);

    place
        .run("update donation_outbox set locked_at = locked_at - interval '6 minutes'")
        .await;
    place
        .run("update donation_outbox set retry_count = 4 where id = 1")
        .await;
    place.run(refuse).await;
    let recovered = place.store.recover(&stalled()).await.unwrap();
    assert_eq!(recovered.pending.len(), 48);
    assert_eq!(
        (recovered.died, refused(&recovered.refused)),
        (all[..1].to_vec(), vec![all[19]])
    );
    place.run(allow).await;
    let recovered = place.store.recover(&stalled()).await.unwrap();
    assert_eq!((recovered.pending, recovered.refused), (all[19..20].to_vec(), vec![]));
    place.dispose().await;
}

/// Nobody waits for the table of dead letters who has none to write.
#[tokio::test]
async fn a_locked_table_of_dead_letters_keeps_no_delivery_from_being_written() {
    let place = place().await;
    donate(&place, 2).await;
    let request = unordered(10);
    let work = claim(&place.store, &request).await;
    let mut other = place.store.pool().begin().await.unwrap();
    sqlx::query("lock table donation_dlq in access exclusive mode")
        .execute(&mut *other)
        .await
        .unwrap();
    let [first, second] = &work.messages[..] else {
        panic!("{work:?}")
    };
    let delivered = verdict(&request, first, Verdict::Delivered);
    let settled = place.store.settle(&[delivered]).await.unwrap();
    assert!(settled.lost.is_empty() && settled.busy.is_empty(), "{settled:?}");
    let dead = Verdict::Dead { error: "no".into() };
    let settled = place.store.settle(&[verdict(&request, second, dead)]).await;
    assert!(
        !matches!(&settled, Ok(settled) if settled.busy.is_empty()),
        "{settled:?}"
    );
    drop(other);
    place.dispose().await;
}
