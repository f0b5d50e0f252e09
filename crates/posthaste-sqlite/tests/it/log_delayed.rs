//! A message with a time of its own does not pass earlier ones of its key.

use std::time::Duration;

use posthaste_core::lifecycle::Verdict;
use posthaste_core::store::{ClaimRequest, DeadHead, KeyOrdering, SchemaStore};
use posthaste_core::{Message, MessageId, RelayStore};
use posthaste_sqlite::SqliteLogStore;

use crate::log::{another, claim, enqueue, fresh, keyed, let_lease_run_out, request, settle};
use crate::support;

/// With a time that was still to come when it was enqueued, and has come.
pub(crate) async fn enqueue_delayed(
    store: &SqliteLogStore,
    messages: impl IntoIterator<Item = Message>,
) -> Vec<MessageId> {
    let later = chrono::Utc::now() + chrono::Duration::hours(1);
    let ids = enqueue(store, messages.into_iter().map(|message| message.not_before(later))).await;
    let due = sqlx::query("update posthaste_log_failed set next_attempt_at = 0 where attempts = 0");
    due.execute(store.pool()).await.unwrap();
    ids
}

/// Delivers one claim after the other until nothing is left.
pub(crate) async fn deliver_all(store: &SqliteLogStore) -> Vec<MessageId> {
    let mut delivered = Vec::new();
    loop {
        let work = request(10);
        let claimed = claim(store, &work).await;
        if claimed.is_empty() {
            return delivered;
        }
        assert_eq!(settle(store, &work, &claimed, &Verdict::Delivered).await, []);
        delivered.extend(claimed);
    }
}

/// Three of a key are in flight, which is written down, and two are enqueued with a time of their own: behind these, and of another
/// key.
async fn with_three_in_flight(store: &SqliteLogStore, work: &ClaimRequest) -> (Vec<MessageId>, MessageId) {
    let mut of_key = enqueue(store, ["k", "k", "k"].map(keyed)).await;
    assert_eq!(claim(store, work).await, of_key);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(claim(store, &request(10)).await, []);
    let delayed = enqueue_delayed(store, [keyed("k"), keyed("other")]).await;
    of_key.push(delayed[0]);
    (of_key, delayed[1])
}

/// Proves pitfall 5.
#[tokio::test]
async fn what_was_in_flight_in_a_crash_comes_before_a_delayed_message_of_its_key() {
    let (store, _directory) = fresh().await;
    let work = request(10);
    let (of_key, other) = with_three_in_flight(&store, &work).await;
    let_lease_run_out(store.pool()).await;
    let mut delivered = deliver_all(&another(store.pool())).await;
    delivered.retain(|id| *id != other);
    assert_eq!(delivered, of_key);
}

/// Proves pitfall 5.
#[tokio::test]
async fn what_was_put_back_at_the_end_comes_before_a_delayed_message_of_its_key_and_holds_back_no_other() {
    let (store, _directory) = fresh().await;
    let work = request(10);
    let (of_key, other) = with_three_in_flight(&store, &work).await;
    assert_eq!(settle(&store, &work, &of_key[..3], &Verdict::Released).await, []);
    store.close().await.unwrap();
    let delivered = deliver_all(&another(store.pool())).await;
    assert_eq!(delivered, [&[other], &of_key[..]].concat());
}

/// It has the place of the row before it, which stands before it all the same.
#[tokio::test]
async fn what_failed_or_came_back_comes_before_a_delayed_message_that_was_enqueued_meanwhile() {
    let failed = Verdict::Retry {
        delay: Duration::ZERO,
        error: "not now".to_owned(),
    };
    for verdict in [failed, Verdict::Released] {
        let (store, _directory) = fresh().await;
        let first = enqueue(&store, [keyed("k")]).await;
        let work = request(10);
        assert_eq!(claim(&store, &work).await, first);
        let delayed = enqueue_delayed(&store, [keyed("k")]).await;
        assert_eq!(settle(&store, &work, &first, &verdict).await, []);
        assert_eq!(deliver_all(&store).await, [first, delayed].concat(), "{verdict:?}");
    }
}

/// Proves pitfall 18.
#[tokio::test]
async fn messages_that_a_dead_one_blocks_hide_no_others() {
    let (store, _directory) = fresh().await;
    let of_key = enqueue_delayed(&store, (0..300).map(|_| keyed("k"))).await;
    let other = enqueue_delayed(&store, [keyed("other")]).await;
    let dead = sqlx::query("update posthaste_log_failed set died_at = 1 where id = ?");
    dead.bind(of_key[0].to_string()).execute(store.pool()).await.unwrap();
    let mut work = request(2);
    work.ordering = KeyOrdering::PerKey {
        dead_head: DeadHead::Block,
        except: Vec::new(),
    };
    assert_eq!(claim(&store, &work).await, other);
}

/// More of them than a claim takes stand before the others.
#[tokio::test]
async fn messages_that_wait_for_a_postponed_one_hide_no_others() {
    let (store, _directory) = fresh().await;
    let mut of_key = enqueue(&store, [keyed("k")]).await;
    let work = request(2);
    assert_eq!(claim(&store, &work).await, of_key);
    let behind = enqueue_delayed(&store, (0..300).map(|_| keyed("k"))).await;
    let other = enqueue_delayed(&store, [keyed("other")]).await;
    assert_eq!(settle(&store, &work, &of_key, &postponed()).await, []);
    let work = request(2);
    assert_eq!(claim(&store, &work).await, other);
    assert_eq!(settle(&store, &work, &other, &Verdict::Delivered).await, []);
    assert_eq!(claim(&store, &request(2)).await, []);
    store.pass_time(POSTPONED_FOR);
    of_key.extend(behind);
    assert_eq!(deliver_all(&store).await, of_key);
}

/// A number may have no row: the producer gave an id again, or the row was removed before it was read.
#[tokio::test]
async fn a_delayed_message_waits_for_rows_before_it_and_not_for_numbers() {
    for is_removed in [false, true] {
        let (store, _directory) = fresh().await;
        let first = keyed("k");
        let mut of_key = enqueue(&store, [first.clone()]).await;
        if is_removed {
            enqueue(&store, [keyed("k"), keyed("other")]).await;
            let remove = sqlx::query("delete from posthaste_log where seq > 1");
            remove.execute(store.pool()).await.unwrap();
        } else {
            enqueue(&store, [first]).await;
        }
        of_key.extend(enqueue_delayed(&store, [keyed("k")]).await);
        let place: i64 = sqlx::query_scalar("select log_id from posthaste_log_failed")
            .fetch_one(store.pool())
            .await
            .unwrap();
        assert!(place > 1, "numbers were given out without a row");
        assert_eq!(deliver_all(&store).await, of_key, "removed: {is_removed}");
    }
}

#[tokio::test]
async fn a_delayed_message_waits_for_rows_before_it_that_are_still_to_be_read() {
    let (store, _directory) = fresh().await;
    let fresh = enqueue(&store, ["other", "k"].map(keyed)).await;
    let work = request(1);
    assert_eq!(claim(&store, &work).await, fresh[..1], "no further was read");
    assert_eq!(settle(&store, &work, &fresh[..1], &Verdict::Delivered).await, []);
    let delayed = enqueue_delayed(&store, [keyed("k")]).await;
    assert_eq!(deliver_all(&store).await, [&fresh[1..], &delayed[..]].concat());
}

/// How long a message is left alone that could not be sent.
const POSTPONED_FOR: Duration = Duration::from_mins(1);

fn postponed() -> Verdict {
    Verdict::Postponed {
        delay: POSTPONED_FOR,
        error: "the broker asks to wait".to_owned(),
    }
}

#[tokio::test]
async fn messages_with_a_time_of_their_own_cost_no_more_while_many_keys_wait() {
    let (pool, _directory) = support::pool(1).await;
    let store = another(&pool);
    store.migrate().await.unwrap();
    enqueue_delayed(&store, (0..1_000).map(|n| keyed(&n.to_string()))).await;
    let work = support::Work::of(&pool).await;
    assert_eq!(claim(&store, &request(100)).await.len(), 100);
    let alone = work.done();
    let waiting = enqueue(&store, (0..1_000).map(|n| keyed(&format!("fresh {n}")))).await;
    let fresh = request(1_000);
    assert_eq!(claim(&store, &fresh).await, waiting, "it is their turn");
    assert_eq!(settle(&store, &fresh, &waiting, &postponed()).await, []);
    work.done();
    assert_eq!(claim(&store, &request(100)).await.len(), 100);
    let beside = work.done();
    assert!(
        beside < alone * 2,
        "{beside} beside a thousand that wait, {alone} without"
    );
}

#[tokio::test]
async fn messages_with_a_time_of_their_own_cost_no_more_while_many_keys_are_in_flight() {
    let (pool, _directory) = support::pool(1).await;
    let store = another(&pool);
    store.migrate().await.unwrap();
    enqueue_delayed(&store, (0..1_000).map(|n| keyed(&n.to_string()))).await;
    let work = support::Work::of(&pool).await;
    let mut of_claims = Vec::new();
    for _ in 0..9 {
        work.done();
        assert_eq!(claim(&store, &request(100)).await.len(), 100);
        of_claims.push(work.done());
    }
    let most = of_claims.iter().max().unwrap();
    assert!(*most < of_claims[0] * 2, "with none in flight to 800: {of_claims:?}");
}
