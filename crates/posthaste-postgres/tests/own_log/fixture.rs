//! A log of our own in a schema of its own, and who reads it.

use std::time::Duration;

use posthaste_core::lifecycle::{LeaseToken, Settlement, Verdict};
use posthaste_core::store::{ClaimRequest, ClaimedMessage, DeadHead, KeyOrdering, SchemaStore, Scope, WorkerId};
use posthaste_core::{Enqueued, Message, MessageId, OutboxOptions, RelayStore};
use posthaste_postgres::{LogLayoutOptions, PostgresLogStore};
use posthaste_sql::TableMap;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor, PgPool};

use crate::support;

pub(crate) struct Log {
    pub(crate) store: PostgresLogStore,
    pub(crate) pool: PgPool,
}

impl Log {
    pub(crate) async fn fresh() -> Self {
        Self::in_schema(&support::fresh_schema()).await
    }

    pub(crate) async fn in_schema(schema: &str) -> Self {
        Self::at(support::server_url().parse().unwrap(), schema).await
    }

    /// On a server that is reached by this address.
    pub(crate) async fn at(address: PgConnectOptions, schema: &str) -> Self {
        let map = TableMap::native_log(schema).unwrap();
        let quoted = format!("\"{}\"", schema.replace('"', "\"\""));
        let pool = PgPoolOptions::new()
            .max_connections(4)
            .after_connect(move |connection, _| {
                let sql = format!("set search_path = {quoted}");
                Box::pin(async move { connection.execute(AssertSqlSafe(sql)).await.map(drop) })
            })
            .connect_with(address.application_name(schema))
            .await
            .unwrap();
        let log = Self::over(pool, map);
        log.store.migrate().await.unwrap();
        log
    }

    pub(crate) fn over(pool: PgPool, map: TableMap) -> Self {
        let options = LogLayoutOptions::of(&map);
        Self::with_options(pool, map, options)
    }

    pub(crate) fn with_options(pool: PgPool, map: TableMap, options: LogLayoutOptions) -> Self {
        let options = options.retry_interval(Duration::ZERO);
        let store = PostgresLogStore::with_options(pool.clone(), map, options).unwrap();
        Self { store, pool }
    }

    /// The same for a role whose statements may take no longer than this.
    pub(crate) async fn with_statement_timeout(&self, limit: &str) -> Self {
        let address = (*self.pool.connect_options()).clone();
        let pool = PgPoolOptions::new()
            .max_connections(4)
            .connect_with(address.options([("statement_timeout", limit)]))
            .await
            .unwrap();
        Self::over(pool, self.store.map().clone())
    }

    /// The relay that read is gone without a word, and another one is there.
    pub(crate) fn after_a_crash(self) -> Self {
        Self::over(self.pool.clone(), self.store.map().clone())
    }

    pub(crate) async fn run(&self, sql: &str) {
        self.pool
            .execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned())))
            .await
            .unwrap();
    }

    pub(crate) async fn count(&self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&self.pool).await.unwrap()
    }

    pub(crate) async fn enqueue(&self, messages: Vec<Message>) -> Vec<Enqueued> {
        let mut tx = self.pool.begin().await.unwrap();
        let outbox = self.store.outbox(OutboxOptions::default());
        let outcomes = outbox.enqueue_all(&mut tx, messages).await.unwrap();
        tx.commit().await.unwrap();
        outcomes
    }

    pub(crate) async fn claim(&self, limit: u32) -> Vec<ClaimedMessage> {
        self.claim_as(LeaseToken::new(), limit).await
    }

    pub(crate) async fn claim_as(&self, token: LeaseToken, limit: u32) -> Vec<ClaimedMessage> {
        self.store.claim(&request(token, limit)).await.unwrap().messages
    }

    pub(crate) async fn settle(&self, token: LeaseToken, id: MessageId, verdict: Verdict) {
        let settlement = Settlement {
            id,
            token,
            verdict,
            version: None,
            without_letter: false,
        };
        let settled = self.store.settle(&[settlement]).await.unwrap();
        assert!(settled.lost.is_empty() && settled.refused.is_empty(), "{settled:?}");
    }
}

/// What a relay asks for whose dead messages block nothing.
pub(crate) fn request(token: LeaseToken, limit: u32) -> ClaimRequest {
    ClaimRequest {
        worker: WorkerId::new(),
        token,
        limit,
        max_bytes: u64::MAX,
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

pub(crate) fn numbered(range: std::ops::Range<usize>) -> Vec<Message> {
    let message = |n: usize| Message::new("orders", n.to_string()).key(format!("k{}", n % 7));
    range.map(message).collect()
}

pub(crate) fn payloads(claimed: &[ClaimedMessage]) -> Vec<String> {
    let payload = |claimed: &ClaimedMessage| String::from_utf8(claimed.message.payload.to_vec()).unwrap();
    claimed.iter().map(payload).collect()
}
