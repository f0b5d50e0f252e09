//! Failed rows are known by their own keys, whatever their events are called.

use posthaste_core::MessageId;
use posthaste_core::lifecycle::State;
use posthaste_core::store::{AdminStore, Filter};
use posthaste_postgres::{LogLayoutOptions, PostgresLogStore};
use posthaste_sql::TableMap;
use posthaste_sql::table::BuiltinMap;

use crate::support::log::{Log, Work, dead, request, retry};

async fn append(log: &Log, event: &str, aggregate: &str) {
    sqlx::query(
        "insert into outbox (event_id, event_type, source, aggregate_type, aggregate_id, payload)
         values ($1, 'loopers.order.created.v1', 'commerce-api', 'Order', $2, '{}')",
    )
    .bind(event)
    .bind(aggregate)
    .execute(&log.pool)
    .await
    .unwrap();
}

/// An id of more than 62 bytes, of which the first fifty are always the same.
fn long_id(name: &str) -> String {
    format!("urn:acme:shop:eu-west-1:production:orders:event:01:{name}:0000000000000001")
}

/// Proves C7.
#[tokio::test]
async fn failed_events_with_long_ids_are_told_apart() {
    let log = Log::fresh(4).await;
    log.run("alter table outbox alter event_id type text; alter table outbox_failed alter event_id type text")
        .await;
    let (first, second) = (long_id("a"), long_id("b"));
    append(&log, &first, "1").await;
    append(&log, &second, "2").await;
    let store = log.store();
    let work = Work::claim(&store, &request(10)).await;
    work.settle(&store, &[(0, retry(0)), (1, retry(0))]).await;
    let work = Work::claim(&store, &request(10)).await;
    assert_eq!(work.events(), [first, second.clone()]);
    assert_ne!(work.id(0), work.id(1));
    assert_eq!(
        work.settle(&store, &[(1, retry(0))]).await,
        [],
        "each has its own verdict"
    );
    let failed = log.texts("select event_id from outbox_failed").await;
    assert_eq!(failed, std::slice::from_ref(&second));
    let work = Work::claim(&store, &request(10)).await;
    assert_eq!(work.events(), [second], "and the other one is delivered, once");
    assert_eq!(work.settle(&store, &[]).await, []);
    assert_eq!(log.failed().await, 0);
}

#[tokio::test]
async fn an_operator_may_name_a_failed_row_or_its_event() {
    let log = Log::fresh(4).await;
    log.run("alter table outbox alter event_id type text; alter table outbox_failed alter event_id type text")
        .await;
    for (event, aggregate) in [(long_id("a"), "1"), (long_id("b"), "2"), ("short".to_owned(), "3")] {
        append(&log, &event, aggregate).await;
    }
    let store = log.store();
    let work = Work::claim(&store, &request(10)).await;
    work.settle(&store, &[(0, dead()), (1, dead()), (2, dead())]).await;
    let all = Filter {
        state: Some(State::Dead),
        ..Filter::default()
    };
    let listed = store.list(&all, None, 10).await.unwrap();
    let ids: Vec<MessageId> = listed.iter().map(|record| record.message.id).collect();
    assert_eq!(ids.len(), 3);
    let rest = store.list(&all, Some(ids[0]), 10).await.unwrap();
    assert_eq!(rest.len(), 2, "pages go on after a row");
    let only = |id: MessageId| Filter {
        ids: vec![id],
        ..Filter::default()
    };
    assert_eq!(store.replay(&only(ids[1]), 10).await.unwrap(), [ids[1]]);
    let replayed = log
        .texts("select event_id from outbox_failed where retry_count = 0")
        .await;
    assert_eq!(replayed, [long_id("b")]);
    assert_eq!(
        store.discard(&only("short".parse().unwrap()), 10).await.unwrap(),
        [ids[2]]
    );
    assert_eq!(log.failed().await, 2);
}

/// A table that says which row of the log a failed one was keeps two rows of one event apart.
#[tokio::test]
async fn two_rows_of_one_event_are_both_kept_where_the_table_has_a_place_for_the_row() {
    let log = Log::fresh(4).await;
    log.run("alter table outbox_failed add log_id bigint").await;
    let toml = BuiltinMap::find("commerce").unwrap().toml;
    let toml = toml.replace(
        "attempts = \"retry_count\"",
        "attempts = \"retry_count\"\nlog_id = \"log_id\"",
    );
    let map = TableMap::from_toml(&toml).unwrap();
    let options = LogLayoutOptions::of(&map).retry_interval(std::time::Duration::ZERO);
    let store = PostgresLogStore::with_options(log.pool.clone(), map, options).unwrap();
    append(&log, "same", "1").await;
    let work = Work::claim(&store, &request(10)).await;
    work.settle(&store, &[(0, retry(60))]).await;
    append(&log, "same", "2").await;
    let work = Work::claim(&store, &request(10)).await;
    assert_eq!(work.keys(), ["2"], "the second row is not taken for the first");
    work.settle(&store, &[(0, retry(60))]).await;
    assert_eq!(
        log.texts("select log_id::text from outbox_failed order by id").await,
        ["1", "2"]
    );
    log.make_due().await;
    let listed = store.list(&Filter::default(), None, 10).await.unwrap();
    let listed: Vec<_> = listed.into_iter().map(|record| record.sequence).collect();
    let work = Work::claim(&store, &request(10)).await;
    assert_eq!(work.keys(), ["1", "2"]);
    let claimed: Vec<_> = work.claim.messages.iter().map(|row| row.sequence).collect();
    assert_eq!((claimed, listed), (vec![Some(1), Some(2)], vec![Some(1), Some(2)]));
    for row in [1, 2] {
        let shown = store.show(MessageId::Number(row)).await.unwrap().unwrap();
        assert_eq!(
            (shown.sequence, shown.message.id),
            (Some(row), MessageId::text(&format!("failed-{row}"))),
            "not the other one"
        );
    }
    assert_eq!(work.settle(&store, &[]).await, []);
    assert_eq!(log.failed().await, 0);
}
