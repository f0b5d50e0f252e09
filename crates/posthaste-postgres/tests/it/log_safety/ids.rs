//! Ids that are not given at the insert, sequences that were set back, and what is no table.

use std::time::Duration;

use posthaste_core::RelayStore;
use posthaste_postgres::PostgresLogStore;
use posthaste_sql::TableMap;
use posthaste_sql::table::BuiltinMap;
use sqlx::{Executor, Postgres};

use super::eventually;
use super::lines::Lines;

use crate::support::log::{Log, Work, request};

/// Takes an id as a persistence framework does, in a statement of its own.
pub async fn next_id<'e>(on: impl Executor<'e, Database = Postgres>) -> i64 {
    sqlx::query_scalar("select nextval('outbox_id_seq')")
        .fetch_one(on)
        .await
        .unwrap()
}

/// Delivers what there is, and claims until every gap is closed.
pub async fn close_gaps(store: &PostgresLogStore) {
    eventually("all gaps are closed", async || {
        Work::claim(store, &request(10)).await.settle(store, &[]).await;
        store.gaps().await.is_some_and(|(open, _)| open == 0)
    })
    .await;
}

/// Proves C9.
#[tokio::test]
async fn an_id_that_was_taken_earlier_in_the_same_transaction_is_waited_for() {
    let log = Log::fresh(4).await;
    let store = log.store();
    let mut writer = log.pool.begin().await.unwrap();
    let id = next_id(&mut *writer).await;
    let later = log.append(&log.pool, "later").await;
    let work = Work::claim(&store, &request(10)).await;
    assert_eq!(work.events(), [later]);
    work.settle(&store, &[]).await;
    for _ in 0..5 {
        assert!(Work::claim(&store, &request(10)).await.events().is_empty());
    }
    assert_eq!(store.gaps().await, Some((1, 0)), "its owner holds the sequence's lock");
    let event = log.append_as(&mut *writer, id, "early").await;
    writer.commit().await.unwrap();
    let (lines, _guard) = Lines::install();
    assert_eq!(Work::claim(&store, &request(10)).await.events(), [event], "and at once");
    assert!(lines.with(&["ERROR"]).is_empty(), "this is how it should be");
}

/// Proves C9.
#[tokio::test]
async fn a_row_whose_id_was_taken_in_another_transaction_comes_late_and_that_is_said() {
    let (lines, _guard) = Lines::install();
    let log = Log::fresh(4).await;
    let store = log.store();
    let id = next_id(&log.pool).await;
    log.append(&log.pool, "a").await;
    close_gaps(&store).await;
    assert_eq!(store.closed_ids().await, Some(1));
    let late = log.append_as(&log.pool, id, "a").await;
    let mut found = Vec::new();
    eventually("it is found", async || {
        let work = Work::claim(&store, &request(10)).await;
        found = work.events();
        work.settle(&store, &[]).await;
        !found.is_empty()
    })
    .await;
    assert_eq!(found, [late]);
    let said = lines.with(&["ERROR", "IDENTITY", "allocationSize"]);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("id=1") && said[0].contains("rows=1"), "{said:?}");
    assert_eq!((log.failed().await, store.closed_ids().await), (0, Some(0)));
    store.close().await.unwrap();
    assert_eq!(log.cursor().await, 2, "the cursor did not go back");
}

/// Where rows come late, one may come while nobody reads. A successor reads again from below it.
///
/// Proves C9.
#[tokio::test]
async fn once_rows_came_late_one_that_comes_between_two_readers_is_not_lost() {
    let log = Log::fresh(4).await;
    let first = log.store();
    let ids = [next_id(&log.pool).await, next_id(&log.pool).await];
    log.append(&log.pool, "a").await;
    close_gaps(&first).await;
    log.append_as(&log.pool, ids[0], "b").await;
    eventually("the first late row is found", async || {
        Work::claim(&first, &request(10)).await.settle(&first, &[]).await;
        first.closed_ids().await == Some(1)
    })
    .await;
    let third = next_id(&log.pool).await;
    log.append(&log.pool, "c").await;
    close_gaps(&first).await;
    first.close().await.unwrap();
    let late = log.append_as(&log.pool, third, "d").await;
    let second = log.store();
    let work = Work::claim(&second, &request(10)).await;
    assert!(work.events().contains(&late), "{:?}", work.keys());
}

/// What an earlier reader closed is not forgotten with it.
///
/// Proves C9.
#[tokio::test]
async fn a_new_reader_looks_for_late_rows_below_its_cursor() {
    let log = Log::fresh(4).await;
    let id = next_id(&log.pool).await;
    log.append(&log.pool, "a").await;
    let first = log.store();
    close_gaps(&first).await;
    first.close().await.unwrap();
    assert_eq!(log.cursor().await, 2);
    let second = log.store();
    assert!(Work::claim(&second, &request(10)).await.events().is_empty());
    assert_eq!(second.closed_ids().await, Some(1));
    let late = log.append_as(&log.pool, id, "a").await;
    eventually("it is found", async || {
        Work::claim(&second, &request(10)).await.events() == [late.clone()]
    })
    .await;
}

/// Later rows of the lane wait for the late one, and rows that were there before it do not.
#[tokio::test]
async fn a_late_row_keeps_its_place_in_what_is_left_of_its_lane() {
    let log = Log::fresh(4).await;
    let store = log.store();
    let held = log.append(&log.pool, "a").await;
    let id = next_id(&log.pool).await;
    let last = log.append(&log.pool, "b").await;
    let work = Work::claim(&store, &request(10)).await;
    assert_eq!(work.events(), [held.clone(), last]);
    eventually("the gap is closed", async || {
        Work::claim(&store, &request(10)).await;
        store.gaps().await == Some((0, 1))
    })
    .await;
    let late = log.append_as(&log.pool, id, "a").await;
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert!(
        Work::claim(&store, &request(10)).await.events().is_empty(),
        "one before it is in flight"
    );
    assert_eq!(log.failed().await, 0);
    work.settle(&store, &[]).await;
    let after = log.append(&log.pool, "a").await;
    let mut order = Vec::new();
    eventually("both are delivered", async || {
        let work = Work::claim(&store, &request(10)).await;
        order.extend(work.events());
        work.settle(&store, &[]).await;
        order.len() >= 2
    })
    .await;
    assert!(order.contains(&late) && order.contains(&after), "{order:?}");
}

#[tokio::test]
async fn ids_that_are_given_out_ahead_are_refused_unless_somebody_vouches_for_them() {
    let log = Log::fresh(2).await;
    log.store().check().await.unwrap();
    log.run("alter sequence outbox_id_seq increment 50").await;
    let error = log.store().check().await.unwrap_err().to_string();
    assert!(
        error.contains("increment 50") && error.contains("allocationSize = 1"),
        "{error}"
    );
    let trusted = with_map(&log, |toml| {
        toml.replace("layout = \"log\"", "layout = \"log\"\nids = \"trusted\"")
    });
    trusted.check().await.unwrap();
}

#[tokio::test]
async fn a_table_without_a_sequence_of_its_own_is_refused_unless_somebody_vouches_for_it() {
    let log = Log::fresh(2).await;
    log.run("alter table outbox alter id drop default; alter sequence outbox_id_seq owned by none")
        .await;
    let error = log.store().check().await.unwrap_err().to_string();
    assert!(
        error.contains("no sequence of its own") && error.contains("owned by") && error.contains("ids = \"trusted\""),
        "{error}"
    );
    let trusted = with_map(&log, |toml| {
        toml.replace("layout = \"log\"", "layout = \"log\"\nids = \"trusted\"")
    });
    trusted.check().await.unwrap();
    log.run("alter sequence outbox_id_seq owned by outbox.id").await;
    log.store().check().await.unwrap();
}

#[tokio::test]
async fn a_view_is_not_a_log() {
    let log = Log::fresh(2).await;
    log.run("create view outbox_view as select * from outbox").await;
    let view = with_map(&log, |toml| {
        toml.replace("outbox = \"outbox\"", "outbox = \"outbox_view\"")
    });
    let error = view.check().await.unwrap_err().to_string();
    assert!(error.contains("not a table"), "{error}");
}

/// Rows of a table that inherits from the log are rows of the log; whoever inserts there holds no lock on the log itself.
#[tokio::test]
async fn an_insert_into_a_table_that_inherits_from_the_log_is_waited_for() {
    let log = Log::fresh(4).await;
    log.run("create table outbox_child () inherits (outbox)").await;
    let store = log.store();
    let mut writer = log.pool.begin().await.unwrap();
    let event = uuid::Uuid::new_v4().to_string();
    let id = sqlx::query(
        "insert into outbox_child (event_id, event_type, source, aggregate_type, aggregate_id, payload)
         values ($1, 'loopers.order.created.v1', 'commerce-api', 'Order', 'child', '{}')",
    );
    id.bind(&event).execute(&mut *writer).await.unwrap();
    let later = log.append(&log.pool, "later").await;
    let work = Work::claim(&store, &request(10)).await;
    assert_eq!(work.events(), [later]);
    work.settle(&store, &[]).await;
    for _ in 0..3 {
        assert!(Work::claim(&store, &request(10)).await.events().is_empty());
    }
    writer.commit().await.unwrap();
    assert_eq!(Work::claim(&store, &request(10)).await.events(), [event]);
}

#[tokio::test]
async fn a_sequence_that_was_set_back_is_said_and_not_passed_over() {
    let log = Log::fresh(4).await;
    for _ in 0..5 {
        log.append(&log.pool, "a").await;
    }
    let store = log.store();
    close_gaps(&store).await;
    store.close().await.unwrap();
    assert_eq!(log.cursor().await, 5);
    log.run("truncate outbox restart identity").await;
    let unread = log.append(&log.pool, "b").await;
    let refused = store.claim(&request(10)).await.unwrap_err().to_string();
    assert!(
        refused.contains("read up to id 5") && refused.contains("stands at 1") && refused.contains("cursor"),
        "{refused}"
    );
    let checked = log.store().check().await.unwrap_err().to_string();
    assert_eq!(checked, refused);
    // The remedy that it names.
    log.run("insert into outbox_cursor (last_processed_id) values (0)")
        .await;
    assert_eq!(Work::claim(&store, &request(10)).await.events(), [unread]);
}

/// The relay's ids are compared every ten seconds. What the error says must help a relay that runs, too.
#[tokio::test]
async fn a_reader_that_runs_goes_on_from_a_cursor_that_was_set_back_with_the_sequence() {
    let log = Log::fresh(4).await;
    for _ in 0..5 {
        log.append(&log.pool, "a").await;
    }
    let store = log.store();
    close_gaps(&store).await;
    log.run("truncate outbox restart identity").await;
    let unread = log.append(&log.pool, "b").await;
    eventually("it is noticed", async || store.claim(&request(10)).await.is_err()).await;
    log.run("insert into outbox_cursor (last_processed_id) values (0)")
        .await;
    let mut events = Vec::new();
    eventually("it is read", async || {
        if let Ok(claim) = store.claim(&request(10)).await {
            events.extend(
                claim
                    .messages
                    .iter()
                    .map(|claimed| claimed.message.effective_event_id().into_owned()),
            );
        }
        !events.is_empty()
    })
    .await;
    assert_eq!(events, [unread]);
}

/// As test suites do between two tests: soon the ids are where they were, and nothing is missing or out of order.
#[tokio::test]
async fn rows_of_a_log_that_was_truncated_and_filled_again_while_it_is_read_are_delivered() {
    let log = Log::fresh(4).await;
    for _ in 0..3 {
        log.append(&log.pool, "a").await;
    }
    let store = log.store();
    close_gaps(&store).await;
    log.run("truncate outbox restart identity").await;
    let mut unread = Vec::new();
    for _ in 0..3 {
        unread.push(log.append(&log.pool, "b").await);
    }
    let mut events = Vec::new();
    eventually("all are read", async || {
        if let Ok(claim) = store.claim(&request(10)).await {
            events.extend(
                claim
                    .messages
                    .iter()
                    .map(|claimed| claimed.message.effective_event_id().into_owned()),
            );
        }
        events.len() >= 3
    })
    .await;
    assert_eq!(events, unread);
}

fn with_map(log: &Log, change: impl FnOnce(String) -> String) -> PostgresLogStore {
    let toml = change(BuiltinMap::find("commerce").unwrap().toml.to_owned());
    PostgresLogStore::new(log.pool.clone(), TableMap::from_toml(&toml).unwrap()).unwrap()
}
