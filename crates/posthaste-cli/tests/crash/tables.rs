//! The tables of a world: Posthaste's own, or existing ones.

use std::path::Path;

use posthaste_core::enqueue::{EnqueueError, Enqueued};
use posthaste_core::store::{AdminStore, OutboxStats, RelayStore, SchemaStore, StoreError};
use posthaste_core::validate::TypeNameRule;
use posthaste_core::{Message, OutboxOptions};
use posthaste_postgres::{PostgresLogStore, PostgresStore};
use posthaste_sql::TableMap;
use posthaste_sql::table::{BuiltinMap, Strategy};
use sqlx::{PgConnection, PgPool};

/// Tables, one way to claim their rows each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tables {
    /// Posthaste's own queue, with fresh and waiting rows apart.
    Native,
    /// Posthaste's own log, of so many shards. Its segments come and go within seconds.
    NativeLog { shards: u32 },
    /// Existing ones, claimed under leases.
    Leased,
    /// Those of a map that ships.
    BuiltinMap(&'static str),
}

const LEASED: &str = include_str!("leased.toml");

const LEASED_TABLE: &str = "create table leased (
    id uuid primary key, number bigint generated always as identity unique, goes_to text not null, about text,
    body bytea not null, stands text not null, tries int not null default 0, due timestamptz, claim uuid,
    held_until timestamptz, problem text, made timestamptz not null default now()
)";

impl Tables {
    /// The map, and the statements that make the tables.
    pub fn map(self) -> Option<(TableMap, &'static str)> {
        match self {
            Self::Native | Self::NativeLog { .. } => None,
            Self::Leased => Some((TableMap::from_toml(LEASED).unwrap(), LEASED_TABLE)),
            Self::BuiltinMap(name) => {
                let builtin = BuiltinMap::find(name).unwrap();
                Some((builtin.map().unwrap(), builtin.ddl))
            }
        }
    }

    /// The relays' setting of the database.
    pub fn setting(self, dir: &Path) -> String {
        match self {
            Self::Native => String::new(),
            Self::NativeLog { .. } => {
                "layout = \"log\"\nlog = { segment_age = \"1s\", segment_rows = 2000 }".to_owned()
            }
            Self::Leased => {
                let file = dir.join("leased.toml");
                std::fs::write(&file, LEASED).unwrap();
                format!("map = \"{}\"", file.display())
            }
            Self::BuiltinMap(name) => format!("map = \"{name}\""),
        }
    }

    /// Their settings of time.
    pub fn times(self) -> &'static str {
        match self {
            // Each shard's reader has a connection of its own, which are opened in turn when a relay begins.
            Self::NativeLog { .. } => "lease = \"1500ms\"\njanitor_interval = \"300ms\"\nretention = \"0s\"",
            Self::Native | Self::Leased | Self::BuiltinMap(_) => "lease = \"600ms\"",
        }
    }

    /// An event that the tables have room for.
    pub fn event(self, topic: &str, key: &str, n: i64) -> Message {
        let body = serde_json::json!({"key": key, "n": n});
        match self {
            Self::Native | Self::NativeLog { .. } | Self::Leased => Message::json(topic, &body).unwrap().key(key),
            Self::BuiltinMap("commerce") => Message::json("order-events", &body)
                .unwrap()
                .event_type("loopers.order.created.v1")
                .source("crash")
                .aggregate("Order", key),
            Self::BuiltinMap(_) => Message::json("order-events", &body)
                .unwrap()
                .event_type("OrderPlaced")
                .aggregate("Order", key),
        }
    }
}

/// A store over them.
pub enum Store {
    Rows(PostgresStore),
    Log(PostgresLogStore),
}

impl Store {
    /// Over existing tables.
    pub fn mapped(pool: PgPool, map: TableMap) -> Self {
        if map.strategy() == Strategy::Log {
            Self::Log(PostgresLogStore::new(pool, map).unwrap())
        } else {
            Self::Rows(PostgresStore::with_map(pool, map).unwrap())
        }
    }

    /// Posthaste's own, made anew.
    pub async fn native(pool: PgPool, schema: &str) -> Self {
        let store = PostgresStore::in_schema(pool, schema).unwrap();
        store.migrate().await.unwrap();
        Self::Rows(store)
    }

    /// Posthaste's own log, made anew.
    pub async fn native_log(pool: PgPool, schema: &str, shards: u32) -> Self {
        let store = PostgresLogStore::new(pool, TableMap::native_log(schema).unwrap()).unwrap();
        store.migrate().await.unwrap();
        store.tables().unwrap().raise_shards(shards).await.unwrap();
        Self::Log(store)
    }

    pub async fn enqueue(&self, tx: &mut PgConnection, messages: Vec<Message>) -> Result<Vec<Enqueued>, EnqueueError> {
        let options = OutboxOptions::new().type_names(TypeNameRule::Any);
        match self {
            Self::Rows(store) => store.outbox(options).enqueue_all(tx, messages).await,
            Self::Log(store) => store.outbox(options).enqueue_all(tx, messages).await,
        }
    }

    /// An operator's verbs.
    pub fn admin(&self) -> &dyn AdminStore {
        match self {
            Self::Rows(store) => store,
            Self::Log(store) => store,
        }
    }

    pub async fn stats(&self) -> Result<OutboxStats, StoreError> {
        match self {
            Self::Rows(store) => store.stats("default").await,
            Self::Log(store) => store.stats("default").await,
        }
    }
}
