//! The view in which operators see each event with its state.

use std::collections::BTreeMap;
use std::time::Duration;

use posthaste_core::lifecycle::State;
use posthaste_core::store::{AdminStore, Filter, PurgeRequest, RelayStore};
use sqlx::Row;

use crate::Log;

#[tokio::test]
async fn each_event_is_shown_once_with_its_state() {
    let log = Log::fresh(4).await;
    log.append(10).await;
    log.run(
        "insert into {schema}.log_failed (shard, log_id, event_id, topic, payload, attempts, last_error, died_at)
         select shard, seq, id, topic, payload, 3, 'refused', case when seq = 4 then now() end
         from {schema}.log where seq in (3, 4);
         update {schema}.log_shards set state = '8;2-2,6-7', position = 1",
    )
    .await;
    let rows = log
        .rows("select seq, state from {schema}.outbox_log order by seq")
        .await;
    let states: BTreeMap<i64, String> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(rows.len(), 10);
    let of = |state: &str| {
        states
            .iter()
            .filter(|(_, s)| *s == state)
            .map(|(seq, _)| *seq)
            .collect::<Vec<_>>()
    };
    assert_eq!(of("delivered"), [1, 5, 8]);
    assert_eq!(of("pending"), [2, 6, 7, 9, 10]);
    assert_eq!(of("waiting"), [3]);
    assert_eq!(of("dead"), [4]);
    // Also when the row itself is gone with its segment, or was never there because it has a time of its own.
    log.run(
        "truncate {schema}.log;
         insert into {schema}.log_failed (shard, log_id, event_id, topic, payload, next_attempt_at)
         values (0, 11, gen_random_uuid(), 't', 'later', now() + interval '1 day')",
    )
    .await;
    let rows = log.rows("select state from {schema}.outbox_log order by seq").await;
    let left: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(left, ["waiting", "dead", "waiting"]);
}

#[tokio::test]
async fn an_event_of_a_closed_segment_is_found_without_reading_all_of_it() {
    let log = Log::fresh(4).await;
    // Ids that go up, as those of the library do.
    log.run(
        "insert into {schema}.log (id, topic, payload, created_at)
         select ('019' || lpad(to_hex(i), 29, '0'))::uuid, 't', repeat('p', 300)::bytea, now() - i * interval '1 s'
         from generate_series(1, 50000) i",
    )
    .await;
    log.settle_all().await;
    log.tables.tend_segments(None).await.unwrap();
    log.run("vacuum analyze {schema}.log_1").await;
    for condition in [
        format!("id = '019{:0>29}'", "4e20"),
        "created_at between now() - interval '2 h' and now() - interval '110 min'".to_owned(),
    ] {
        let explain =
            format!("explain (analyze, format text) select id, state from {{schema}}.outbox_log where {condition}");
        let plan: Vec<String> = log.rows(&explain).await.iter().map(|row| row.get(0)).collect();
        let plan = plan.join("\n");
        assert!(plan.contains("Bitmap Index Scan on log_1_created_at_id_idx"), "{plan}");
    }
}

#[tokio::test]
async fn segments_that_wait_to_be_dropped_are_still_shown() {
    let log = Log::fresh(4).await;
    log.append(10).await;
    log.settle_all().await;
    log.tables.tend_segments(Some(Duration::from_hours(1))).await.unwrap();
    let delivered = "select count(*) from {schema}.outbox_log where state = 'delivered'";
    assert_eq!(log.count(delivered).await, 10);
    log.tables.tend_segments(Some(Duration::ZERO)).await.unwrap();
    assert_eq!(log.count(delivered).await, 0);
}

/// By whom, and how, does not matter.
#[tokio::test]
async fn what_was_discarded_is_not_shown_as_delivered() {
    let log = Log::fresh(4).await;
    log.append(10).await;
    log.settle_all().await;
    log.run(
        "insert into {schema}.log_failed (shard, log_id, event_id, topic, payload, attempts, died_at)
         select shard, seq, id, topic, payload, 3, case when seq < 8 then now() - seq * interval '1 day' end
         from {schema}.log where seq between 3 and 8",
    )
    .await;
    let of = async |state: &str| -> Vec<i64> {
        let sql = format!("select seq from {{schema}}.outbox_log where state = '{state}' order by seq");
        log.rows(&sql).await.iter().map(|row| row.get(0)).collect()
    };
    assert_eq!(of("dead").await, [3, 4, 5, 6, 7]);
    let dead = log.store.list(&Filter::default(), None, 10).await.unwrap();
    let by_id = |n: usize| Filter {
        ids: vec![dead[n].message.id],
        ..Filter::default()
    };
    // An operator; retention; one that was replayed and delivered; and a retry that was.
    let discarded = log.store.discard(&by_id(0), 10).await.unwrap();
    assert_eq!(discarded, [dead[0].message.id]);
    let old = PurgeRequest {
        namespace: None,
        delivered: None,
        dead: Some(Duration::from_hours(24 * 6 + 12)),
        cursor: None,
        dedupe: false,
        limit: 10,
    };
    assert_eq!(log.store.purge(&old).await.unwrap().dead.len(), 1);
    log.store.replay(&by_id(1), 10).await.unwrap();
    log.run("delete from {schema}.log_failed where died_at is null").await;
    assert_eq!(of("discarded").await, [3, 7]);
    assert_eq!(log.store.show(discarded[0]).await.unwrap(), None);
    let delivered = log.store.show(dead[1].message.id).await.unwrap();
    assert_eq!(delivered.unwrap().state, State::Delivered);
    assert_eq!(of("dead").await, [5, 6]);
    assert_eq!(of("delivered").await, [1, 2, 4, 8, 9, 10]);
    // One that is set back delivers it after all.
    log.run("update {schema}.log_shards set state = '', position = 4").await;
    assert_eq!(of("pending").await, [7, 8, 9, 10]);
    log.settle_all().await;
    assert_eq!(of("discarded").await, [3]);
    // It is forgotten with its segment.
    log.run("delete from {schema}.log_failed").await;
    log.tables.tend_segments(Some(Duration::ZERO)).await.unwrap();
    log.tables.tend_segments(Some(Duration::ZERO)).await.unwrap();
    assert_eq!(log.count("select count(*) from {schema}.log").await, 0);
    assert_eq!(log.count("select count(*) from {schema}.log_discarded").await, 0);
}
