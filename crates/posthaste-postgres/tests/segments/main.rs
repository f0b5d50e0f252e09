//! Segments of the log that come and go, while writers of every kind are at work; and the move from the queue.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[allow(dead_code, reason = "each test target uses its own part of this module")]
#[path = "../support/mod.rs"]
mod support;

mod moving;
mod reading;
mod retiring;
mod rights;
mod shards;
mod view;
mod writers;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use posthaste_core::store::SchemaStore;
use posthaste_postgres::{LogLayoutOptions, LogTables, PostgresLogStore};
use posthaste_sql::TableMap;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Executor, PgPool, Row};
use uuid::Uuid;

use crate::support::{fresh_schema, pool};

/// A log of its own.
pub(crate) struct Log {
    pub(crate) store: PostgresLogStore,
    pub(crate) tables: LogTables,
    pub(crate) schema: String,
}

impl Log {
    /// One whose segments are due whenever there is a row in them.
    pub(crate) async fn fresh(connections: u32) -> Self {
        Self::in_schema(pool(connections).await, fresh_schema()).await
    }

    pub(crate) async fn in_schema(pool: PgPool, schema: String) -> Self {
        let map = TableMap::native_log(&schema).unwrap();
        let options = LogLayoutOptions::of(&map).segment_age(Duration::ZERO);
        let store = PostgresLogStore::with_options(pool, map, options).unwrap();
        store.migrate().await.expect("migrations apply");
        let tables = store.tables().unwrap().clone();
        Self { store, tables, schema }
    }

    pub(crate) fn pool(&self) -> &PgPool {
        self.store.pool()
    }

    /// A statement with the schema's name put in.
    pub(crate) fn sql(&self, sql: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(sql.replace("{schema}", &self.schema))
    }

    pub(crate) async fn run(&self, sql: &str) {
        self.pool().execute(sqlx::raw_sql(self.sql(sql))).await.unwrap();
    }

    pub(crate) async fn rows(&self, sql: &str) -> Vec<PgRow> {
        sqlx::query(self.sql(sql)).fetch_all(self.pool()).await.unwrap()
    }

    pub(crate) async fn count(&self, sql: &str) -> i64 {
        sqlx::query_scalar(self.sql(sql)).fetch_one(self.pool()).await.unwrap()
    }

    /// Appends so many rows.
    pub(crate) async fn append(&self, rows: usize) {
        let insert = format!(
            "insert into {{schema}}.log (topic, ordering_key, payload)
             select 't', (i % 7)::text, 'p' from generate_series(1, {rows}) i"
        );
        self.run(&insert).await;
    }

    /// The segments whose tables are there.
    pub(crate) async fn segments(&self) -> BTreeSet<i64> {
        let rows = self
            .rows(
                "select segment from {schema}.log_segments
                 where to_regclass(format('{schema}.%I', 'log_' || segment)) is not null",
            )
            .await;
        rows.iter().map(|row| row.get(0)).collect()
    }

    /// Everything that was given out is settled.
    pub(crate) async fn settle_all(&self) {
        self.run(
            "update {schema}.log_shards s set state = n.last || ';', position = n.last, hi = n.last
             from (select shard, pg_sequence_last_value(('{schema}.log_shard_' || shard || '_seq')::regclass) as last
                 from {schema}.log_shards) n
             where n.shard = s.shard and n.last is not null",
        )
        .await;
    }
}

/// A reader that delivers what it sees, and leaves open what it has not seen.
#[derive(Default)]
pub(crate) struct Reader {
    pub(crate) seen: BTreeSet<Uuid>,
    by_shard: BTreeMap<i32, BTreeSet<i64>>,
}

impl Reader {
    /// Reads all rows that are there, and then says so.
    pub(crate) async fn read(&mut self, log: &Log) {
        for row in log.rows("select shard, seq, id from {schema}.log").await {
            let (shard, seq): (i32, i64) = (row.get(0), row.get(1));
            self.by_shard.entry(shard).or_default().insert(seq);
            self.seen.insert(row.get(2));
        }
        for (shard, seen) in &self.by_shard {
            let state = state(seen);
            log.run(&format!(
                "update {{schema}}.log_shards set state = '{state}' where shard = {shard}"
            ))
            .await;
        }
    }
}

/// `hi;a-b,c-d` of a reader that has settled these.
fn state(settled: &BTreeSet<i64>) -> String {
    let hi = settled.last().copied().unwrap_or_default();
    let mut text = format!("{hi};");
    let mut next = 1;
    let mut separator = "";
    for seq in settled {
        if *seq > next {
            write!(text, "{separator}{next}-{}", seq - 1).unwrap();
            separator = ",";
        }
        next = seq + 1;
    }
    text
}
