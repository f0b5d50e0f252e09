//! The commerce system's tables as they stand, in a schema of their own for every test.

#![allow(dead_code, reason = "each test target uses its own part of this module")]

use std::collections::HashMap;
use std::time::Duration;

use posthaste_core::lifecycle::{LeaseToken, Settlement, Verdict};
use posthaste_core::store::{Claim, ClaimRequest, DeadHead, KeyOrdering, Scope, WorkerId};
use posthaste_core::{MessageId, RelayStore};
use posthaste_postgres::{LogLayoutOptions, PostgresLogStore};
use posthaste_relay::RelayConfig;
use posthaste_sql::TableMap;
use posthaste_sql::table::BuiltinMap;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Executor, PgPool};

pub struct Log {
    pub pool: PgPool,
    pub map: TableMap,
}

impl Log {
    /// Seed tables, nothing in them.
    pub async fn fresh(connections: u32) -> Self {
        let schema = super::fresh_schema();
        let url: PgConnectOptions = super::server_url().parse().unwrap();
        let options = url.options([("search_path", schema.as_str())]);
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(Duration::from_mins(1))
            .connect_with(options)
            .await
            .unwrap();
        let builtin = BuiltinMap::find("commerce").unwrap();
        let sql = format!("create schema {schema}; {}", builtin.ddl);
        pool.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(sql))).await.unwrap();
        let map = builtin.map().unwrap();
        Self { pool, map }
    }

    /// A store that looks at failed rows with every claim.
    pub fn store(&self) -> PostgresLogStore {
        let options = LogLayoutOptions::of(&self.map).retry_interval(Duration::ZERO);
        PostgresLogStore::with_options(self.pool.clone(), self.map.clone(), options).unwrap()
    }

    /// The relay's settings that come with the map, with no wait between retries.
    pub fn config(&self) -> RelayConfig {
        let mut config: RelayConfig = serde_json::from_value(self.map.policy().clone().into()).unwrap();
        config.poll_interval = Duration::from_millis(20);
        config.max_poll_interval = Duration::from_millis(20);
        config
    }

    /// Appends as the application does; returns the event's id.
    pub async fn append<'e>(&self, on: impl Executor<'e, Database = sqlx::Postgres>, aggregate: &str) -> String {
        let event_id = uuid::Uuid::new_v4().to_string();
        sqlx::query(
            "insert into outbox (event_id, event_type, source, aggregate_type, aggregate_id, payload)
             values ($1, 'loopers.order.created.v1', 'commerce-api', 'Order', $2, jsonb_build_object('orderId', $2))",
        )
        .bind(&event_id)
        .bind(aggregate)
        .execute(on)
        .await
        .unwrap();
        event_id
    }

    /// Appends under an id that was taken before; returns the event's id.
    pub async fn append_as<'e>(
        &self,
        on: impl Executor<'e, Database = sqlx::Postgres>,
        id: i64,
        aggregate: &str,
    ) -> String {
        let event_id = uuid::Uuid::new_v4().to_string();
        sqlx::query(
            "insert into outbox (id, event_id, event_type, source, aggregate_type, aggregate_id, payload)
             values ($1, $2, 'loopers.order.created.v1', 'commerce-api', 'Order', $3, '{}')",
        )
        .bind(id)
        .bind(&event_id)
        .bind(aggregate)
        .execute(on)
        .await
        .unwrap();
        event_id
    }

    pub async fn number(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    pub async fn texts(&self, sql: &'static str) -> Vec<String> {
        sqlx::query_scalar(sql).fetch_all(&self.pool).await.unwrap()
    }

    pub async fn run(&self, sql: &'static str) {
        self.pool.execute(sqlx::raw_sql(sql)).await.unwrap();
    }

    pub async fn pool_run(&self, sql: &str) {
        let sql = sqlx::AssertSqlSafe(sql.to_owned());
        self.pool.execute(sqlx::raw_sql(sql)).await.unwrap();
    }

    /// The cursor as the application would read it.
    pub async fn cursor(&self) -> i64 {
        self.number("select last_processed_id from outbox_cursor order by created_at desc limit 1")
            .await
    }

    pub async fn failed(&self) -> i64 {
        self.number("select count(*) from outbox_failed").await
    }

    /// All failed rows are due.
    pub async fn make_due(&self) {
        self.run("update outbox_failed set next_retry_at = now() - interval '1 second'")
            .await;
    }
}

/// A claim of fresh and failed rows in order, as a relay makes it.
pub fn request(limit: u32) -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit,
        max_bytes: u64::from(u32::MAX),
        scan_limit: None,
        lease: Duration::from_secs(30),
        max_attempts: 11,
        ordering: KeyOrdering::PerKey {
            dead_head: DeadHead::Skip,
            except: Vec::new(),
        },
        scope: Scope::default(),
        left_out: Vec::new(),
        pipelined: false,
    }
}

/// A claim by hand.
pub struct Work {
    pub token: LeaseToken,
    pub claim: Claim,
}

impl Work {
    pub async fn claim(store: &PostgresLogStore, request: &ClaimRequest) -> Self {
        let token = LeaseToken::new();
        let claim = store
            .claim(&ClaimRequest {
                token,
                ..request.clone()
            })
            .await
            .unwrap();
        Self { token, claim }
    }

    pub fn events(&self) -> Vec<String> {
        self.claim
            .messages
            .iter()
            .map(|claimed| claimed.message.effective_event_id().into_owned())
            .collect()
    }

    pub fn keys(&self) -> Vec<String> {
        let key = |claimed: &posthaste_core::store::ClaimedMessage| {
            claimed.message.ordering_key.as_deref().map(str::to_owned)
        };
        self.claim.messages.iter().filter_map(key).collect()
    }

    pub fn id(&self, place: usize) -> MessageId {
        self.claim.messages[place].message.id
    }

    /// Settles all rows; those at the given places with verdicts of their own.
    pub async fn settle(&self, store: &PostgresLogStore, but: &[(usize, Verdict)]) -> Vec<MessageId> {
        let but: HashMap<usize, &Verdict> = but.iter().map(|(place, verdict)| (*place, verdict)).collect();
        let settlement = |(place, id): (usize, MessageId)| {
            let verdict = but.get(&place).map_or(Verdict::Delivered, |verdict| (*verdict).clone());
            let mut settlement = Settlement::delivered(id, self.token);
            settlement.verdict = verdict;
            settlement
        };
        let ids = self.claim.messages.iter().map(|claimed| claimed.message.id);
        let settlements: Vec<_> = ids.enumerate().map(settlement).collect();
        store.settle(&settlements).await.unwrap().lost
    }
}

pub fn retry(seconds: u64) -> Verdict {
    Verdict::Retry {
        delay: Duration::from_secs(seconds),
        error: "the broker said no".to_owned(),
    }
}

pub fn dead() -> Verdict {
    Verdict::Dead {
        error: "too large".to_owned(),
    }
}
