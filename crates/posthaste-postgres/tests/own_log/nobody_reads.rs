//! What waits in a log that nobody reads, as relays of the queue beside it see it.

use chrono::Utc;
use posthaste_core::lifecycle::{LeaseToken, Verdict};
use posthaste_core::store::OutboxStats;
use posthaste_core::{Message, RelayStore, StoreError};
use posthaste_postgres::PostgresStore;

use crate::fixture::{Log, numbered};
use crate::support;

impl Log {
    /// What the relay of a queue finds.
    async fn left(&self) -> OutboxStats {
        let schema = self.store.map().schema().unwrap().as_str().to_owned();
        let queue = PostgresStore::in_schema(self.pool.clone(), &schema).unwrap();
        queue.left_in_log().await.unwrap()
    }
}

#[tokio::test]
async fn what_waits_beside_a_log_is_left_in_it_while_nobody_reads() {
    let log = Log::fresh().await;
    assert_eq!(log.left().await, OutboxStats::default());
    let later = Utc::now() + chrono::Duration::hours(1);
    log.enqueue(vec![Message::new("orders", "later").key("k").not_before(later)])
        .await;
    log.run("update log_failed set created_at = now() - interval '90 s'")
        .await;
    let left = log.left().await;
    assert_eq!((left.pending, left.waiting, left.processing), (1, 1, 0));
    assert!(left.oldest_seconds >= 90.0, "{left:?}");
    let error = StoreError::refuse_left_in_log(&left).unwrap_err();
    assert!(error.message.contains("1 message waits in the log"), "{error}");

    assert!(log.claim(10).await.is_empty());
    assert_eq!(log.left().await, OutboxStats::default(), "there is a reader");
    log.store.close().await.unwrap();
    assert_eq!(log.left().await.pending, 1);

    log.run("update log_failed set died_at = now()").await;
    assert_eq!(log.left().await, OutboxStats::default(), "nobody waits for the dead");
}

#[tokio::test]
async fn rows_that_no_reader_has_settled_are_left_and_no_numbers_without_rows() {
    let log = Log::fresh().await;
    let token = LeaseToken::new();
    log.enqueue(numbered(0..7)).await;
    let claimed = log.claim_as(token, 5).await;
    assert_eq!(claimed.len(), 5);
    for (place, claimed) in claimed.iter().enumerate() {
        let verdict = if place % 2 == 0 {
            Verdict::Delivered
        } else {
            Verdict::Released
        };
        log.settle(token, claimed.message.id, verdict).await;
    }
    log.store.close().await.unwrap();
    log.run("begin; insert into log (topic, payload) values ('orders', 'undone'); rollback")
        .await;
    let left = log.left().await;
    assert_eq!(
        (left.pending, left.waiting),
        (4, 0),
        "two that were put back, and two that were not read"
    );
    // Of every shard.
    log.run("insert into log (shard, seq, topic, payload) values (1, (1::bigint << 44) + 1, 'orders', 'of another')")
        .await;
    log.run("insert into log_shards (shard, generation, position) values (1, 1, 1::bigint << 44)")
        .await;
    assert_eq!(log.left().await.pending, 5);
    log.run("update log_shards set owner = gen_random_uuid(), leased_until = now() + interval '1 min' where shard = 1")
        .await;
    assert_eq!(
        log.left().await,
        OutboxStats::default(),
        "whoever reads one takes the others, too"
    );
}

#[tokio::test]
async fn nothing_is_left_in_a_log_that_is_not_there() {
    let queue = PostgresStore::in_schema(support::pool(1).await, &support::fresh_schema()).unwrap();
    assert_eq!(queue.left_in_log().await.unwrap(), OutboxStats::default());
}
