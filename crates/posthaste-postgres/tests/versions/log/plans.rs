//! Claims beside a large table of failures, with the indexes that `maps check` proposes.

use posthaste_core::store::SchemaStore;
use posthaste_postgres::PostgresCatalogue;
use posthaste_sql::table::Database;
use posthaste_sql::table::catalogue::describe_all;
use posthaste_sql::table::check::check;
use sqlx::{AssertSqlSafe, Executor, Row};

use crate::support::log::Log;

/// The plan of a statement with these arguments.
async fn plan(log: &Log, name: &str, arguments: &str) -> String {
    let statements = log.store().statements();
    let (_, sql) = statements.iter().find(|(statement, _)| *statement == name).unwrap();
    let mut tx = log.pool.begin().await.unwrap();
    let run = format!(
        "set local plan_cache_mode = force_generic_plan; prepare hot as {sql};
         explain (analyze, buffers off, timing off, costs off) execute hot({arguments});"
    );
    let rows = tx.fetch_all(sqlx::raw_sql(AssertSqlSafe(run))).await.unwrap();
    tx.rollback().await.unwrap();
    log.run("deallocate all").await;
    rows.iter().map(|row| row.get::<String, _>(0) + "\n").collect()
}

/// Proves pitfall 28.
#[tokio::test]
async fn with_the_proposed_indexes_no_claim_reads_the_whole_table_of_failures() {
    let log = Log::fresh(1).await;
    log.run(
        "insert into outbox (event_id, event_type, source, aggregate_type, aggregate_id, payload)
         select n::text, 'loopers.order.created.v1', 's', 'Order', (n % 5000)::text, '{}' from generate_series(1, 50000) n;
         insert into outbox_failed (event_id, event_type, source, aggregate_type, aggregate_id, payload, retry_count)
         select event_id, event_type, source, aggregate_type, aggregate_id, payload, 10 from outbox where id <= 40000;
         analyze",
    )
    .await;
    let hot = [
        (
            "read",
            "'{49000}', '{9223372036854775807}', 100, 1000000, 10, 'outbox'",
            "outbox_failed_event",
        ),
        (
            "read",
            "'{49000}', '{9223372036854775807}', 100, 1000000, 10, 'outbox'",
            "outbox_failed_lane",
        ),
        ("fail", "'{49001}', '{0}', '{e}', '{0}', '{f}'", "outbox_failed_event"),
    ];
    for (name, arguments, _) in hot {
        let before = plan(&log, name, arguments).await;
        assert!(before.contains("Seq Scan on outbox_failed"), "{name}:\n{before}");
    }
    let catalogue = PostgresCatalogue::new(log.pool.clone());
    let findings = async || {
        check(
            &log.map,
            &describe_all(&log.map, &catalogue).await.unwrap(),
            Database::Postgres,
        )
    };
    let fixes: Vec<String> = findings().await.into_iter().filter_map(|finding| finding.fix).collect();
    assert_eq!(fixes.len(), 2, "{fixes:?}");
    for fix in fixes {
        log.pool_run(&fix).await;
    }
    assert_eq!(findings().await, []);
    for (name, arguments, index) in hot {
        let after = plan(&log, name, arguments).await;
        assert!(after.contains(index), "{name} does not use {index}:\n{after}");
        assert!(!after.contains("Seq Scan on outbox_failed"), "{name}:\n{after}");
    }
}
