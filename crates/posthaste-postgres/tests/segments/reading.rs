//! Readers look at no segment in which everything is settled, however many of them are kept.

use std::time::Duration;

use posthaste_core::RelayStore as _;

use super::Log;
use crate::support::log::request;

const KEPT: Option<Duration> = Some(Duration::from_hours(1));

async fn payloads(log: &Log) -> Vec<String> {
    let claimed = log.store.claim(&request(100)).await.unwrap().messages;
    claimed
        .iter()
        .map(|claimed| String::from_utf8(claimed.message.payload.to_vec()).unwrap())
        .collect()
}

/// Fills a segment, and settles all of it.
async fn settled_segment(log: &Log) {
    log.append(3).await;
    log.settle_all().await;
    assert!(log.tables.tend_segments(KEPT).await.unwrap().rotated);
}

/// Each of them would be locked, planned for and searched by every read, and there is room for some thousand locks.
#[tokio::test]
async fn segments_that_are_settled_are_neither_read_nor_locked() {
    let log = Log::fresh(6).await;
    for _ in 0..20 {
        settled_segment(&log).await;
    }
    let mut maintenance = log.pool().begin().await.unwrap();
    let lock = "lock table {schema}.log_1, {schema}.log_10 in access exclusive mode";
    sqlx::query(log.sql(lock)).execute(&mut *maintenance).await.unwrap();
    log.run("insert into {schema}.log (topic, ordering_key, payload) values ('t', 'k', 'fresh')")
        .await;
    assert_eq!(payloads(&log).await, ["fresh"]);
    assert_eq!(log.store.stats("default").await.unwrap().pending, 0, "it is in flight");
    maintenance.rollback().await.unwrap();
}

#[tokio::test]
async fn a_reader_that_was_set_back_reads_settled_segments_again() {
    let log = Log::fresh(6).await;
    settled_segment(&log).await;
    settled_segment(&log).await;
    log.run("update {schema}.log_shards set state = '4;', position = 4")
        .await;
    assert_eq!(payloads(&log).await, ["p", "p"], "the last two of six");
}
