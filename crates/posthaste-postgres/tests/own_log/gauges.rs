//! How many messages are pending, as a relay counts them every few seconds.

use posthaste_core::RelayStore;
use posthaste_core::store::OutboxStats;

use crate::dead_letters::{most_rows, plan};
use crate::fixture::{Log, numbered};

async fn gauges(log: &Log) -> OutboxStats {
    log.store.table_gauges("default").await.unwrap().stats
}

#[tokio::test]
async fn a_backlog_of_many_shards_is_told_by_its_numbers_and_its_age_by_its_first_rows() {
    let log = Log::fresh().await;
    log.raise(4).await;
    // All of one key, so of one shard, and then one event of another key for each shard.
    log.run(
        "insert into log (topic, ordering_key, payload) select 'backlog', 'k', 'p' from generate_series(1, 30000);
         insert into log (topic, ordering_key, payload)
         select 'shard ' || s, (select i::text from generate_series(1, 1000) i where log_hash(i::text) % 4 = s limit 1), 'p'
         from generate_series(0, 3) s;
         update log set created_at = created_at - interval '1 hour'
         where shard = (select max(shard) from log where shard not in (select shard from log where ordering_key = 'k'))",
    )
    .await;
    let found = gauges(&log).await;
    assert!((30_004..=30_010).contains(&found.pending), "{found:?}");
    let counted = log.store.stats("default").await.unwrap();
    assert_eq!(counted.pending, 30_004);
    for stats in [found, counted] {
        assert!((3_600.0..4_200.0).contains(&stats.oldest_seconds), "{stats:?}");
        assert_eq!((stats.waiting, stats.processing, stats.dead), (0, 0, 0));
    }
}

/// Beyond the bound they count: nothing but a look at each row tells which numbers have one.
#[tokio::test]
async fn up_to_the_bound_numbers_that_were_rolled_back_do_not_count() {
    let log = Log::fresh().await;
    log.enqueue(numbered(0..10)).await;
    log.run("begin; insert into log (topic, payload) select 't', 'p' from generate_series(1, 500); rollback")
        .await;
    assert_eq!(gauges(&log).await.pending, 10);
    log.enqueue(numbered(10..10_000)).await;
    assert_eq!(gauges(&log).await.pending, 10_000);
    log.enqueue(numbered(10_000..10_001)).await;
    assert_eq!(gauges(&log).await.pending, 10_501);
    assert_eq!(log.store.stats("default").await.unwrap().pending, 10_001);
}

/// Proves pitfall 28.
#[tokio::test]
async fn of_a_large_backlog_no_more_rows_are_read_than_are_counted() {
    let log = Log::fresh().await;
    log.run(
        "analyze log, log_failed;
         insert into log (topic, ordering_key, payload)
         select 'orders', 'k' || n % 100, convert_to(repeat('x', 100), 'UTF8') from generate_series(1, 200000) n",
    )
    .await;
    for statistics in ["of an empty table", "true"] {
        for mode in ["generic", "custom"] {
            let settings = format!("set local plan_cache_mode = force_{mode}_plan");
            let arguments = "'{1}', '{17592186044415}', 10, '{}', 10000, 1";
            let plan = plan(&log, &settings, "stats", arguments).await;
            assert!(
                most_rows(&plan) <= 10_001,
                "statistics: {statistics}, plan: {mode}\n{plan}"
            );
        }
        log.run("analyze log, log_failed").await;
    }
}
