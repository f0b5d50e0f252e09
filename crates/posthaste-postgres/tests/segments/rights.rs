//! Who may do what with shards and segments that were made after rights were given.

use std::time::Duration;

use posthaste_postgres::{LogTables, SegmentLimits};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Executor, PgPool};

use crate::Log;
use crate::support::{fresh_schema, pool, server_url};

/// A pool of a user who is this role, and nobody else.
async fn pool_as(role: &str) -> PgPool {
    let become_role = format!("set role {role}");
    let pool = PgPoolOptions::new().max_connections(3).after_connect(move |conn, _| {
        let become_role = become_role.clone();
        Box::pin(async move { conn.execute(AssertSqlSafe(become_role)).await.map(drop) })
    });
    pool.connect(&server_url()).await.unwrap()
}

/// A log whose owner is no superuser, and a producer with the rights that the documentation says it needs.
struct Place {
    log: Log,
    owner: String,
    producer: String,
}

impl Place {
    async fn fresh() -> Self {
        let schema = fresh_schema();
        let (owner, producer) = (format!("o_{}", &schema[2..]), format!("p_{}", &schema[2..]));
        let admin = pool(1).await;
        let run = async |sql: String| admin.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
        run(format!(
            "create role {owner}; create role {producer}; create schema {schema} authorization {owner}"
        ))
        .await;
        let log = Log::in_schema(pool_as(&owner).await, schema.clone()).await;
        run(format!(
            "grant usage on schema {schema} to {producer}; grant usage on all sequences in schema {schema} to {producer};
             grant insert on {schema}.log, {schema}.log_failed to {producer};
             grant select (event_id) on {schema}.log_failed to {producer};
             grant select, insert, update on {schema}.outbox_dedupe to {producer}"
        ))
        .await;
        Self { log, owner, producer }
    }

    /// What the producer does after each change, on a connection that knows nothing of the time before.
    async fn produces(&self) {
        let pool = pool_as(&self.producer).await;
        for key in 0..20 {
            let insert =
                format!("insert into {{schema}}.log (topic, ordering_key, payload) values ('t', '{key}', 'p')");
            let enqueue = format!(
                "select * from {{schema}}.enqueue(topic => 't', key => '{key}', payload => 'p', dedupe_key => gen_random_uuid()::text)"
            );
            for sql in [insert, enqueue] {
                let done = pool.execute(sqlx::raw_sql(self.log.sql(&sql))).await;
                assert!(done.is_ok(), "{sql}: {done:?}");
            }
        }
        pool.close().await;
    }

    async fn dispose(self) {
        let admin = pool(1).await;
        let (owner, producer, schema) = (&self.owner, &self.producer, &self.log.schema);
        self.log.pool().close().await;
        let sql = format!("drop schema {schema} cascade; drop role {owner}, {producer}");
        admin.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
    }
}

#[tokio::test]
async fn a_producer_with_few_rights_writes_to_shards_whoever_made_them() {
    let place = Place::fresh().await;
    place.produces().await;
    place.log.tables.raise_shards(2).await.unwrap();
    place.produces().await;
    // By a superuser, who does not own the log.
    let by_admin = LogTables::in_schema(pool(2).await, &place.log.schema).unwrap();
    by_admin.raise_shards(3).await.unwrap();
    place.produces().await;
    place.log.tables.raise_shards(5).await.unwrap();
    place.produces().await;
    let used = place.log.count("select count(distinct shard) from {schema}.log").await;
    assert!(used > 6, "{used} shards were written to");
    place.dispose().await;
}

/// A grant may be passed on, or be for all; it is so for what is made later.
#[tokio::test]
async fn new_sequences_have_the_rights_of_the_old_ones_and_no_others() {
    let place = Place::fresh().await;
    let grants = format!(
        "grant select on sequence {{schema}}.log_shard_0_seq to {} with grant option;
         grant usage on sequence {{schema}}.log_shard_0_seq to public",
        place.producer
    );
    place.log.run(&grants).await;
    place.log.tables.raise_shards(2).await.unwrap();
    let rights = "select array_agg((a.grantee::regrole::text, a.privilege_type, a.is_grantable)::text
            order by a.grantee, a.privilege_type)
        from pg_class c cross join lateral aclexplode(c.relacl) a";
    let different = place
        .log
        .count(&format!(
            "select count(distinct ({rights} where c.oid = s.oid)) from pg_class s
             where s.relnamespace = '{{schema}}'::regnamespace and s.relname ~ '^log_shard_[0-9]+_seq$'"
        ))
        .await;
    assert_eq!(different, 1);
    place.dispose().await;
}

#[tokio::test]
async fn segments_that_a_superuser_made_are_dropped_by_the_owner_of_the_log() {
    let place = Place::fresh().await;
    let at_once = Some(Duration::ZERO);
    let limits = SegmentLimits::default().age(Duration::ZERO);
    let by_admin = LogTables::in_schema(pool(2).await, &place.log.schema)
        .unwrap()
        .limits(limits);
    for _ in 0..6 {
        place.produces().await;
        place.log.settle_all().await;
        by_admin.tend_segments(None).await.unwrap();
    }
    let last = *place.log.segments().await.last().unwrap();
    assert!(last > 5, "{last}");
    for _ in 0..4 {
        place.produces().await;
        place.log.settle_all().await;
        place.log.tables.tend_segments(at_once).await.unwrap();
    }
    let left = place.log.segments().await;
    assert!(!left.contains(&4) && !left.contains(&5), "{left:?}");
    place.dispose().await;
}

/// What a relay may do is not enough, and no grant would be.
#[tokio::test]
async fn who_raises_the_shards_or_moves_the_queue_is_told_to_be_the_owner() {
    let place = Place::fresh().await;
    let (schema, role) = (&place.log.schema, &place.producer);
    let grants = format!(
        "grant select, insert, update, delete on all tables in schema {schema} to {role};
         grant usage, select on all sequences in schema {schema} to {role}"
    );
    place.log.run(&grants).await;
    let tables = LogTables::in_schema(pool_as(role).await, schema).unwrap();
    for refused in [
        tables.raise_shards(2).await.map(|_| ()),
        tables.queue_move().fence().await.map(|_| ()),
    ] {
        let error = refused.unwrap_err().to_string();
        assert!(error.contains("permission denied"), "{error}");
        assert!(error.contains("run it as the owner of the log's tables"), "{error}");
        assert!(!error.contains("grant"), "{error}");
    }
    place.dispose().await;
}
