//! Text primary keys of any length.

use posthaste_core::lifecycle::State;
use posthaste_core::store::Filter;
use posthaste_core::{AdminStore, MessageId};
use posthaste_mysql::MySqlStore;
use posthaste_relay::{Relay, RelayConfig};
use posthaste_sql::TableMap;
use posthaste_testkit::{FaultyPublisher, RecordingPublisher};

use crate::support;

const DDL: &str = "create table long_ids (id varchar(600) primary key, body varchar(100) not null,
    status varchar(10) not null default 'NEW', tries int not null default 0, who varchar(80), until bigint, error text)";

const MAP: &str = r#"
    name = "long"
    order = ["id"]
    topic = { fixed = "long" }
    [tables]
    outbox = "long_ids"
    [columns]
    id = { column = "id", kind = "text" }
    payload = { column = "body", kind = "text" }
    status = "status"
    attempts = "tries"
    locked_by = { column = "who", kind = "text" }
    locked_until = { column = "until", kind = "epoch_ms" }
    last_error = "error"
    [states]
    pending = "NEW"
    processing = "BUSY"
    delivered = "SENT"
    dead = "DEAD"
"#;

/// In order: two that differ only at their ends, one longer than an id is held in place, and one that looks like a number.
fn ids() -> Vec<String> {
    let tail = "x".repeat(70);
    vec![
        "7".to_owned(),
        format!("order-{tail}a"),
        format!("order-{tail}b"),
        format!("q{}", tail.repeat(5)),
    ]
}

/// Proves A9.
#[tokio::test]
async fn rows_with_long_text_ids_are_delivered_once_under_their_own_ids() {
    let pool = support::pool(4).await;
    support::run(&pool, DDL).await;
    let store = MySqlStore::with_map(pool.clone(), TableMap::from_toml(MAP).unwrap()).unwrap();
    let ids = ids();
    for id in &ids {
        support::run(
            &pool,
            format!("insert into long_ids (id, body) values ('{id}', '{{}}')"),
        )
        .await;
    }
    let broker = FaultyPublisher::new(RecordingPublisher::new());
    broker.refuse([MessageId::text(&ids[1])]);
    let relay = || Relay::new(store.clone(), broker.clone()).config(RelayConfig::default());
    let report = relay().drain().await.unwrap();
    assert_eq!((report.delivered, report.died), (3, 1));
    let dead = Filter {
        state: Some(State::Dead),
        ..Filter::default()
    };
    let replayed = store.replay(&dead, 10).await.unwrap();
    assert_eq!(replayed, [MessageId::text(&ids[1])]);
    broker.heal();
    assert_eq!(relay().drain().await.unwrap().delivered, 1);
    let mut published: Vec<String> = broker
        .inner()
        .deliveries()
        .iter()
        .map(|delivery| delivery.message.effective_event_id().into_owned())
        .collect();
    published.sort();
    assert_eq!(published, ids, "each row once, under the id that it has in its table");
}
