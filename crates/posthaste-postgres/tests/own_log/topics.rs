//! What is pending, by topic.

use posthaste_core::lifecycle::{LeaseToken, Verdict};
use posthaste_core::store::TopicBacklog;
use posthaste_core::{Message, RelayStore};

use crate::fixture::Log;

async fn topics(log: &Log) -> Vec<TopicBacklog> {
    log.store.table_gauges("default").await.unwrap().topics
}

fn counts(topics: &[TopicBacklog]) -> Vec<(&str, u64)> {
    topics
        .iter()
        .map(|topic| (topic.topic.as_str(), topic.pending))
        .collect()
}

#[tokio::test]
async fn gauges_name_the_topics_with_the_most_first() {
    let log = Log::fresh().await;
    assert_eq!(topics(&log).await, []);
    let message = |topic: &str| Message::new(topic, "x");
    log.enqueue(vec![message("few"), message("many"), message("many"), message("many")])
        .await;
    log.run("update log set created_at = created_at - interval '1 hour' where topic = 'few'")
        .await;
    let before = topics(&log).await;
    assert_eq!(counts(&before), [("many", 3), ("few", 1)]);
    assert!(before[0].oldest_seconds < 600.0 && (3_600.0..4_200.0).contains(&before[1].oldest_seconds));
    let token = LeaseToken::new();
    let claimed = log.claim_as(token, 10).await;
    assert_eq!(claimed.len(), 4);
    assert_eq!(topics(&log).await, [], "what is in flight is not pending");
    let retry = Verdict::Retry {
        delay: std::time::Duration::from_hours(1),
        error: "no".to_owned(),
    };
    let verdicts = [retry, Verdict::Dead { error: "no".to_owned() }, Verdict::Delivered];
    for (one, verdict) in claimed.iter().zip(verdicts) {
        log.settle(token, one.message.id, verdict).await;
    }
    log.store.pass_time(std::time::Duration::from_secs(1));
    assert!(log.claim(10).await.is_empty());
    assert_eq!(counts(&topics(&log).await), [("few", 1)], "it waits for another try");
    log.store.close().await.unwrap();
}

/// As much is looked at in each shard, so that the backlog of one hides no topic of another.
#[tokio::test]
async fn of_a_large_backlog_ten_thousand_rows_are_looked_at_in_all_shards_alike() {
    let log = Log::fresh().await;
    log.store.tables().unwrap().raise_shards(4).await.unwrap();
    // All of one key, so of one shard, and then one event of another key for each shard.
    log.run(
        "insert into log (topic, ordering_key, payload) select 'backlog', 'k', 'p' from generate_series(1, 30000);
         insert into log (topic, ordering_key, payload)
         select 'shard ' || s, (select i::text from generate_series(1, 1000) i where log_hash(i::text) % 4 = s limit 1), 'p'
         from generate_series(0, 3) s;
         analyze log",
    )
    .await;
    let found = topics(&log).await;
    let backlog = found.iter().find(|topic| topic.topic == "backlog").unwrap().pending;
    assert!((2_000..=10_000).contains(&backlog), "{backlog}");
    // But for that behind the backlog.
    assert_eq!(found.len(), 4, "{found:?}");
    assert_eq!(log.store.stats("default").await.unwrap().pending, 30_004);
}
