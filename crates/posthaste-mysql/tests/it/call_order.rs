//! Calls one after the other, where a table is ordered by time and id.

use std::time::Duration;

use posthaste_core::lifecycle::LeaseToken;
use posthaste_core::store::{ClaimRequest, DeadHead, KeyOrdering, ProducerStore, RelayStore, Scope, WorkerId};
use posthaste_core::{Message, OutboxOptions};
use posthaste_mysql::MySqlStore;
use posthaste_sql::TableMap;

use crate::support;

const DDL: &str = "create table outbox (id varchar(40) character set ascii primary key, topic varchar(40) not null,
    k varchar(40), body varchar(40) not null, status varchar(10) not null, tries int not null, who varchar(80),
    until datetime(6), at TYPE not null, key outbox_claim (status, at, id))";

const MAP: &str = r#"
    name = "by time"
    order = ["created_at", "id"]
    topic = "column"
    [tables]
    outbox = "outbox"
    [columns]
    id = { column = "id", kind = "text" }
    topic = "topic"
    ordering_key = "k"
    payload = { column = "body", kind = "text" }
    status = "status"
    attempts = "tries"
    locked_by = { column = "who", kind = "text" }
    locked_until = { column = "until", kind = "timestamp" }
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
    for (kind, of_type) in [("timestamp", "datetime(6)"), ("epoch_us", "bigint")] {
        let pool = support::pool(2).await;
        support::run(&pool, DDL.replace("TYPE", of_type)).await;
        let map = TableMap::from_toml(&MAP.replace("KIND", kind)).unwrap();
        let store = MySqlStore::with_map(pool.clone(), map).unwrap();
        let mut messages: Vec<_> = (0..300).map(|n| Message::new("t", n.to_string()).key("k")).collect();
        messages.sort_by_key(|message| std::cmp::Reverse(message.id));
        let expected: Vec<_> = messages.iter().map(|message| message.payload.clone()).collect();
        let later = messages.split_off(250);
        let options = OutboxOptions::default();
        store.enqueue_and_commit(&options, messages).await.unwrap();
        for message in later {
            store.enqueue_and_commit(&options, vec![message]).await.unwrap();
        }
        let claim = store.claim(&all()).await.unwrap();
        let found: Vec<_> = claim
            .messages
            .into_iter()
            .map(|claimed| claimed.message.payload)
            .collect();
        assert_eq!(found, expected, "{kind}");
        support::drop_database(&pool).await;
    }
}

fn all() -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit: 1000,
        max_bytes: 1 << 20,
        scan_limit: None,
        lease: Duration::from_secs(30),
        max_attempts: 5,
        ordering: KeyOrdering::PerKey {
            dead_head: DeadHead::Skip,
            except: Vec::new(),
        },
        scope: Scope::default(),
        left_out: Vec::new(),
        pipelined: false,
    }
}
