//! What a relay tries before it publishes anything, and what it removes.

use std::time::Duration;

use posthaste_core::lifecycle::Verdict;
use posthaste_core::store::{Filter, PurgeRequest, SchemaStore, Scope, StoreErrorKind};
use posthaste_core::{AdminStore, RelayStore};
use posthaste_sqlite::SqliteLogStore;

use crate::log::{another, claim, enqueue, fresh, keyed, request, settle};
use crate::support::{self, Work};

async fn execute(store: &SqliteLogStore, sql: &str) {
    let statement = sqlx::query(sqlx::AssertSqlSafe(sql.to_owned()));
    statement.execute(store.pool()).await.unwrap();
}

async fn check(store: &SqliteLogStore) -> Result<(), (StoreErrorKind, String)> {
    let checked = store.check_for(&Scope::default()).await;
    checked.map_err(|error| (error.kind, error.to_string()))
}

#[tokio::test]
async fn what_the_tables_refuse_of_a_log_is_said_before_anything_is_published() {
    let (refused, deaths) = (StoreErrorKind::Other, StoreErrorKind::DeathsRefused);
    let failed = "posthaste_log_failed";
    let cases = [
        ("insert", failed, "true", refused, "`retry`"),
        ("insert", failed, "new.died_at is not null", deaths, "`dead`"),
        ("update", failed, "new.died_at is null", refused, "`retry`"),
        ("update", failed, "new.died_at is not null", deaths, "`dead`"),
        ("delete", failed, "true", refused, "`delivered`"),
        (
            "update",
            "posthaste_log_reader",
            "true",
            refused,
            "how far the log is settled",
        ),
    ];
    for has_rows in [false, true] {
        let (store, _directory) = fresh().await;
        if has_rows {
            enqueue(&store, (0..30).map(|_| keyed("k"))).await;
        }
        for (n, (write, table, when, kind, step)) in cases.into_iter().enumerate() {
            for (raise, why) in [("abort, 'audit: no'", "audit: no"), ("ignore", "look for a trigger")] {
                // Another connection may not have heard that one of the same name is gone.
                let name = format!("no_{n}_{}", &raise[..1]);
                let trigger = format!(
                    "create trigger {name} before {write} on {table} when {when} begin select raise({raise}); end"
                );
                execute(&store, &trigger).await;
                let case = format!("{write} of {table} when {when}: {raise}");
                let (found, error) = check(&store).await.expect_err(&case);
                assert_eq!(found, kind, "{case}: {error}");
                assert!(error.contains(step) && error.contains(why), "{case}: {error}");
                execute(&store, &format!("drop trigger {name}")).await;
                assert_eq!(check(&store).await, Ok(()), "{case}");
            }
        }
        // All of it is undone.
        let ids = enqueue(&store, [keyed("another")]).await;
        let expected = if has_rows { 31 } else { 1 };
        let claimed = claim(&store, &request(100)).await;
        assert_eq!((claimed.len(), claimed.last()), (expected, ids.last()));
    }
}

#[tokio::test]
async fn a_log_of_which_some_rows_are_refused_is_served_all_the_same() {
    let (store, _directory) = fresh().await;
    enqueue(&store, ["good", "bad"].map(keyed)).await;
    execute(
        &store,
        "create trigger no before insert on posthaste_log_failed when new.ordering_key = 'bad'
        begin select raise(abort, 'audit: no'); end",
    )
    .await;
    let (kind, error) = check(&store).await.unwrap_err();
    assert_eq!(kind, StoreErrorKind::SomeRows, "{error}");
}

fn older_than_an_hour(limit: u32) -> PurgeRequest {
    PurgeRequest {
        delivered: Some(Duration::from_hours(1)),
        limit,
        ..PurgeRequest::default()
    }
}

/// Producers wait for the write lock.
#[tokio::test]
async fn old_rows_of_a_log_are_looked_for_while_another_transaction_writes() {
    let (store, _directory) = fresh().await;
    let ids = enqueue(&store, (0..8).map(|n| keyed(&n.to_string()))).await;
    let work = request(10);
    assert_eq!(claim(&store, &work).await, ids);
    let dead = Verdict::Dead { error: "no".to_owned() };
    assert_eq!(settle(&store, &work, &ids[1..2], &dead).await, []);
    assert_eq!(settle(&store, &work, &ids[..1], &Verdict::Delivered).await, []);
    assert_eq!(settle(&store, &work, &ids[2..], &Verdict::Delivered).await, []);
    let purge = older_than_an_hour(2);
    let mut writing = store.pool().begin_with("begin immediate").await.unwrap();
    assert_eq!(store.purge(&purge).await.unwrap().delivered, 0);
    sqlx::query("update posthaste_log set created_at = 0 where seq <= 5 or seq = 8")
        .execute(&mut *writing)
        .await
        .unwrap();
    writing.commit().await.unwrap();
    assert_eq!(store.purgeable(&purge).await.unwrap().delivered, 4);
    let mut removed = Vec::new();
    for _ in 0..4 {
        removed.push(store.purge(&purge).await.unwrap().delivered);
    }
    assert_eq!(
        removed,
        [2, 2, 0, 0],
        "not the one that is dead, and none from the first young one on"
    );
}

/// As other programs write it.
#[tokio::test]
async fn a_row_with_a_time_of_which_nothing_follows_keeps_none_behind_it() {
    let (store, _directory) = fresh().await;
    let ids = enqueue(&store, (0..8).map(|n| keyed(&n.to_string()))).await;
    let work = request(10);
    assert_eq!(claim(&store, &work).await, ids);
    assert_eq!(settle(&store, &work, &ids, &Verdict::Delivered).await, []);
    let in_future = "4102444800000";
    let in_microseconds = "1700000000000000";
    execute(&store, "update posthaste_log set created_at = 0").await;
    for (seq, time) in [(1, in_future), (3, in_microseconds), (5, "'2020-01-01 00:00:00'")] {
        execute(
            &store,
            &format!("update posthaste_log set created_at = {time} where seq = {seq}"),
        )
        .await;
    }
    let purge = older_than_an_hour(2);
    assert_eq!(store.purgeable(&purge).await.unwrap().delivered, 5);
    let mut removed = Vec::new();
    for _ in 0..4 {
        removed.push(store.purge(&purge).await.unwrap().delivered);
    }
    assert_eq!(removed, [2, 2, 1, 0]);
    let left: Vec<i64> = sqlx::query_scalar("select seq from posthaste_log order by seq")
        .fetch_all(store.pool())
        .await
        .unwrap();
    assert_eq!(left, [1, 3, 5]);
}

#[tokio::test]
async fn rows_whose_dead_letters_are_kept_are_not_read_again_for_every_few_that_are_removed() {
    let (pool, _directory) = support::pool(1).await;
    let store = another(&pool);
    store.migrate().await.unwrap();
    let ids = enqueue(&store, (0..400).map(|n| keyed(&n.to_string()))).await;
    let work = request(400);
    assert_eq!(claim(&store, &work).await, ids);
    let dead = Verdict::Dead { error: "no".to_owned() };
    assert_eq!(settle(&store, &work, &ids[..300], &dead).await, []);
    assert_eq!(settle(&store, &work, &ids[300..], &Verdict::Delivered).await, []);
    execute(&store, "update posthaste_log set created_at = 0").await;
    let purge = older_than_an_hour(10);
    let work = Work::of(&pool).await;
    let mut costs = Vec::new();
    for _ in 0..2 {
        assert_eq!(store.purge(&purge).await.unwrap().delivered, 10);
        costs.push(work.done());
    }
    assert!(costs[1] < costs[0] / 2, "{costs:?}");
    // What is kept no longer is found all the same.
    let replayed = store.replay(&Filter::default(), 300).await.unwrap();
    assert_eq!(replayed, ids[..300]);
    let again = request(400);
    assert_eq!(claim(&store, &again).await, ids[..300]);
    assert_eq!(settle(&store, &again, &ids[..300], &Verdict::Delivered).await, []);
    let mut removed = 0;
    loop {
        let some = store.purge(&purge).await.unwrap().delivered;
        removed += some;
        if some == 0 {
            break;
        }
    }
    assert_eq!(removed, 380);
}

#[tokio::test]
async fn a_log_that_has_lost_the_row_of_its_reader_says_what_to_do() {
    let (store, _directory) = fresh().await;
    let ids = enqueue(&store, ["a", "b"].map(keyed)).await;
    let work = request(10);
    assert_eq!(claim(&store, &work).await, ids);
    assert_eq!(settle(&store, &work, &ids, &Verdict::Delivered).await, []);
    store.close().await.unwrap();
    execute(&store, "delete from posthaste_log_reader").await;
    let error = store.claim(&request(10)).await.unwrap_err();
    assert!(error.message.contains("posthaste_log_reader"), "{error}");
    let statement = "insert into posthaste_log_reader (shard) values (0)";
    assert!(error.remedy.unwrap().contains(statement), "{error}");
    let (_, error) = check(&store).await.unwrap_err();
    assert!(error.contains(statement), "{error}");
    execute(&store, statement).await;
    assert_eq!(claim(&store, &request(10)).await, ids);
}
