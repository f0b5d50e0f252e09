//! A sequence that was set back, and what the error says about it.

use std::time::Duration;

use posthaste_core::RelayStore;
use posthaste_core::lifecycle::{LeaseToken, Verdict};
use posthaste_core::store::Scope;

use crate::fixture::{Log, numbered, payloads, request};

/// What docs/log-layout.md says about it.
const RENUMBER: &str = "
    update log l set seq = n.seq
    from (
        select o.id, nextval('log_shard_0_seq') as seq
        from (select id from log where shard = 0 and seq <= 5 and created_at > $when order by seq) o
    ) n
    where l.shard = 0 and l.seq <= 5 and l.id = n.id;
    update log_segments set settled_at = null where dropped_at is null";

#[tokio::test]
async fn a_sequence_that_was_set_back_is_named_with_what_sets_it_right() {
    for set_back in [
        "select setval('log_shard_0_seq', 1, false)",
        "truncate log restart identity",
    ] {
        let log = Log::fresh().await;
        log.enqueue(numbered(0..5)).await;
        let token = LeaseToken::new();
        for one in log.claim_as(token, 10).await {
            log.settle(token, one.message.id, Verdict::Delivered).await;
        }
        log.store.pass_time(Duration::from_secs(1));
        assert!(log.claim(10).await.is_empty());
        log.store.close().await.unwrap();
        let when: String = sqlx::query_scalar("select quote_literal(clock_timestamp()) || '::timestamptz'")
            .fetch_one(&log.pool)
            .await
            .unwrap();
        log.run(set_back).await;
        log.enqueue(numbered(5..7)).await;

        let log = log.after_a_crash();
        let refused = log.store.claim(&request(token, 10)).await.unwrap_err();
        let text = refused.to_string();
        for part in ["shard 0", "up to number 5", "stands at 2", "select setval('"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("cursor") && !text.contains("map"), "{text}");
        assert!(refused.remedy.unwrap().contains("docs/log-layout.md"), "{refused:?}");
        let checked = log.store.check_for(&Scope::default()).await.unwrap_err().to_string();
        assert_eq!(checked, text);

        // What it names, and what the documentation has besides.
        let statement = text.split('`').find(|part| part.starts_with("select setval")).unwrap();
        log.run(statement).await;
        log.run(&RENUMBER.replace("$when", &when)).await;
        // Once more finds nothing.
        log.run(&RENUMBER.replace("$when", &when)).await;
        assert_eq!(payloads(&log.claim(10).await), ["5", "6"], "{set_back}");
        log.store.close().await.unwrap();
        assert_eq!(log.count("select nextval('log_shard_0_seq')").await, 8);
    }
}
