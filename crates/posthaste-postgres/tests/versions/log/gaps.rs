//! Ids that were passed over, and the transactions that may still bring them.

use posthaste_core::RelayStore;
use sqlx::{AssertSqlSafe, Executor};

use super::eventually;

use crate::support::log::{Log, Work, request};

/// Proves pitfall 1.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_commits_late_is_not_skipped_and_one_that_rolls_back_is_not_waited_for() {
    let log = Log::fresh(8).await;
    let store = log.store();
    let mut late = log.pool.begin().await.unwrap();
    let late_event = log.append(&mut *late, "late").await;
    let mut undone = log.pool.begin().await.unwrap();
    log.append(&mut *undone, "undone").await;
    let third = log.append(&log.pool, "third").await;
    let work = Work::claim(&store, &request(10)).await;
    assert_eq!(work.events(), [third], "nobody waits for them");
    work.settle(&store, &[]).await;
    assert_eq!(store.gaps().await, Some((2, 0)));
    undone.rollback().await.unwrap();
    assert!(Work::claim(&store, &request(10)).await.events().is_empty());
    store.close().await.unwrap();
    assert_eq!(
        log.cursor().await,
        0,
        "the cursor waits where a row may come, also over a restart"
    );
    let store = log.store();
    assert!(
        Work::claim(&store, &request(10)).await.events().is_empty(),
        "what was settled beyond the cursor is not repeated"
    );
    late.commit().await.unwrap();
    let work = Work::claim(&store, &request(10)).await;
    assert_eq!(work.events(), [late_event]);
    work.settle(&store, &[]).await;
    eventually("all gaps are closed", async || {
        Work::claim(&store, &request(10)).await;
        store.gaps().await == Some((0, 1))
    })
    .await;
    store.close().await.unwrap();
    assert_eq!(log.cursor().await, 3);
}

/// The id is taken before the transaction has a number of its own, so "lower id, older transaction" is false.
///
/// Proves pitfall 2.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_whose_transaction_got_its_number_after_a_later_row_was_read_is_delivered() {
    let log = Log::fresh(8).await;
    // The first id of thirty-two is logged, which gives its transaction a number.
    let warm = log.append(&log.pool, "warm").await;
    // The insert stops between taking its id and writing the row.
    log.run(
        "create function hold() returns trigger language plpgsql as $$
         begin
            if new.aggregate_id = 'held' then perform pg_advisory_xact_lock_shared(hashtext(current_schema())); end if;
            return new;
         end $$;
         create trigger hold before insert on outbox for each row execute function hold()",
    )
    .await;
    let mut gate = log.pool.begin().await.unwrap();
    gate.execute("select pg_advisory_xact_lock(hashtext(current_schema()))")
        .await
        .unwrap();
    let pool = log.pool.clone();
    let held = tokio::spawn(async move {
        let insert = "insert into outbox (event_id, event_type, source, aggregate_type, aggregate_id, payload)
            values ('held', 'loopers.order.created.v1', 's', 'Order', 'held', '{}')";
        pool.execute(insert).await.unwrap();
    });
    eventually("the insert has its id and waits", async || {
        log.number("select last_value from outbox_id_seq").await == 2
    })
    .await;
    let without_a_number = log.number(
        "select count(*) from pg_locks l join pg_stat_activity a using (pid)
         where l.relation = 'outbox'::regclass and l.mode = 'RowExclusiveLock' and a.backend_xid is null",
    );
    assert_eq!(
        without_a_number.await,
        1,
        "it holds its lock and has no transaction number yet"
    );
    let later = log.append(&log.pool, "later").await;
    let store = log.store();
    let work = Work::claim(&store, &request(10)).await;
    assert_eq!(work.events(), [warm, later]);
    work.settle(&store, &[]).await;
    for _ in 0..3 {
        assert!(Work::claim(&store, &request(10)).await.events().is_empty());
    }
    gate.commit().await.unwrap();
    held.await.unwrap();
    let older = log
        .number(
            "select count(*) from outbox a, outbox b where a.id = 2 and b.id = 3
        and a.xmin::text::bigint > b.xmin::text::bigint",
        )
        .await;
    assert_eq!(older, 1, "the lower id has the younger transaction");
    let work = Work::claim(&store, &request(10)).await;
    assert_eq!(work.events(), ["held"]);
}

/// Proves pitfall 3.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_write_transaction_delays_nobody_where_a_watermark_would_stall() {
    let log = Log::fresh(8).await;
    let store = log.store();
    let mut open_tx = log.pool.begin().await.unwrap();
    log.append(&mut *open_tx, "long").await;
    for order in 0..50 {
        log.append(&log.pool, &order.to_string()).await;
    }
    let behind_the_watermark = log.number(
        "select count(*) from outbox where xmin::text::bigint < pg_snapshot_xmin(pg_current_snapshot())::text::bigint",
    );
    assert_eq!(behind_the_watermark.await, 0, "a watermark hands out nothing");
    let work = Work::claim(&store, &request(100)).await;
    assert_eq!(
        work.events().len(),
        50,
        "the gap holds back one row: the one that is not there"
    );
    work.settle(&store, &[]).await;
    for order in 0..50 {
        log.append(&log.pool, &order.to_string()).await;
        let work = Work::claim(&store, &request(100)).await;
        assert_eq!(work.events().len(), 1);
        work.settle(&store, &[]).await;
    }
    assert_eq!(store.gaps().await, Some((1, 0)));
    open_tx.rollback().await.unwrap();
    Work::claim(&store, &request(100)).await;
    assert_eq!(store.gaps().await, Some((0, 1)));
}

/// A transaction in its second phase has no session; it is waited for all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_prepared_transaction_is_not_overlooked() {
    let log = Log::fresh(4).await;
    if log.texts("show max_prepared_transactions").await == ["0"] {
        return;
    }
    let store = log.store();
    let mut connection = log.pool.acquire().await.unwrap();
    connection.execute("begin").await.unwrap();
    let event = log.append(&mut *connection, "prepared").await;
    let later = log.append(&log.pool, "later").await;
    assert_eq!(Work::claim(&store, &request(10)).await.events(), [later]);
    let name = format!("'{event}'");
    let run = async |sql: String| log.pool.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
    connection
        .execute(sqlx::raw_sql(AssertSqlSafe(format!("prepare transaction {name}"))))
        .await
        .unwrap();
    for _ in 0..5 {
        assert!(Work::claim(&store, &request(10)).await.events().is_empty());
        assert_eq!(store.gaps().await, Some((1, 0)), "it may come yet");
    }
    run(format!("commit prepared {name}")).await;
    assert_eq!(Work::claim(&store, &request(10)).await.events(), [event]);
}

/// A sequence with a cache hands ids to sessions in advance, and no lock would say so.
#[tokio::test]
async fn a_sequence_with_a_cache_is_refused() {
    let log = Log::fresh(2).await;
    log.store().check().await.unwrap();
    log.run("alter sequence outbox_id_seq cache 20").await;
    let error = log.store().check().await.unwrap_err().to_string();
    assert!(error.contains("cache 20") && error.contains("cache 1"), "{error}");
}
