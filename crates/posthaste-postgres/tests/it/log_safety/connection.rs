//! What a reader remembers outlives its connection.

use std::time::{Duration, Instant};

use posthaste_core::RelayStore;
use posthaste_core::store::ClaimRequest;
use tokio::time::sleep;

use super::eventually;

use crate::support::log::{Log, Work, request, retry};

/// Ends the reader's connection, as an administrator or a network would.
pub(super) async fn cut(log: &Log) {
    let ended = log.number(
        "select count(pg_terminate_backend(pid)) from pg_locks where locktype = 'advisory' and granted
         and ((classid::bigint << 32) | objid::bigint)
            = hashtextextended('posthaste:log:' || 'outbox_cursor'::regclass::oid::text, 0)",
    );
    assert_eq!(ended.await, 1);
}

#[tokio::test]
async fn a_connection_that_is_cut_costs_no_repetition() {
    let log = Log::fresh(4).await;
    let mut open = log.pool.begin().await.unwrap();
    log.append(&mut *open, "open").await;
    for order in 0..50 {
        log.append(&log.pool, &order.to_string()).await;
    }
    let store = log.store();
    let work = Work::claim(&store, &request(100)).await;
    assert_eq!(work.events().len(), 50);
    work.settle(&store, &[]).await;
    for n in 50..53 {
        cut(&log).await;
        let event = log.append(&log.pool, &n.to_string()).await;
        let mut claimed = Vec::new();
        eventually("it reads on", async || match store.claim(&request(100)).await {
            Ok(claim) => {
                claimed = claim.messages;
                true
            }
            Err(_) => false,
        })
        .await;
        assert_eq!(claimed.len(), 1, "the gap holds the cursor, and nothing is sent again");
        assert_eq!(claimed[0].message.effective_event_id(), event);
    }
    assert_eq!(log.cursor().await, 0);
}

#[tokio::test]
async fn verdicts_that_come_after_a_cut_are_written_on_the_next_connection() {
    let log = Log::fresh(4).await;
    for order in 0..3 {
        log.append(&log.pool, &order.to_string()).await;
    }
    let store = log.store();
    let work = Work::claim(&store, &request(10)).await;
    cut(&log).await;
    assert_eq!(work.settle(&store, &[(1, retry(60))]).await, [], "none is lost");
    assert_eq!(log.texts("select aggregate_id from outbox_failed").await, ["1"]);
    assert!(Work::claim(&store, &request(10)).await.events().is_empty());
    store.close().await.unwrap();
    assert_eq!(log.cursor().await, 3);
}

/// If another one read in the meantime, the cursor says so.
#[tokio::test]
async fn what_a_reader_remembers_is_void_once_another_one_moved_the_cursor() {
    let log = Log::fresh(4).await;
    let mut open = log.pool.begin().await.unwrap();
    log.append(&mut *open, "open").await;
    log.append(&log.pool, "1").await;
    let (first, second) = (log.store(), log.store());
    let work = Work::claim(&first, &request(10)).await;
    work.settle(&first, &[]).await;
    cut(&log).await;
    open.rollback().await.unwrap();
    let work = Work::claim(&second, &request(10)).await;
    assert_eq!(work.keys(), ["1"], "the second one begins at the cursor");
    work.settle(&second, &[]).await;
    eventually("the gap is closed", async || {
        Work::claim(&second, &request(10)).await;
        log.cursor().await == 2
    })
    .await;
    second.close().await.unwrap();
    let event = log.append(&log.pool, "2").await;
    let mut claimed = Vec::new();
    eventually("the first one reads again", async || {
        claimed = match first.claim(&request(10)).await {
            Ok(claim) => claim.messages,
            Err(_) => Vec::new(),
        };
        !claimed.is_empty()
    })
    .await;
    assert_eq!(claimed[0].message.effective_event_id(), event);
    assert_eq!(first.gaps().await, Some((0, 0)), "with nothing left of what it knew");
}

/// A call that was cut short leaves its answer on the connection; the reader takes another one.
#[tokio::test]
async fn a_claim_that_is_given_up_half_way_loses_nothing() {
    let log = Log::fresh(4).await;
    let store = log.store();
    assert!(Work::claim(&store, &request(10)).await.events().is_empty());
    let event = log.append(&log.pool, "1").await;
    let mut lock = log.pool.begin().await.unwrap();
    sqlx::raw_sql("lock table outbox in access exclusive mode")
        .execute(&mut *lock)
        .await
        .unwrap();
    let hung = tokio::time::timeout(Duration::from_millis(300), store.claim(&request(10))).await;
    assert!(hung.is_err());
    lock.rollback().await.unwrap();
    assert_eq!(Work::claim(&store, &request(10)).await.events(), [event]);
}

/// An open circuit claims nothing, so nothing else would be heard of the reader.
#[tokio::test]
async fn a_reader_with_nothing_to_do_keeps_its_seat_as_long_as_it_says_that_it_lives() {
    let log = Log::fresh(4).await;
    let (first, second) = (log.store(), log.store());
    // Long enough for a machine that stands still now and then.
    let lease = Duration::from_secs(10);
    let brief = ClaimRequest { lease, ..request(1) };
    assert!(Work::claim(&first, &brief).await.events().is_empty());
    log.append(&log.pool, "1").await;
    let begun = Instant::now();
    while begun.elapsed() < lease * 3 / 2 {
        sleep(Duration::from_millis(500)).await;
        first.keep_alive().await.unwrap();
        // Its own connection has the longer lease of most tests.
        assert!(
            Work::claim(&second, &request(1)).await.events().is_empty(),
            "the first one reads"
        );
    }
}
