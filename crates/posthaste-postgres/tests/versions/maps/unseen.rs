//! A table that nobody has seen before, mapped by TOML alone.

use posthaste_core::lifecycle::State;
use posthaste_core::store::Filter;
use posthaste_core::{AdminStore, Message, MessageId, RelayStore};
use posthaste_relay::{Relay, RelayConfig};
use posthaste_sql::TableMap;
use posthaste_testkit::{FaultyPublisher, RecordingPublisher};

use super::place::Place;

const DDL: &str = r#"
    create type "Kind of Thing" as enum ('sel''ect', 'from');
    create table "Group by""Order" (
        "my id" integer generated always as identity primary key,
        "SELECT" text not null,
        "fröm;--" varchar(40),
        "User" bytea not null,
        "end" json,
        "select" smallint not null check ("select" in (0, 1, 2, 3)),
        "kind" "Kind of Thing",
        "tries" smallint,
        "who" varchar(80),
        "until" bigint,
        "at" bigint,
        "not before" bigint,
        "$1" text,
        "done" timestamp
    );"#;

const MAP: &str = r#"
    name = "unseen"
    order = ["id"]
    topic = "column"
    zone = "+02:00"
    [tables]
    outbox = "Group by\"Order"
    [columns]
    id = { column = "my id", kind = "integer", generated = true }
    topic = "SELECT"
    ordering_key = { column = "fröm;--", max = 40 }
    payload = { column = "User", kind = "bytes" }
    headers = { column = "end", kind = "json" }
    status = { column = "select", kind = "integer" }
    attempts = "tries"
    locked_by = { column = "who", kind = "text" }
    locked_until = { column = "until", kind = "epoch_ms" }
    created_at = { column = "at", kind = "epoch_us" }
    next_attempt_at = { column = "not before", kind = "epoch_s" }
    last_error = "$1"
    delivered_at = { column = "done", kind = "timestamp" }
    [states]
    pending = 0
    processing = 1
    delivered = 2
    dead = 3
"#;

async fn serve(toml: &str) {
    let place = Place::new(TableMap::from_toml(toml).unwrap(), DDL, 3).await;
    place.store.check().await.unwrap();
    let messages: Vec<_> = (0..6)
        .map(|n| {
            Message::new("t", vec![n, 0, 255])
                .key(format!("k{}", n % 2))
                .header("a", "b")
        })
        .collect();
    let outcomes = place.enqueue(messages).await.unwrap();
    let ids: Vec<_> = outcomes.into_iter().map(posthaste_core::Enqueued::id).collect();
    // The check may have used a number of the sequence up.
    let first = ids[0].number().unwrap();
    assert_eq!(ids, (first..first + 6).map(MessageId::Number).collect::<Vec<_>>());

    let broker = FaultyPublisher::new(RecordingPublisher::new());
    broker.refuse([ids[2]]);
    let relay = || Relay::new(place.store.clone(), broker.clone()).config(RelayConfig::default());
    let report = relay().drain().await.unwrap();
    assert_eq!((report.delivered, report.died), (5, 1));
    let delivery = broker.inner().deliveries().remove(0).message;
    assert_eq!(
        (delivery.payload.as_ref(), delivery.headers["a"].as_str()),
        (&[0, 0, 255][..], "b")
    );

    let dead = Filter {
        state: Some(State::Dead),
        ..Filter::default()
    };
    assert_eq!(place.store.list(&dead, None, 10).await.unwrap()[0].message.id, ids[2]);
    broker.heal();
    assert_eq!(place.store.replay(&dead, 10).await.unwrap(), [ids[2]]);
    assert_eq!(relay().drain().await.unwrap().delivered, 1);
    let words = r#"select string_agg(distinct "select"::text, ',') from "Group by""Order""#;
    assert_eq!(place.text(words).await, "2");
    let page = place.store.list(&Filter::default(), Some(ids[3]), 10).await.unwrap();
    assert_eq!(page.iter().map(|row| row.message.id).collect::<Vec<_>>(), ids[4..]);
    let age = r#"select max(abs(extract(epoch from "done" at time zone interval '+02:00' - now())))::int::text
        from "Group by""Order" where "done" is not null"#;
    if toml.contains("zone") {
        assert!(
            place.text(age).await.parse::<i32>().unwrap() < 120,
            "times are kept in the map's zone"
        );
    }
    let stats = place.store.stats("any").await.unwrap();
    assert_eq!((stats.pending, stats.processing, stats.dead), (0, 0, 0));
    place.dispose().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_with_leases_and_unusual_names_is_delivered_from() {
    serve(MAP).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_table_without_its_leases_is_delivered_from_by_locks() {
    let toml = MAP
        .lines()
        .filter(|line| !line.contains("locked_") && !line.contains("processing"))
        .collect::<Vec<_>>()
        .join("\n");
    serve(&toml).await;
}

/// A state and a type may be enums of the database's own.
#[tokio::test(flavor = "multi_thread")]
async fn enums_of_the_database_are_labels_like_others() {
    let ddl = "create type state as enum ('new', 'busy', 'done', 'gone');
        create type what as enum ('created', 'removed');
        create table o (id uuid primary key, what what, body jsonb, state state not null, tries int, who text,
            until timestamptz, at timestamptz)";
    let toml = r#"
        name = "enums"
        order = ["created_at", "id"]
        topic = { fixed = "t" }
        [tables]
        outbox = "o"
        [columns]
        id = "id"
        event_type = "what"
        payload = { column = "body", kind = "jsonb" }
        status = "state"
        attempts = "tries"
        locked_by = { column = "who", kind = "text" }
        locked_until = "until"
        created_at = "at"
        [states]
        pending = "new"
        processing = "busy"
        delivered = "done"
        dead = "gone"
    "#;
    let place = Place::new(TableMap::from_toml(toml).unwrap(), ddl, 3).await;
    place.store.check().await.unwrap();
    place
        .run("insert into o values (gen_random_uuid(), 'created', '{\"a\": 1}', 'new', null, null, null, null)")
        .await;
    let broker = RecordingPublisher::new();
    assert_eq!(
        Relay::new(place.store.clone(), broker.clone())
            .drain()
            .await
            .unwrap()
            .delivered,
        1
    );
    let message = broker.deliveries().remove(0).message;
    assert_eq!(
        (message.event_type.as_deref(), message.payload.as_ref()),
        (Some("created"), &b"{\"a\": 1}"[..])
    );
    assert_eq!(place.text("select state::text || tries from o").await, "done1");
    place.dispose().await;
}
