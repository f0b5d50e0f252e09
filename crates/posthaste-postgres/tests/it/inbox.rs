//! The inbox as a consumer uses it.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::{Handled, Inbox, InboxError, InboxStore};
use sqlx::{AssertSqlSafe, Executor, PgConnection, PgPool, Row};
use tokio::sync::Notify;

use crate::support;

async fn counter(pool: &PgPool) -> String {
    let table = format!("public.sales_{}", uuid::Uuid::new_v4().simple());
    pool.execute(AssertSqlSafe(format!(
        "create table {table} (n bigint not null); insert into {table} values (0)"
    )))
    .await
    .unwrap();
    table
}

async fn count_sale(tx: &mut PgConnection, table: &str) -> sqlx::Result<()> {
    sqlx::query(AssertSqlSafe(format!("update {table} set n = n + 1")))
        .execute(tx)
        .await
        .map(drop)
}

async fn sales(pool: &PgPool, table: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(format!("select n from {table}")))
        .fetch_one(pool)
        .await
        .unwrap()
}

/// Proves pitfall 20.
#[tokio::test]
async fn the_effect_of_a_repeated_delivery_happens_once() {
    let store = support::store(2).await;
    let (inbox, table) = (store.inbox("statistics"), counter(store.pool()).await);
    let mut handled = Vec::new();
    for _ in 0..3 {
        let mut tx = store.pool().begin().await.unwrap();
        handled.push(
            inbox
                .once(&mut tx, "Order/42/SOLD", async |tx| count_sale(tx, &table).await)
                .await
                .unwrap(),
        );
        tx.commit().await.unwrap();
    }
    assert_eq!(handled, [Handled::Applied(()), Handled::Duplicate, Handled::Duplicate]);
    assert_eq!(sales(store.pool(), &table).await, 1);
}

/// Proves pitfall 20.
#[tokio::test]
async fn a_handler_that_fails_leaves_neither_effect_nor_record() {
    let store = support::store(2).await;
    let (inbox, table) = (store.inbox("statistics"), counter(store.pool()).await);
    let mut tx = store.pool().begin().await.unwrap();
    let failed = inbox
        .once(&mut tx, "e1", async |tx| {
            count_sale(tx, &table).await.unwrap();
            Err::<(), _>("out of stock")
        })
        .await;
    assert!(matches!(failed, Err(InboxError::Handler("out of stock"))));
    tx.rollback().await.unwrap();
    assert_eq!(sales(store.pool(), &table).await, 0);

    let mut tx = store.pool().begin().await.unwrap();
    let again = inbox
        .once(&mut tx, "e1", async |tx| count_sale(tx, &table).await)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!((again, sales(store.pool(), &table).await), (Handled::Applied(()), 1));
}

/// The server answers the commit of an aborted transaction with success, so it is `once` that must fail.
///
/// Proves pitfall 20.
#[tokio::test]
async fn a_handler_that_tolerates_an_error_that_aborted_the_transaction_has_failed() {
    let store = support::store(2).await;
    let (inbox, table) = (store.inbox("statistics"), counter(store.pool()).await);
    let mut tx = store.pool().begin().await.unwrap();
    let careless = inbox.once(&mut tx, "e1", async |tx| {
        count_sale(tx, &table).await?;
        drop(tx.execute("select 1 / 0").await);
        Ok::<_, sqlx::Error>(())
    });
    let failed = careless.await.unwrap_err();
    assert!(failed.to_string().contains("nothing of it was kept"), "{failed}");
    tx.commit().await.unwrap();
    assert_eq!(sales(store.pool(), &table).await, 0, "that commit was none");

    let mut tx = store.pool().begin().await.unwrap();
    let nested = inbox.once(&mut tx, "e1", async |tx: &mut PgConnection| {
        let inner = inbox.once(tx, "e1 in particular", async |tx: &mut PgConnection| {
            count_sale(tx, &table).await
        });
        inner.await.map(drop)
    });
    assert_eq!(nested.await.unwrap(), Handled::Applied(()));
    tx.commit().await.unwrap();
    assert_eq!(sales(store.pool(), &table).await, 1);
}

/// A transaction that an inbox begins and commits itself is held to the same.
#[tokio::test]
async fn a_commit_that_keeps_nothing_is_an_error() {
    let store = support::store(2).await;
    let (inbox, table) = (store.inbox("statistics"), counter(store.pool()).await);
    let aborted = "select 1 / 0";
    let replaced = "rollback; begin";
    for trouble in [aborted, replaced, "rollback"] {
        let mut tx = inbox.begin().await.unwrap();
        assert!(inbox.record(&mut tx, "e1").await.unwrap());
        count_sale(&mut tx, &table).await.unwrap();
        drop(tx.execute(sqlx::raw_sql(trouble)).await);
        let lost = inbox.commit(tx).await.unwrap_err().to_string();
        assert!(lost.contains("nothing of it was kept"), "{trouble}: {lost}");
    }
    assert_eq!(sales(store.pool(), &table).await, 0);
}

/// Two consumers of one group got the same delivery, as happens in a rebalance. Spawned, so the future is `Send`.
///
/// Proves pitfall 20.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_handlers_at_the_same_time_the_second_waits_for_the_first() {
    let store = support::store(4).await;
    let table = counter(store.pool()).await;
    let entered = Arc::new(Notify::new());
    let (first_store, first_table, signal) = (store.clone(), table.clone(), Arc::clone(&entered));
    let first = tokio::spawn(async move {
        let mut tx = first_store.pool().begin().await.unwrap();
        let inbox = first_store.inbox("statistics");
        let handled = inbox.once(&mut tx, "e1", async |tx| {
            signal.notify_one();
            // Until the other one waits for us, as the server sees it.
            let waiting = "select count(*) from pg_locks where not granted and locktype = 'transactionid'
                and transactionid = pg_current_xact_id()::xid";
            while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut *tx).await? == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            count_sale(tx, &first_table).await
        });
        let handled = handled.await.unwrap();
        tx.commit().await.unwrap();
        handled
    });
    entered.notified().await;
    let mut tx = store.pool().begin().await.unwrap();
    let second = store
        .inbox("statistics")
        .once(&mut tx, "e1", async |tx| count_sale(tx, &table).await)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        (first.await.unwrap(), second),
        (Handled::Applied(()), Handled::Duplicate)
    );
    assert_eq!(sales(store.pool(), &table).await, 1);
}

/// A consumer may stop waiting at any moment; the connection it had is used by others.
#[tokio::test]
async fn a_begin_that_is_given_up_leaves_no_transaction_on_its_connection() {
    let store = support::store(1).await;
    let inbox = store.inbox("statistics");
    for moment in 0..100 {
        let _ = tokio::time::timeout(Duration::from_micros(moment * 10), inbox.begin()).await;
        let sql = "select now() < statement_timestamp() as within_a_transaction";
        let row = sqlx::raw_sql(sql).fetch_one(store.pool()).await.unwrap();
        assert!(!row.get::<bool, _>("within_a_transaction"), "after {moment}0 µs");
    }
}
