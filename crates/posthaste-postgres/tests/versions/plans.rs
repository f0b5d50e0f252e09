//! Plans at a backlog of 200,000 rows: every hot statement walks an index in its own order and stops at its limit.

use posthaste_core::store::SchemaStore;
use posthaste_postgres::PostgresStore;
use sqlx::{AssertSqlSafe, Connection, Executor, Row};

use crate::support;

const BACKLOG: i64 = 200_000;

/// An outbox with a backlog of fresh rows, a pile of delivered ones, and some of every other kind. Statistics were taken
/// while the table was empty, as on the day of the first burst.
async fn loaded() -> (PostgresStore, String) {
    let store = support::store(2).await;
    let schema = store.channel().replace("posthaste:", "");
    let sql = format!(
        "analyze {schema}.outbox; alter table {schema}.outbox set (autovacuum_enabled = off);
         insert into {schema}.outbox (id, namespace, topic, ordering_key, payload, status, attempts, created_at,
            next_attempt_at, locked_until, lease_token, delivered_at)
         select gen_random_uuid(), 'default', 'orders', 'k' || n % 2000, convert_to(repeat('x', 300), 'UTF8'), kind, 0,
            now() - interval '1 hour',
            now() - interval '1 hour' + case when kind = 'waiting' then interval '30 minutes' else interval '0' end,
            now() + interval '1 hour', gen_random_uuid(), now()
         from (select n, 'pending' as kind from generate_series(1, {BACKLOG}) n
            union all select n, 'delivered' from generate_series(1, {BACKLOG}) n
            union all select n, 'processing' from generate_series(1, 500) n
            union all select n, 'dead' from generate_series(1, 500) n) rows;
         update {schema}.outbox set next_attempt_at = now() - interval '1 second', attempts = 1
            where id in (select id from {schema}.outbox where status = 'pending' order by seq desc limit 500);"
    );
    store.pool().execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
    (store, schema)
}

/// The plan of a statement with these arguments, as it runs: prepared, with a generic plan, and executed.
async fn plan(store: &PostgresStore, name: &str, arguments: &str) -> String {
    let (_, sql) = store
        .statements()
        .into_iter()
        .find(|(statement, _)| *statement == name)
        .unwrap();
    let mut conn = store.pool().acquire().await.unwrap();
    let mut tx = conn.begin().await.unwrap();
    // An operator's page is planned for its arguments, the rest for any.
    let mode = if name == "list" { "custom" } else { "generic" };
    let run = format!(
        "set local plan_cache_mode = force_{mode}_plan; set local work_mem = '64MB'; prepare hot as {sql};
         explain (analyze, buffers off, timing off, costs off) execute hot({arguments});"
    );
    let rows = tx.fetch_all(sqlx::raw_sql(AssertSqlSafe(run))).await.unwrap();
    tx.rollback().await.unwrap();
    conn.execute("deallocate all").await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(0) + "\n").collect()
}

/// The most rows that any one node of the plan produced or threw away. PostgreSQL 18 prints `rows=1.00`.
fn most_rows(plan: &str) -> i64 {
    let actual = plan
        .split("rows=")
        .skip(1)
        .filter_map(|part| part.split([' ', ')', '.']).next()?.parse::<i64>().ok());
    let removed = plan
        .split("Removed by Filter: ")
        .skip(1)
        .filter_map(|part| part.lines().next()?.parse().ok());
    actual.chain(removed).max().unwrap_or(0)
}

const SCOPE: &str = "'default', 10, null, null";
const LEASE: &str = "100, 1000000, gen_random_uuid(), gen_random_uuid(), 30000";

/// Checks that a statement walks its index and touches no more than it needs.
async fn check(store: &PostgresStore, name: &str, arguments: &str, index: &str) {
    let plan = plan(store, name, arguments).await;
    assert!(plan.contains(index), "{name} does not use {index}:\n{plan}");
    assert!(
        !plan.contains("Seq Scan on outbox"),
        "{name} reads the whole table:\n{plan}"
    );
    assert!(
        !plan.contains("<> ALL"),
        "{name} reads the list of rows that are left out once for each row:\n{plan}"
    );
    assert!(
        most_rows(&plan) <= 2_000,
        "{name} touches {} rows:\n{plan}",
        most_rows(&plan)
    );
}

/// With the statistics of an empty table, as at the first burst, and with true ones, from which a generic plan expects a
/// limit it does not know to be a tenth of the table. Half of the keys are in flight or wait for a retry, so the ordered
/// claim has to look past some of them.
///
/// Proves pitfalls 27, 28.
#[tokio::test]
async fn hot_statements_touch_no_more_than_they_need() {
    let (store, schema) = loaded().await;
    for _ in ["statistics of an empty table", "true statistics"] {
        for (name, arguments, index) in [
            ("claim_any", format!("{SCOPE}, {LEASE}, '{{}}', false"), "outbox_fresh"),
            (
                "claim_any",
                format!("{SCOPE}, {LEASE}, '{{}}', false"),
                "outbox_waiting",
            ),
            (
                "claim_per_key",
                format!("{SCOPE}, {LEASE}, false, '{{}}', false, 200, false, 0, false, '{{}}', false"),
                "outbox_fresh",
            ),
            (
                "claim_per_key",
                format!("{SCOPE}, {LEASE}, true, '{{}}', true, 1000, false, 0, false, '{{}}', false"),
                "outbox_waiting_key",
            ),
            (
                "claim_per_key",
                format!("{SCOPE}, {LEASE}, true, '{{}}', true, 400, true, 0, false, '{{}}', false"),
                "outbox_fresh_lane",
            ),
            (
                "claim_per_key",
                format!("{SCOPE}, {LEASE}, true, '{{}}', true, 1000, false, 0, false, '{{}}', false"),
                "hashed SubPlan",
            ),
            (
                "list",
                "null, null, null, null, null, null, null, 100".to_owned(),
                "outbox_page",
            ),
            ("trial_rows", "20, 'default', null, null".to_owned(), "outbox_fresh"),
            ("claim_any", format!("{SCOPE}, {LEASE}, '{{}}', true"), "outbox_leased"),
            ("probe_expired", SCOPE.to_owned(), "outbox_leased"),
            (
                "reclaim",
                format!("{SCOPE}, {LEASE}, true, true, '{{}}', '{{}}'"),
                "outbox_leased",
            ),
            ("sweep", format!("{SCOPE}, 'x', 0"), "outbox_leased"),
            ("sweep", format!("{SCOPE}, 'x', 0"), "outbox_tried"),
            (
                "purge_delivered",
                "999999999, 100, 'default'".to_owned(),
                "outbox_delivered",
            ),
            ("topic_gauges", "'default', 900".to_owned(), "outbox_fresh"),
            (
                "settle",
                "'{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}'".to_owned(),
                "outbox_pkey",
            ),
            ("lock_held", "'{}', '{}'".to_owned(), "outbox_pkey"),
            ("find_held", "'{}', '{}', '{}'".to_owned(), "outbox_pkey"),
            (
                "extend",
                "array[gen_random_uuid()::text], gen_random_uuid()::text, 1000".to_owned(),
                "outbox_pkey",
            ),
        ] {
            check(&store, name, &arguments, index).await;
        }
        let everything =
            format!("{SCOPE}, {LEASE}, true, '{{}}', true, 9223372036854775807, false, 0, true, '{{}}', false");
        let plan = plan(&store, "claim_per_key", &everything).await;
        assert!(plan.contains("CTE Scan on blockers"), "looks at everything:\n{plan}");
        assert!(
            !plan.contains("Seq Scan on outbox"),
            "reads what was delivered:\n{plan}"
        );
        let sql = format!("analyze {schema}.outbox");
        store.pool().execute(AssertSqlSafe(sql)).await.unwrap();
    }
}

/// Rows that wait for another one of their key, or for tomorrow, cost a claim nothing.
///
/// Proves pitfall 18.
#[tokio::test]
async fn what_cannot_be_claimed_is_not_paid_for() {
    let store = support::store(2).await;
    let schema = store.channel().replace("posthaste:", "");
    let sql = format!(
        "insert into {schema}.outbox (id, namespace, topic, ordering_key, payload, created_at, next_attempt_at, attempts)
         select gen_random_uuid(), space, 't', key, 'x', now() - interval '1 hour', now() - interval '1 hour' + wait, tries
         from (select 'held' as space, 'k' as key, interval '1 day' as wait, 1 as tries, 0 as n
            union all select 'held', 'k', interval '0', 0, n from generate_series(1, {BACKLOG}) n
            union all select 'tomorrow', 'k' || n, interval '1 day', 0, n from generate_series(1, {BACKLOG}) n
            union all select 'tomorrow', 'f' || n, interval '0', 0, n from generate_series(1, 300) n
            union all select 'due', 'k', interval '1 minute', 0, n from generate_series(1, {BACKLOG}) n) rows
         order by n;
         analyze {schema}.outbox"
    );
    store.pool().execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.unwrap();
    for (namespace, look, lanes, claimed) in [
        ("held", 200, false, 0),
        ("held", 1_000, true, 0),
        ("tomorrow", 200, false, 100),
        ("due", 200, false, 100),
        ("due", 1_000, true, 100),
    ] {
        let arguments = format!(
            "'{namespace}', 10, null, null, {LEASE}, false, '{{}}', false, {look}, {lanes}, 0, false, '{{}}', true"
        );
        let plan = plan(&store, "claim_per_key", &arguments).await;
        let name = format!("{namespace}, {look}, {lanes}");
        assert!(
            !plan.contains("Seq Scan on outbox"),
            "{name}: reads the whole table:\n{plan}"
        );
        // Looking for due rows without a key goes past those that have one.
        let most = if lanes && namespace == "due" { BACKLOG } else { 2_000 };
        assert!(
            most_rows(&plan) <= most,
            "{name}: touches {} rows:\n{plan}",
            most_rows(&plan)
        );
        let updated = format!("(actual rows={claimed}");
        let update = plan.lines().find(|line| line.contains("Update on outbox"));
        assert!(
            update.is_some_and(|line| line.contains(&updated)),
            "{name}: claims others than {claimed}:\n{plan}"
        );
    }
}
