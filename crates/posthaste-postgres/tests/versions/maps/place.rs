//! A table in a schema of its own, and a relay's hands on it.

use std::time::{Duration, Instant};

use posthaste_core::lifecycle::LeaseToken;
use posthaste_core::store::{Claim, ClaimRequest, DeadHead, KeyOrdering, Scope, WorkerId};
use posthaste_core::validate::TypeNameRule;
use posthaste_core::{EnqueueError, Enqueued, Message, MessageId, OutboxOptions, RelayStore};
use posthaste_postgres::PostgresStore;
use posthaste_relay::RelayConfig;
use posthaste_sql::TableMap;
use posthaste_sql::table::BuiltinMap;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor, PgPool};

use crate::support;

pub struct Place {
    pub store: PostgresStore,
    pub map: TableMap,
    pub schema: String,
}

impl Place {
    /// The tables of a map that ships with Posthaste, as their owner creates them.
    pub async fn builtin(name: &str, connections: u32) -> Self {
        let builtin = BuiltinMap::find(name).unwrap();
        Self::new(builtin.map().unwrap(), builtin.ddl, connections).await
    }

    pub async fn new(map: TableMap, ddl: &str, connections: u32) -> Self {
        let schema = support::fresh_schema();
        let create = format!("create schema {schema}");
        let any = support::pool(1).await;
        any.execute(AssertSqlSafe(create)).await.unwrap();
        let store = PostgresStore::with_map(pool(&schema, connections).await, map.clone()).unwrap();
        let place = Self { store, map, schema };
        place.run(ddl).await;
        place
    }

    /// Another process: a pool of its own on the same tables.
    pub async fn another(&self, connections: u32) -> PostgresStore {
        elsewhere(&self.schema, self.map.clone(), connections).await
    }

    pub async fn run(&self, sql: &str) {
        let mut conn = pool(&self.schema, 1).await.acquire().await.unwrap().detach();
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        conn.execute(sql).await.unwrap();
    }

    /// Rows of one text column.
    pub async fn texts(&self, sql: &str) -> Vec<Option<String>> {
        let mut conn = pool(&self.schema, 1).await.acquire().await.unwrap().detach();
        let query = sqlx::query_scalar(AssertSqlSafe(sql.to_owned()));
        query.fetch_all(&mut conn).await.unwrap()
    }

    pub async fn text(&self, sql: &str) -> String {
        self.texts(sql).await.remove(0).unwrap_or_default()
    }

    pub async fn enqueue(&self, messages: Vec<Message>) -> Result<Vec<Enqueued>, EnqueueError> {
        enqueue(&self.store, messages).await
    }

    /// The settings that the map comes with.
    pub fn policy(&self) -> RelayConfig {
        RelayConfig::with_policy(self.map.policy()).unwrap()
    }

    pub async fn dispose(self) {
        self.store.pool().close().await;
        let sql = format!("drop schema {} cascade", self.schema);
        support::pool(1).await.execute(AssertSqlSafe(sql)).await.unwrap();
    }
}

/// A store with a pool of its own, on the runtime that asks.
pub async fn elsewhere(schema: &str, map: TableMap, connections: u32) -> PostgresStore {
    PostgresStore::with_map(pool(schema, connections).await, map).unwrap()
}

async fn pool(schema: &str, connections: u32) -> PgPool {
    let options: PgConnectOptions = support::server_url().parse().unwrap();
    let options = options.options([("search_path", schema)]);
    let pool = PgPoolOptions::new().max_connections(connections);
    pool.connect_with(options).await.unwrap()
}

pub async fn enqueue(store: &PostgresStore, messages: Vec<Message>) -> Result<Vec<Enqueued>, EnqueueError> {
    let mut tx = store.pool().begin().await.unwrap();
    let options = OutboxOptions::new().type_names(TypeNameRule::Any);
    let outcomes = store.outbox(options).enqueue_all(&mut tx, messages).await?;
    tx.commit().await.unwrap();
    Ok(outcomes)
}

pub fn request(limit: u32) -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit,
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

pub fn unordered(limit: u32) -> ClaimRequest {
    ClaimRequest {
        ordering: KeyOrdering::None,
        ..request(limit)
    }
}

pub async fn claim(store: &PostgresStore, request: &ClaimRequest) -> Claim {
    store.claim(request).await.unwrap()
}

pub fn ids(claim: &Claim) -> Vec<MessageId> {
    claim.messages.iter().map(|claimed| claimed.message.id).collect()
}

/// Waits for a condition, for long on a slow machine.
pub async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !condition().await {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
