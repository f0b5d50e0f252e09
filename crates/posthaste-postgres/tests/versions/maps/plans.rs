//! The claim of any table with leases, with a backlog and an index in the table's order: it reads what it looks at.

use posthaste_core::store::SchemaStore;
use sqlx::{AssertSqlSafe, Executor, Row};

use super::place::Place;

const BACKLOG: u32 = 50_000;

async fn plan(place: &Place, name: &str, arguments: &str) -> String {
    let (_, sql) = place
        .store
        .statements()
        .into_iter()
        .find(|(statement, _)| *statement == name)
        .unwrap();
    let mut tx = place.store.pool().begin().await.unwrap();
    let run = format!(
        "set local plan_cache_mode = force_generic_plan; set local work_mem = '64MB'; prepare hot as {sql};
         explain (analyze, buffers off, timing off, costs off) execute hot({arguments});"
    );
    let rows = tx.fetch_all(sqlx::raw_sql(AssertSqlSafe(run))).await.unwrap();
    tx.rollback().await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(0) + "\n").collect()
}

/// Proves pitfall 28.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_reads_no_more_of_a_backlog_than_it_looks_at() {
    let place = Place::builtin("usage", 1).await;
    place
        .run(&format!(
            "insert into modkit_outbox_events (id, namespace, topic, payload, status, created_at)
             select gen_random_uuid(), 'default', 't', '{{}}', case when n % 2 = 0 then 'delivered' else 'pending' end,
                now() - interval '1 hour' + n * interval '1 millisecond' from generate_series(1, {BACKLOG}) n;
             analyze modkit_outbox_events"
        ))
        .await;
    let arguments = "'default', 10, null, null, 100, 1000000, gen_random_uuid()::text, 30000, false, '{}'";
    let plan = plan(&place, "claim_unordered", arguments).await;
    assert!(plan.contains("modkit_outbox_events_claim"), "not by the index:\n{plan}");
    assert!(!plan.contains("Seq Scan on modkit"), "reads the whole table:\n{plan}");
    let most = plan
        .split("rows=")
        .skip(1)
        .filter_map(|part| part.split([' ', ')', '.']).next()?.parse::<u32>().ok())
        .max();
    assert!(most.unwrap() <= 200, "touches {most:?} rows:\n{plan}");
    place.dispose().await;
}
