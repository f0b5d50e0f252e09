//! What a relay tries before it publishes anything, and what it removes.

use std::time::Duration;

use posthaste_core::RelayStore;
use posthaste_core::lifecycle::Verdict;
use posthaste_core::store::{PurgeRequest, Scope, StoreErrorKind};
use posthaste_sqlite::SqliteLogStore;

use crate::log::{claim, enqueue, fresh, keyed, request, settle};

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
    let purge = PurgeRequest {
        delivered: Some(Duration::from_hours(1)),
        limit: 2,
        ..PurgeRequest::default()
    };
    let mut writing = store.pool().begin_with("begin immediate").await.unwrap();
    assert_eq!(store.purge(&purge).await.unwrap().delivered, 0);
    sqlx::query("update posthaste_log set created_at = 0 where seq <= 5")
        .execute(&mut *writing)
        .await
        .unwrap();
    writing.commit().await.unwrap();
    let mut removed = Vec::new();
    for _ in 0..4 {
        removed.push(store.purge(&purge).await.unwrap().delivered);
    }
    assert_eq!(
        removed,
        [2, 2, 0, 0],
        "not the one that is dead, and not those that are young"
    );
}
