//! Rows that come below the cursor: delivered late, repeated rather than lost, and never passed over without a word.

use posthaste_core::RelayStore;
use posthaste_core::store::SchemaStore;
use posthaste_postgres::PostgresLogStore;
use sqlx::{Executor, Row};

use super::eventually;
use super::ids::{close_gaps, next_id};
use super::lines::Lines;

use crate::support::log::{Log, Work, request};

/// Claims and delivers until `count` events have come; returns them.
async fn delivered(store: &PostgresLogStore, count: usize) -> Vec<String> {
    let mut events = Vec::new();
    eventually("the events come", async || {
        let work = Work::claim(store, &request(10)).await;
        events.extend(work.events());
        work.settle(store, &[]).await;
        events.len() >= count
    })
    .await;
    events
}

/// A reader that delivers what there is, closes all gaps and leaves.
async fn read_and_leave(log: &Log) {
    let store = log.store();
    close_gaps(&store).await;
    store.close().await.unwrap();
}

/// Nothing came late before, so the earlier reader's cursor is past it.
///
/// Proves C9.
#[tokio::test]
async fn a_row_that_comes_below_the_cursor_while_nobody_reads_is_delivered_by_the_next_reader() {
    let (lines, _guard) = Lines::install();
    let log = Log::fresh(4).await;
    let id = next_id(&log.pool).await;
    log.append(&log.pool, "a").await;
    read_and_leave(&log).await;
    assert_eq!(log.cursor().await, 2);
    let late = log.append_as(&log.pool, id, "b").await;
    let next = log.store();
    assert_eq!(delivered(&next, 1).await, [late]);
    assert_eq!(
        lines.with(&["ERROR", "after their ids were passed over", "id=1"]).len(),
        1
    );
    assert_eq!(log.failed().await, 0);
}

/// A reader looks at closed ids ever more rarely. It may end in between, with a cursor that has moved on.
///
/// Proves C9.
#[tokio::test]
async fn a_row_that_came_late_and_was_not_found_before_its_reader_ended_is_delivered_by_the_next() {
    let log = Log::fresh(4).await;
    let id = next_id(&log.pool).await;
    log.append(&log.pool, "a").await;
    let first = log.store();
    close_gaps(&first).await;
    Work::claim(&first, &request(10)).await;
    assert_eq!(log.cursor().await, 2);
    let late = log.append_as(&log.pool, id, "b").await;
    log.append(&log.pool, "c").await;
    let work = Work::claim(&first, &request(10)).await;
    assert_eq!(work.keys(), ["c"], "the net has not looked yet");
    work.settle(&first, &[]).await;
    first.close().await.unwrap();
    assert_eq!(log.cursor().await, 3);
    let next = log.store();
    assert_eq!(delivered(&next, 1).await, [late]);
}

/// A restart must not repeat what came in time, whoever committed in which order.
#[tokio::test]
async fn a_restart_repeats_no_row_that_came_in_time() {
    let log = Log::fresh(8).await;
    let mut early = log.pool.begin().await.unwrap();
    log.append(&mut *early, "a").await;
    log.append(&log.pool, "b").await;
    let first = log.store();
    assert_eq!(delivered(&first, 1).await.len(), 1);
    early.commit().await.unwrap();
    close_gaps(&first).await;
    log.append(&log.pool, "c").await;
    close_gaps(&first).await;
    first.close().await.unwrap();
    assert_eq!(log.cursor().await, 3);
    let next = log.store();
    assert!(Work::claim(&next, &request(10)).await.events().is_empty());
    assert_eq!(next.closed_ids().await, Some(0));
    // The owner begins again: rows with the ids of earlier ones are new.
    next.close().await.unwrap();
    log.run("truncate outbox restart identity; insert into outbox_cursor (last_processed_id) values (0)")
        .await;
    log.append(&log.pool, "d").await;
    read_and_leave(&log).await;
    assert_eq!(log.cursor().await, 1);
    let last = log.store();
    assert!(Work::claim(&last, &request(10)).await.events().is_empty());
    assert_eq!(last.closed_ids().await, Some(0));
}

/// A restored log has only rows that are newer than the cursor. They were delivered long ago, most likely.
#[tokio::test]
async fn a_log_that_was_written_anew_is_not_delivered_again_and_that_is_said() {
    let (lines, _guard) = Lines::install();
    let log = Log::fresh(4).await;
    log.run("insert into outbox_cursor (last_processed_id) values (2000)")
        .await;
    log.run(
        "insert into outbox (event_id, event_type, source, aggregate_type, aggregate_id, payload)
         select n::text, 'loopers.order.created.v1', 'commerce-api', 'Order', n::text, '{}' from generate_series(1, 2000) n",
    )
    .await;
    let store = log.store();
    assert!(Work::claim(&store, &request(10)).await.events().is_empty());
    assert_eq!(store.closed_ids().await, Some(0));
    let said = lines.with(&["ERROR", "rows=2000", "highest=2000", "lower position"]);
    assert_eq!(said.len(), 1, "{said:?}");
    store.close().await.unwrap();
    // The remedy that it names.
    log.run("insert into outbox_cursor (last_processed_id) values (1990)")
        .await;
    assert_eq!(delivered(&log.store(), 10).await.len(), 10);
}

#[tokio::test]
async fn of_many_late_rows_only_those_that_are_refused_wait() {
    let (lines, _guard) = Lines::install();
    let log = Log::fresh(4).await;
    let mut ids = Vec::new();
    for _ in 0..7 {
        ids.push(next_id(&log.pool).await);
    }
    log.append(&log.pool, "a").await;
    let store = log.store();
    close_gaps(&store).await;
    log.run("alter table outbox_failed add constraint short check (aggregate_id <> '3')")
        .await;
    let mut late = Vec::new();
    for (place, id) in ids.iter().enumerate() {
        late.push(log.append_as(&log.pool, *id, &place.to_string()).await);
    }
    let culprit = late.remove(3);
    let mut others = delivered(&store, 6).await;
    others.sort();
    late.sort();
    assert_eq!(others, late);
    let said = lines.with(&["ERROR", "does not take them", "short"]);
    assert!(said.iter().all(|line| line.contains("ids=\"4\"")), "{said:?}");
    log.run("alter table outbox_failed drop constraint short").await;
    assert_eq!(delivered(&store, 1).await, [culprit]);
}

/// What `docs/log-layout.md` tells an operator to run for a row that was not found.
#[tokio::test]
async fn a_row_that_an_operator_copies_into_the_table_of_failures_is_delivered() {
    let log = Log::fresh(4).await;
    log.append(&log.pool, "a").await;
    let event = log.append(&log.pool, "b").await;
    log.append(&log.pool, "c").await;
    let store = log.store();
    close_gaps(&store).await;
    log.run(
        "insert into outbox_failed (event_id, event_type, source, aggregate_type, aggregate_id, payload)
         select event_id, event_type, source, aggregate_type, aggregate_id, payload from outbox where id in (2)",
    )
    .await;
    assert_eq!(delivered(&store, 1).await, [event]);
}

/// The same page's way to find them, over more than a new reader looks through.
#[tokio::test]
async fn an_operator_can_find_all_rows_that_came_after_the_cursor_had_passed_them() {
    let log = Log::fresh(4).await;
    log.run("update outbox_cursor set last_processed_id = 300000, created_at = now() - interval '3 days'")
        .await;
    log.append_as(&log.pool, 5, "late").await;
    log.run("select setval('outbox_id_seq', 300000)").await;
    log.append(&log.pool, "in time").await;
    read_and_leave(&log).await;
    assert_eq!(log.cursor().await, 300_001);
    assert_eq!(log.number("select count(*) from outbox_cursor").await, 2);
    let statements = log.store().statements();
    let (_, unseen) = statements.iter().find(|(name, _)| *name == "unseen").unwrap();
    let sql = format!(
        "prepare unseen as {unseen};
         execute unseen (300001, 1000000000000, 604800000, 10000, null, null)"
    );
    let mut connection = log.pool.acquire().await.unwrap();
    let rows = connection
        .fetch_all(sqlx::raw_sql(sqlx::AssertSqlSafe(sql)))
        .await
        .unwrap();
    let found: Vec<i64> = rows.iter().map(|row| row.get("id")).collect();
    assert_eq!(found, [5]);
}
