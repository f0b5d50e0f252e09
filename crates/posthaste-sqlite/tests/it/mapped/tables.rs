//! The tables, and what all tests do with them.

use std::time::Duration;

use posthaste_core::lifecycle::LeaseToken;
use posthaste_core::store::{Claim, ClaimRequest, DeadHead, KeyOrdering, RelayStore, Scope, WorkerId};
use posthaste_sql::TableMap;
use posthaste_sql::table::BuiltinMap;
use posthaste_sqlite::SqliteStore;
use sqlx::{AssertSqlSafe, Executor};
use tempfile::TempDir;

use crate::support;

/// A table that its owner made, and a store that serves it by a map.
pub struct MappedTable {
    pub store: SqliteStore,
    _directory: TempDir,
}

impl MappedTable {
    pub async fn new(ddl: &str, map: TableMap) -> Self {
        let (pool, directory) = support::pool(4).await;
        pool.execute(sqlx::raw_sql(AssertSqlSafe(ddl.to_owned())))
            .await
            .unwrap();
        let store = SqliteStore::with_map(pool, map).unwrap();
        store.check().await.unwrap();
        Self {
            store,
            _directory: directory,
        }
    }

    pub async fn execute(&self, sql: &str) {
        self.store.pool().execute(AssertSqlSafe(sql.to_owned())).await.unwrap();
    }

    pub async fn number(&self, sql: &str) -> i64 {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned()))
            .fetch_one(self.store.pool())
            .await
            .unwrap()
    }

    pub async fn text(&self, sql: &str) -> String {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned()))
            .fetch_one(self.store.pool())
            .await
            .unwrap()
    }

    pub async fn claim(&self) -> Claim {
        self.store.claim(&request()).await.unwrap()
    }
}

pub fn request() -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit: 10,
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

pub fn payloads(claim: &Claim) -> Vec<String> {
    let text = |payload: &[u8]| String::from_utf8(payload.to_vec()).unwrap();
    claim
        .messages
        .iter()
        .map(|claimed| text(&claimed.message.payload))
        .collect()
}

/// The usage outbox with SQLite's types: texts for ids, times and JSON.
pub const USAGE_DDL: &str = "
create table modkit_outbox_events (
    id text primary key,
    namespace text not null,
    topic text not null,
    tenant_id text null,
    dedupe_key text null,
    payload text not null,
    status text not null,
    attempts integer not null default 0,
    next_attempt_at text not null default (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    locked_by text null,
    locked_until text null,
    last_error text null,
    created_at text not null default (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    updated_at text not null default (strftime('%Y-%m-%d %H:%M:%f', 'now'))
);
create index modkit_outbox_events_claim on modkit_outbox_events (status, created_at, id);
create index modkit_outbox_events_due on modkit_outbox_events (status, next_attempt_at);
create index modkit_outbox_events_leases on modkit_outbox_events (locked_until);
create unique index modkit_outbox_events_dedupe on modkit_outbox_events (namespace, topic, dedupe_key)
    where dedupe_key is not null;
";

pub fn usage_map() -> TableMap {
    BuiltinMap::find("usage").unwrap().map().unwrap()
}

/// The donation outbox with SQLite's types.
pub const DONATION_DDL: &str = "
create table donation_outbox (
    id integer primary key autoincrement,
    version integer default 0,
    request_id text not null unique,
    event_type text not null,
    payload text not null,
    content_hash text not null,
    status text not null default 'PENDING',
    locked_by text,
    locked_at datetime,
    retry_count integer default 0,
    max_retries integer default 3,
    last_error text,
    next_retry_at datetime,
    created_at datetime,
    updated_at datetime
);
create index idx_pending_poll on donation_outbox (status, next_retry_at, id);
create index idx_locked on donation_outbox (locked_by, locked_at);
create table donation_dlq (
    id integer primary key autoincrement,
    original_id integer not null,
    request_id text not null,
    event_type text not null,
    payload text not null,
    reason text,
    created_at datetime
);
create index idx_request_id on donation_dlq (request_id);
";

pub fn donation_map() -> TableMap {
    BuiltinMap::find("donation").unwrap().map().unwrap()
}

/// A table that no design of ours knows: reserved words, mixed case, quotes, spaces, numbers for ids and states.
pub const UNUSUAL_DDL: &str = r#"
create table "Order; --" (
    "Id" integer primary key,
    "select" smallint not null default 10,
    "group by" text,
    "it's ""quoted""" text not null,
    "TOPIC" text not null,
    "Tries" integer,
    "where" integer,
    "Lease'Ends" integer,
    "Lease Owner" varchar(100),
    "/*if x*/" text,
    "created" integer not null default (unixepoch()),
    "Möwe" integer
);
"#;

pub const UNUSUAL_TOML: &str = r#"
name = "unusual"
order = ["created_at", "id"]
topic = "column"

[tables]
outbox = "Order; --"

[columns]
id = { column = "Id", kind = "integer", generated = true }
status = { column = "select", kind = "integer" }
ordering_key = "group by"
payload = { column = 'it''s "quoted"', kind = "text" }
topic = "topic"
attempts = "Tries"
next_attempt_at = { column = "where", kind = "epoch_us" }
locked_until = { column = "Lease'Ends", kind = "epoch_ms" }
locked_by = { column = "Lease Owner", kind = "text", max = 100 }
last_error = "/*if x*/"
created_at = { column = "created", kind = "epoch_s" }
delivered_at = { column = "Möwe", kind = "epoch_ms" }

[states]
pending = 10
waiting = 15
processing = 20
delivered = 30
dead = -1
"#;

pub fn unusual_map() -> TableMap {
    let toml = UNUSUAL_TOML.replace("'it''s \"quoted\"'", r#""it's \"quoted\"""#);
    TableMap::from_toml(&toml).unwrap()
}
