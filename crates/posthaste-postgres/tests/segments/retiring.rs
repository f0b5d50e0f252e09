//! When a segment may be dropped, and when not.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use posthaste_core::store::{AdminStore, PurgeRequest, RelayStore};
use sqlx::{Connection, Executor};
use tokio::time::timeout;

use crate::Log;

const AT_ONCE: Option<Duration> = Some(Duration::ZERO);

#[tokio::test]
async fn a_segment_with_one_undelivered_row_is_never_dropped() {
    let log = Log::fresh(4).await;
    log.append(100).await;
    assert!(log.tables.tend_segments(AT_ONCE).await.unwrap().rotated);
    let faults = [
        // The last one was not read.
        ("update {schema}.log_shards set state = '99;'", "select 1"),
        // One in the middle is in flight, or not proved to be none.
        ("update {schema}.log_shards set state = '100;57-57'", "select 1"),
        // One waits for another try.
        (
            "update {schema}.log_shards set state = '100;';
             insert into {schema}.log_failed (shard, log_id, event_id, topic, payload, attempts)
             select shard, seq, id, topic, payload, 1 from {schema}.log where seq = 33",
            "delete from {schema}.log_failed",
        ),
        // One is of a shard that nobody reads.
        (
            "insert into {schema}.log (segment, shard, seq, topic, payload) values (1, 9, 1, 't', 'p')",
            "delete from {schema}.log where shard = 9",
        ),
    ];
    for (fault, remedy) in faults {
        log.run(fault).await;
        for _ in 0..3 {
            let upkeep = log.tables.tend_segments(AT_ONCE).await.unwrap();
            assert_eq!((upkeep.dropped, upkeep.in_use), (0, 0), "{fault}");
        }
        assert!(log.segments().await.contains(&1), "{fault}");
        log.run(remedy).await;
    }
    // A dead one has given up its place: it is whole in the table beside.
    log.run(
        "insert into {schema}.log_failed (shard, log_id, event_id, topic, payload, died_at)
         select shard, seq, id, topic, payload, now() from {schema}.log where seq = 33",
    )
    .await;
    let upkeep = log.tables.tend_segments(AT_ONCE).await.unwrap();
    assert_eq!((upkeep.dropped, upkeep.rows), (1, 100));
    assert!(!log.segments().await.contains(&1));
}

#[tokio::test]
async fn a_reader_that_was_set_back_keeps_what_it_will_read_again() {
    let log = Log::fresh(4).await;
    log.append(10).await;
    log.settle_all().await;
    let kept = Some(Duration::from_hours(1));
    assert!(log.tables.tend_segments(kept).await.unwrap().rotated);
    assert_eq!(
        log.count("select count(*) from {schema}.log_segments where settled_at is not null")
            .await,
        1
    );
    log.run("update {schema}.log_shards set state = '5;', position = 5")
        .await;
    assert_eq!(log.tables.tend_segments(AT_ONCE).await.unwrap().dropped, 0);
    log.settle_all().await;
    assert_eq!(log.tables.tend_segments(AT_ONCE).await.unwrap().dropped, 1);
}

#[tokio::test]
async fn settled_segments_stay_for_the_retention() {
    let log = Log::fresh(4).await;
    log.append(10).await;
    log.settle_all().await;
    let kept = Some(Duration::from_hours(1));
    for retention in [None, kept, kept] {
        assert_eq!(log.tables.tend_segments(retention).await.unwrap().dropped, 0);
    }
    assert!(log.segments().await.contains(&1));
    log.run("update {schema}.log_segments set settled_at = settled_at - interval '61 min'")
        .await;
    assert_eq!(log.tables.tend_segments(kept).await.unwrap().rows, 10);
    assert!(!log.segments().await.contains(&1));
}

#[tokio::test]
async fn the_janitor_looks_after_segments() {
    let log = Log::fresh(4).await;
    log.append(10).await;
    log.settle_all().await;
    let request = PurgeRequest::older_than(Duration::from_hours(1), 1_000);
    assert_eq!(log.store.purge(&request).await.unwrap().delivered, 0);
    log.run("update {schema}.log_segments set settled_at = settled_at - interval '61 min'")
        .await;
    assert_eq!(log.store.purgeable(&request).await.unwrap().delivered, 10);
    assert_eq!(log.store.purge(&request).await.unwrap().delivered, 10);
    assert_eq!(log.store.purgeable(&request).await.unwrap().delivered, 0);
    assert!(!log.segments().await.contains(&1));
}

#[tokio::test]
async fn an_open_transaction_keeps_its_segment_and_the_ones_that_it_does_not_know_closed() {
    let log = Log::fresh(6).await;
    let insert = || log.sql("insert into {schema}.log (topic, payload) values ('t', 'p')");
    let mut open = log.pool().begin().await.unwrap();
    sqlx::query(insert()).execute(&mut *open).await.unwrap();
    // Segments 2 and 3 were there before it, so that rows go on there; what comes after waits for it.
    let mut rotated = 0;
    for _ in 0..10 {
        log.append(10).await;
        log.settle_all().await;
        let upkeep = log.tables.tend_segments(AT_ONCE).await.unwrap();
        rotated += u32::from(upkeep.rotated);
        assert_eq!(upkeep.dropped, 0, "it may still write to the first one");
        sqlx::query(insert()).execute(&mut *open).await.unwrap();
    }
    assert_eq!(rotated, 2);
    assert!(log.tables.tend_segments(AT_ONCE).await.unwrap().held_up);
    open.commit().await.unwrap();
    log.settle_all().await;
    log.tables.tend_segments(AT_ONCE).await.unwrap();
    let upkeep = log.tables.tend_segments(AT_ONCE).await.unwrap();
    assert!(!upkeep.held_up);
    let dropped = log
        .count("select count(*) from {schema}.log_segments where dropped_at is not null")
        .await;
    assert!(dropped >= 2, "{dropped} were dropped after it had ended");
}

#[tokio::test]
async fn a_prepared_transaction_keeps_its_segment_and_stops_nothing_else() {
    let log = Log::fresh(6).await;
    let gid = format!("'{}'", log.schema);
    let mut one = log.pool().acquire().await.unwrap();
    one.execute(sqlx::raw_sql(log.sql(&format!(
        "begin; insert into {{schema}}.log (topic, payload) values ('t', 'prepared'); prepare transaction {gid}"
    ))))
    .await
    .unwrap();
    let mut rotated = 0;
    for _ in 0..12 {
        log.append(10).await;
        log.settle_all().await;
        rotated += u32::from(log.tables.tend_segments(AT_ONCE).await.unwrap().rotated);
    }
    assert!(
        rotated > 8,
        "it writes nothing more, so nothing waits for it: {rotated}"
    );
    let there = log.without(&[2, 3]).await;
    assert!(there.contains(&1), "its row is in the first segment");
    log.run(&format!("commit prepared {gid}")).await;
    assert_eq!(
        log.count("select count(*) from {schema}.log where payload = 'prepared'")
            .await,
        1
    );
    log.settle_all().await;
    log.without(&[1]).await;
}

/// How long it may take to drop segments on a machine with other work: each waits for whoever may still see it.
const PATIENCE: Duration = Duration::from_mins(1);

impl Log {
    /// Tends to the segments until these are gone, and says which are left.
    async fn without(&self, segments: &[i64]) -> BTreeSet<i64> {
        let begun = Instant::now();
        loop {
            let there = self.segments().await;
            if segments.iter().all(|segment| !there.contains(segment)) {
                return there;
            }
            assert!(begun.elapsed() < PATIENCE, "{there:?}");
            self.tables.tend_segments(AT_ONCE).await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_open_snapshot_stops_neither_writers_nor_rotation() {
    let log = Log::fresh(6).await;
    log.append(10).await;
    let mut reader = log.pool().acquire().await.unwrap();
    let mut snapshot = reader
        .begin_with("begin isolation level repeatable read")
        .await
        .unwrap();
    let before: i64 = sqlx::query_scalar(log.sql("select count(*) from {schema}.log"))
        .fetch_one(&mut *snapshot)
        .await
        .unwrap();
    let (mut rotated, mut dropped, mut in_use) = (0, 0, 0);
    for _ in 0..4 {
        let insert = log.append(10);
        timeout(Duration::from_secs(2), insert)
            .await
            .expect("no writer waits for the snapshot");
        log.settle_all().await;
        // A writer at the same moment as the upkeep.
        let (upkeep, written) = tokio::join!(
            log.tables.tend_segments(AT_ONCE),
            timeout(Duration::from_millis(400), log.append(10))
        );
        written.expect("no writer waits for the upkeep");
        let upkeep = upkeep.unwrap();
        rotated += u32::from(upkeep.rotated);
        dropped += upkeep.dropped;
        in_use += upkeep.in_use;
    }
    assert!(rotated >= 3, "{rotated}");
    assert_eq!(dropped, 0, "the snapshot may still read them");
    assert!(in_use > 0);
    let again: i64 = sqlx::query_scalar(log.sql("select count(*) from {schema}.log"))
        .fetch_one(&mut *snapshot)
        .await
        .unwrap();
    assert_eq!(before, again, "the snapshot still reads them");
    snapshot.rollback().await.unwrap();
    log.settle_all().await;
    log.without(&[1, 2, 3]).await;
}

#[tokio::test]
async fn an_empty_segment_is_not_closed_and_there_are_always_some_ahead() {
    let log = Log::fresh(4).await;
    for _ in 0..5 {
        assert!(!log.tables.tend_segments(AT_ONCE).await.unwrap().rotated);
    }
    assert_eq!(log.segments().await, (1..=5).collect());
    log.append(1).await;
    assert!(log.tables.tend_segments(AT_ONCE).await.unwrap().rotated);
    assert_eq!(
        log.count("select pg_sequence_last_value('{schema}.log_segment'::regclass)")
            .await,
        2
    );
}
