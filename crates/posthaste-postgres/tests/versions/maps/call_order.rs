//! Calls one after the other, where a table is ordered by time and id.

use posthaste_core::Message;
use posthaste_sql::TableMap;

use super::place::{Place, claim, request};

const DDL: &str = "create table outbox (id uuid primary key, topic text not null, k text, body text not null,
    status text not null, tries integer not null, who text, until timestamptz, at TYPE not null);
    create index on outbox (status, at, id)";

const MAP: &str = r#"
    name = "by time"
    order = ["created_at", "id"]
    topic = "column"
    [tables]
    outbox = "outbox"
    [columns]
    id = "id"
    topic = "topic"
    ordering_key = "k"
    payload = { column = "body", kind = "text" }
    status = "status"
    attempts = "tries"
    locked_by = { column = "who", kind = "text" }
    locked_until = "until"
    created_at = { column = "at", kind = "KIND" }
    [states]
    pending = "new"
    processing = "busy"
    delivered = "done"
    dead = "dead"
"#;

/// Proves B15.
#[tokio::test]
async fn rows_of_later_calls_come_behind_where_time_and_id_say_it() {
    for (kind, of_type) in [
        ("timestamptz", "timestamptz"),
        ("timestamp", "timestamp"),
        ("epoch_us", "bigint"),
    ] {
        let map = TableMap::from_toml(&MAP.replace("KIND", kind)).unwrap();
        let place = Place::new(map, &DDL.replace("TYPE", of_type), 2).await;
        let mut messages: Vec<_> = (0..1000).map(|n| Message::new("t", n.to_string()).key("k")).collect();
        messages.sort_by_key(|message| std::cmp::Reverse(message.id));
        let expected: Vec<_> = messages.iter().map(|message| message.payload.clone()).collect();
        let later = messages.split_off(900);
        place.enqueue(messages).await.unwrap();
        for message in later {
            place.enqueue(vec![message]).await.unwrap();
        }
        let claimed = claim(&place.store, &request(1000)).await.messages;
        let found: Vec<_> = claimed.into_iter().map(|claimed| claimed.message.payload).collect();
        assert_eq!(found, expected, "{kind}");
        place.dispose().await;
    }
}
