//! A sixth table, unlike any that Posthaste knows, mapped by TOML alone.

use std::time::Duration;

use posthaste_core::lifecycle::{Settlement, State};
use posthaste_core::store::{AdminStore, Filter, ProducerStore, PurgeRequest, RelayStore, SchemaStore};
use posthaste_core::{Message, MessageId, OutboxOptions};
use posthaste_testkit::{Fault, FaultyPublisher, RecordingPublisher, Rule, drain};

use super::tables::{MappedTable, UNUSUAL_DDL, request, unusual_map};

async fn fresh() -> MappedTable {
    MappedTable::new(UNUSUAL_DDL, unusual_map()).await
}

/// What its application does.
async fn insert(mapped: &MappedTable, key: &str, body: &str) {
    let insert = r#"insert into "Order; --" ("group by", "it's ""quoted""", "TOPIC") values (?1, ?2, 'lanes')"#;
    let insert = sqlx::query(insert).bind(key.to_owned()).bind(body.to_owned());
    insert.execute(mapped.store.pool()).await.unwrap();
}

fn bodies(broker: &RecordingPublisher) -> Vec<String> {
    let text = |payload: &[u8]| String::from_utf8(payload.to_vec()).unwrap();
    broker
        .deliveries()
        .iter()
        .map(|delivery| text(&delivery.message.payload))
        .collect()
}

#[tokio::test]
async fn it_is_delivered_in_order_per_key_through_retry_death_and_replay() {
    let mapped = fresh().await;
    for (key, body) in [("k", "k1"), ("k", "k2"), ("j", "j1"), ("k", "k3"), ("j", "j2")] {
        insert(&mapped, key, body).await;
    }
    let record = RecordingPublisher::new();
    let broker = FaultyPublisher::new(record.clone());
    broker.inject(
        Rule::new(Fault::transient())
            .when(|message| message.payload == "k1")
            .times(1),
    );
    broker.inject(
        Rule::new(Fault::permanent())
            .when(|message| message.payload == "j1")
            .times(1),
    );
    drain(mapped.store.clone(), broker.clone()).await;
    assert_eq!(
        bodies(&record),
        ["j2"],
        "k waits for its first, j goes on without its first"
    );

    let rows = r#"select group_concat("select" || ':' || coalesce("Tries", 0), ' ') from "Order; --""#;
    assert_eq!(mapped.text(rows).await, "15:1 10:0 -1:1 10:0 30:1");
    let stats = mapped.store.stats("default").await.unwrap();
    assert_eq!(
        (stats.pending, stats.waiting, stats.processing, stats.dead),
        (3, 1, 0, 1)
    );
    let dead = Filter {
        state: Some(State::Dead),
        ..Filter::default()
    };
    let listed = mapped.store.list(&dead, None, 10).await.unwrap();
    assert_eq!(
        (listed[0].message.id, listed[0].state),
        (MessageId::from(3), State::Dead)
    );
    assert!(listed[0].last_error.as_ref().unwrap().contains("refuses"));
    assert_eq!(mapped.store.replay(&dead, 10).await.unwrap(), [3.into()]);

    mapped
        .execute(r#"update "Order; --" set "where" = 0 where "select" = 15"#)
        .await;
    drain(mapped.store.clone(), broker.clone()).await;
    assert_eq!(record.ids().len(), 5);
    let of_k: Vec<_> = bodies(&record)
        .into_iter()
        .filter(|body| body.starts_with('k'))
        .collect();
    assert_eq!(of_k, ["k1", "k2", "k3"]);
    let done = r#"select count(*) from "Order; --" where "select" = 30 and abs("Möwe" / 1000 - unixepoch()) < 60
        and "Lease Owner" is null and "Lease'Ends" is null"#;
    assert_eq!(mapped.number(done).await, 5);
}

#[tokio::test]
async fn the_library_writes_it_too_and_says_which_ids_the_database_gave() {
    let mapped = fresh().await;
    insert(&mapped, "k", "before").await;
    let messages = (0..3)
        .map(|n| Message::new("lanes", format!("b{n}")).key("k"))
        .collect();
    let outcomes = mapped
        .store
        .enqueue_and_commit(&OutboxOptions::default(), messages)
        .await
        .unwrap();
    assert!(outcomes.iter().all(|outcome| outcome.is_new()));
    let ids: Vec<_> = outcomes.iter().map(|outcome| outcome.id()).collect();
    assert_eq!(ids, [2.into(), 3.into(), 4.into()]);
    let record = mapped.store.show(3.into()).await.unwrap().unwrap();
    assert_eq!((record.message.payload.as_ref(), record.attempts), (b"b1".as_ref(), 0));
    let broker = RecordingPublisher::new();
    drain(mapped.store.clone(), broker.clone()).await;
    assert_eq!(bodies(&broker), ["before", "b0", "b1", "b2"]);
}

#[tokio::test]
async fn pages_purge_and_discard_work_on_it() {
    let mapped = fresh().await;
    for n in 0..5 {
        insert(&mapped, "k", &format!("b{n}")).await;
    }
    // A row in a state of its owner's own is none of ours.
    mapped
        .execute(r#"update "Order; --" set "select" = 99 where "Id" = 2"#)
        .await;
    let page = mapped.store.list(&Filter::default(), Some(1.into()), 2).await.unwrap();
    let ids: Vec<_> = page.iter().map(|record| record.message.id).collect();
    assert_eq!(ids, [3.into(), 4.into()]);
    assert!(mapped.store.show(2.into()).await.unwrap().is_none());

    let request = request();
    mapped.store.claim(&request).await.unwrap();
    let settlements: Vec<_> = [1, 3, 4]
        .map(|id| Settlement::delivered(id.into(), request.token))
        .into_iter()
        .chain([Settlement::dead(5.into(), request.token, "no")])
        .collect();
    assert!(mapped.store.settle(&settlements).await.unwrap().lost.is_empty());
    assert_eq!(
        mapped
            .store
            .purge(&PurgeRequest::older_than(Duration::from_mins(1), 10))
            .await
            .unwrap()
            .rows(),
        0,
        "too young"
    );
    mapped
        .execute(r#"update "Order; --" set "Möwe" = "Möwe" - 120000"#)
        .await;
    assert_eq!(
        mapped
            .store
            .purge(&PurgeRequest::older_than(Duration::from_mins(1), 2))
            .await
            .unwrap()
            .rows(),
        2
    );
    assert_eq!(
        mapped
            .store
            .purge(&PurgeRequest::older_than(Duration::from_mins(1), 10))
            .await
            .unwrap()
            .rows(),
        1
    );
    assert_eq!(mapped.store.discard(&Filter::default(), 10).await.unwrap(), [5.into()]);
    assert_eq!(mapped.text(r#"select group_concat("Id") from "Order; --""#).await, "2");
}

#[tokio::test]
async fn its_owner_keeps_its_schema() {
    let mapped = fresh().await;
    assert!(mapped.store.migrations().is_empty());
    assert!(mapped.store.migrate().await.unwrap().is_empty());
    assert!(mapped.store.applied().await.unwrap().is_empty());
    assert_eq!(
        mapped
            .number("select count(*) from sqlite_schema where type = 'table'")
            .await,
        1
    );
}

/// Nothing may be over too early where a column keeps whole seconds.
#[tokio::test]
async fn a_lease_in_whole_seconds_is_not_over_too_early() {
    let toml = super::tables::UNUSUAL_TOML
        .replace("'it''s \"quoted\"'", r#""it's \"quoted\"""#)
        .replace(
            "column = \"Lease'Ends\", kind = \"epoch_ms\"",
            "column = \"Lease'Ends\", kind = \"epoch_s\"",
        );
    let mapped = MappedTable::new(UNUSUAL_DDL, posthaste_sql::TableMap::from_toml(&toml).unwrap()).await;
    insert(&mapped, "k", "b").await;
    let mut request = request();
    request.lease = Duration::from_millis(900);
    let before = mapped
        .number("select cast(unixepoch('subsec') * 1000 as integer)")
        .await;
    mapped.store.claim(&request).await.unwrap();
    let until = mapped.number(r#"select "Lease'Ends" * 1000 from "Order; --""#).await;
    assert!(until >= before + 900 && until < before + 60_000, "{before} {until}");
}
