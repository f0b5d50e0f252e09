//! Reading on at the end of the log: rows are read ahead of the claims that hand them out, and who may still commit what they
//! passed over is looked up later.

use posthaste_core::RelayStore;
use sqlx::{Acquire, Executor};

use super::eventually;

use crate::support::log::{Log, Work, request, retry};

/// Two rows that the first claim takes, an id that another transaction holds, and two rows that the second claim takes. All
/// were read by the first.
async fn with_an_id_between<'p>(log: &'p Log, key: &str) -> (sqlx::Transaction<'p, sqlx::Postgres>, String) {
    log.append(&log.pool, "a").await;
    log.append(&log.pool, "b").await;
    let mut late = log.pool.begin().await.unwrap();
    let event = log.append(&mut *late, key).await;
    log.append(&log.pool, "c").await;
    log.append(&log.pool, "d").await;
    (late, event)
}

/// Proves pitfall 1.
#[tokio::test(flavor = "multi_thread")]
async fn what_commits_between_the_read_and_the_look_at_the_locks_is_found_by_the_next_read() {
    let log = Log::fresh(8).await;
    let store = log.store();
    let (late, event) = with_an_id_between(&log, "late").await;
    let first = Work::claim(&store, &request(2)).await;
    assert_eq!(first.keys(), ["a", "b"]);
    assert_eq!(
        store.gaps().await,
        Some((0, 0)),
        "what was read ahead is not looked at yet"
    );
    late.commit().await.unwrap();
    assert_eq!(Work::claim(&store, &request(2)).await.keys(), ["c", "d"]);
    assert_eq!(
        store.gaps().await,
        Some((1, 0)),
        "nobody holds it, and still it is open"
    );
    assert_eq!(Work::claim(&store, &request(2)).await.events(), [event]);
    assert_eq!(store.gaps().await, Some((0, 0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_rolled_back_between_the_read_and_the_look_at_the_locks_is_closed_by_the_next_read() {
    let log = Log::fresh(8).await;
    let store = log.store();
    let (late, _) = with_an_id_between(&log, "late").await;
    let first = Work::claim(&store, &request(2)).await;
    late.rollback().await.unwrap();
    let second = Work::claim(&store, &request(2)).await;
    assert_eq!(second.keys(), ["c", "d"]);
    assert!(Work::claim(&store, &request(2)).await.keys().is_empty());
    assert_eq!(store.gaps().await, Some((0, 1)));
    first.settle(&store, &[]).await;
    second.settle(&store, &[]).await;
    store.close().await.unwrap();
    assert_eq!(log.cursor().await, 5);
}

/// Its second row is beyond what was read ahead.
#[tokio::test(flavor = "multi_thread")]
async fn the_rows_of_a_transaction_keep_their_order_whatever_was_read_ahead() {
    let log = Log::fresh(8).await;
    let store = log.store();
    let (mut late, event) = with_an_id_between(&log, "late").await;
    let first = Work::claim(&store, &request(2)).await;
    let next = log.append(late.acquire().await.unwrap(), "late").await;
    assert_eq!(Work::claim(&store, &request(2)).await.keys(), ["c", "d"]);
    for _ in 0..3 {
        assert!(Work::claim(&store, &request(2)).await.keys().is_empty());
        assert_eq!(store.gaps().await.unwrap().0, 1, "it is held");
    }
    late.commit().await.unwrap();
    assert_eq!(Work::claim(&store, &request(2)).await.events(), [event, next]);
    first.settle(&store, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_ahead_waits_behind_a_failure_of_its_lane() {
    let log = Log::fresh(8).await;
    let store = log.store();
    for key in ["a", "b", "a", "c"] {
        log.append(&log.pool, key).await;
    }
    let first = Work::claim(&store, &request(2)).await;
    assert_eq!(first.keys(), ["a", "b"]);
    first.settle(&store, &[(0, retry(60))]).await;
    assert_eq!(Work::claim(&store, &request(9)).await.keys(), ["c"]);
    assert_eq!(log.failed().await, 2, "the second of the lane stands behind the first");
    // An operator removes them; rows go straight on within a second or so.
    log.run("delete from outbox_failed").await;
    log.append(&log.pool, "a").await;
    assert_eq!(Work::claim(&store, &request(9)).await.keys(), ["a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_somebody_else_writes_holds_its_lane() {
    let log = Log::fresh(8).await;
    let store = log.store();
    log.run(
        "insert into outbox_failed (event_id, event_type, source, aggregate_type, aggregate_id, payload, next_retry_at)
         values ('x', 'loopers.order.created.v1', 's', 'Order', 'a', '{}', now() + interval '1 hour')",
    )
    .await;
    log.append(&log.pool, "a").await;
    log.append(&log.pool, "b").await;
    assert_eq!(Work::claim(&store, &request(9)).await.keys(), ["b"]);
    assert_eq!(log.failed().await, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_lost_its_lock_hands_out_nothing_of_what_it_had_read_ahead() {
    let log = Log::fresh(8).await;
    let (store, second) = (log.store(), log.store());
    for key in 0..6 {
        log.append(&log.pool, &key.to_string()).await;
    }
    assert_eq!(Work::claim(&store, &request(2)).await.keys().len(), 2);
    let ended = "select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and granted
         and ((classid::bigint << 32) | objid::bigint)
            = hashtextextended('posthaste:log:' || 'outbox_cursor'::regclass::oid::text, 0)";
    assert_eq!(log.pool.fetch_all(ended).await.unwrap().len(), 1);
    eventually("the second one follows", async || {
        !Work::claim(&second, &request(4)).await.keys().is_empty()
    })
    .await;
    let lost = store.claim(&request(2)).await;
    assert!(lost.is_err() || lost.is_ok_and(|claim| claim.messages.is_empty()));
    assert!(
        store.claim(&request(2)).await.unwrap().messages.is_empty(),
        "the second one reads"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_goes_on_behind_its_rows_in_flight_where_order_is_kept_by_the_publisher() {
    let log = Log::fresh(8).await;
    let store = log.store();
    for _ in 0..6 {
        log.append(&log.pool, "hot").await;
    }
    let mut pipelined = request(2);
    pipelined.pipelined = true;
    let [first, second] = [
        Work::claim(&store, &pipelined).await,
        Work::claim(&store, &pipelined).await,
    ];
    assert_eq!((first.keys().len(), second.keys().len()), (2, 2));
    assert!(
        Work::claim(&store, &request(2)).await.keys().is_empty(),
        "not where it is not"
    );
    // The third was not delivered: nothing of the lane passes it.
    first.settle(&store, &[]).await;
    let released = posthaste_core::lifecycle::Verdict::Released;
    second.settle(&store, &[(0, released.clone()), (1, released)]).await;
    let again = Work::claim(&store, &pipelined).await;
    assert_eq!(again.events(), second.events());
}

/// What is decoded by place is what is decoded by name.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_is_the_same_message_whichever_way_it_was_read() {
    let log = Log::fresh(8).await;
    log.run(
        "insert into outbox (event_id, event_type, source, aggregate_type, aggregate_id, payload)
         values ('e-1', 'loopers.order.created.v1', 's', 'Order', '42', '{\"a\": 1}'),
             ('', 'no type', '', '', '', '[]'), ('e-3', 'loopers.order.created.v1', 's', 'Order', '42', '\"x\"')",
    )
    .await;
    let by_place = Work::claim(&log.store(), &request(9)).await.claim.messages;
    // Beside a failure all of the log is looked at.
    let store = log.store();
    log.run(
        "insert into outbox_failed (event_id, event_type, source, aggregate_type, aggregate_id, payload)
         values ('x', 't', 's', 'Other', '1', '{}')",
    )
    .await;
    let mut no_retries = request(9);
    no_retries.max_attempts = 1;
    let mut by_name = Vec::new();
    eventually("the first reader's lock is free", async || {
        by_name = Work::claim(&store, &no_retries).await.claim.messages;
        !by_name.is_empty()
    })
    .await;
    assert_eq!(by_place.len(), 3);
    assert_eq!(by_place, by_name);
}
