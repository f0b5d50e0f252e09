//! Plans at a backlog: hot statements walk an index in their own order and stop at their limit, and lock only what they take.

use std::time::Duration;

use posthaste_core::RelayStore;
use posthaste_core::lifecycle::{LeaseToken, Settlement};
use posthaste_core::store::{ClaimRequest, ClaimedMessage, KeyOrdering, SchemaStore, Scope, WorkerId};
use posthaste_mysql::{MySqlStore, native_map};
use posthaste_sql::table::{Kind, Role, TableMap};
use sqlx::{AssertSqlSafe, Executor, Row};

use crate::support;

const BACKLOG: u32 = 20_000;

/// An outbox with a backlog of fresh rows, a pile of delivered ones, and some of every other kind.
async fn loaded() -> MySqlStore {
    let store = support::store(4).await;
    let fill = |status: &str, count: u32| {
        format!(
            "insert into posthaste_outbox (id, namespace, topic, ordering_key, content_type, payload, headers, status,
                attempts, next_attempt_at, locked_until, lease_token, created_at, updated_at, delivered_at)
             with recursive n as (select 1 as n union all select n + 1 from n where n < {count})
             select uuid(), 'default', 'orders', concat('k', n % 2000), 'text/plain', repeat('x', 300), '{{}}', '{status}',
                0, utc_timestamp(6) - interval 1 hour, utc_timestamp(6) + interval 1 hour, uuid(),
                utc_timestamp(6) - interval 1 hour, utc_timestamp(6), utc_timestamp(6)
             from n;"
        )
    };
    let mut sql = support::DEEP_RECURSION.to_owned();
    for (status, count) in [
        ("delivered", BACKLOG),
        ("pending", BACKLOG),
        ("processing", 500),
        ("dead", 500),
    ] {
        sql += &fill(status, count);
    }
    support::run(store.pool(), sql + "analyze table posthaste_outbox;").await;
    store
}

/// One line of a plan: table, access, index, rows and what else is done.
#[derive(Debug)]
struct Step {
    table: String,
    access: String,
    index: String,
    extra: String,
}

async fn explain(store: &MySqlStore, name: &str, values: &[&str]) -> Vec<Step> {
    let (_, sql) = store
        .statements()
        .into_iter()
        .find(|(statement, _)| *statement == name)
        .unwrap();
    let mut sql = sql;
    for (place, value) in values.iter().enumerate().rev() {
        sql = sql.replace(&format!("${}", place + 1), value);
    }
    // Comments hold words that are none of a statement.
    let is_sql = |line: &&str| !line.trim_start().starts_with("--");
    let sql = sql.lines().filter(is_sql).collect::<Vec<_>>().join("\n");
    let rows = store
        .pool()
        .fetch_all(AssertSqlSafe(format!("explain format=traditional {sql}")))
        .await
        .unwrap();
    let text = |row: &sqlx::mysql::MySqlRow, column: &str| {
        row.try_get::<Option<String>, _>(column).unwrap().unwrap_or_default()
    };
    let step = |row| Step {
        table: text(row, "table"),
        access: text(row, "type"),
        index: text(row, "key"),
        extra: text(row, "Extra"),
    };
    rows.iter().map(step).collect()
}

const FIND: [&str; 16] = [
    "'default'",
    "10",
    "1",
    "'' ",
    "null",
    "100",
    "0",
    "1",
    "500",
    "1",
    "1",
    "''",
    "2000",
    "0",
    "('orders', 'hot')",
    "null",
];

/// Proves pitfalls 28, 29.
#[tokio::test]
async fn hot_statements_walk_an_index_in_their_own_order() {
    let store = loaded().await;
    let find = explain(&store, "find_claimable", &FIND).await;
    let scans: Vec<_> = find.iter().filter(|step| step.table == "o").collect();
    assert_eq!(scans.len(), 3, "{find:#?}");
    for scan in &scans {
        assert_eq!(scan.index, "outbox_claim", "{find:#?}");
        assert!(!scan.extra.contains("filesort"), "{find:#?}");
    }
    let lanes = [
        "'default'",
        "0",
        "1",
        "''",
        "null",
        "256",
        "500",
        "2000",
        "0",
        "('orders', 'hot')",
    ];
    let lanes = explain(&store, "find_lanes", &lanes).await;
    let scan = lanes.iter().find(|step| step.table == "o").unwrap();
    assert_eq!(scan.index, "outbox_claim", "{lanes:#?}");
    assert!(!scan.extra.contains("filesort"), "{lanes:#?}");
    let ids: Vec<String> = sqlx::query_scalar("select id from posthaste_outbox where status = 'pending' limit 64")
        .fetch_all(store.pool())
        .await
        .unwrap();
    let ids = format!("'{}'", ids.join("', '"));
    for (name, values) in [
        ("lock_claimable", vec![ids.as_str(), "10", "0"]),
        ("lease", vec![&ids, "'w'", "'t'", "1000"]),
        ("lock_held", vec![&ids, "'t'"]),
        ("settle", vec![&ids, "'delivered'", "0", "null", "null", "1"]),
        ("extend", vec![&ids, "1000"]),
        ("purge_delivered", vec![&ids]),
    ] {
        let plan = explain(&store, name, &values).await;
        assert_eq!(
            (plan[0].index.as_str(), plan[0].access.as_str()),
            ("PRIMARY", "range"),
            "{name}: {plan:#?}"
        );
        assert!(!plan[0].extra.contains("filesort"), "{name}: {plan:#?}");
    }
    for (name, values, index) in [
        ("probe", vec!["'default'", "10", "1", "''", "null"], "outbox_claim"),
        (
            "find_exhausted",
            vec!["'default'", "10", "1", "''", "null", "100"],
            "outbox_claim",
        ),
        (
            "count_open",
            vec!["'default'", "10", "1", "''", "null", "500"],
            "outbox_claim",
        ),
        ("find_delivered", vec!["1000", "100", "'default'"], "outbox_delivered"),
        ("stats", vec!["'default'", "10001"], "outbox_claim"),
        ("topic_gauges", vec!["'default'", "10000"], "outbox_claim"),
    ] {
        let plan = explain(&store, name, &values).await;
        let scans: Vec<_> = plan.iter().filter(|step| step.table == "o").collect();
        assert!(
            !scans.is_empty() && scans.iter().all(|scan| scan.index == index),
            "{name}: {plan:#?}"
        );
        assert!(
            scans.iter().all(|scan| !scan.extra.contains("filesort")),
            "{name}: {plan:#?}"
        );
    }
    support::drop_database(store.pool()).await;
}

/// A table as Posthaste's own, but without leases: what a claim locks stays locked, and can be seen.
async fn without_leases() -> MySqlStore {
    let store = loaded().await;
    let toml = r#"
        name = "locks"
        order = ["seq"]
        topic = "column"
        tables = { outbox = "posthaste_outbox" }
        states = { pending = "pending", delivered = "delivered", dead = "dead" }
        [columns]
        id = "id"
        seq = { column = "seq", generated = true }
        namespace = "namespace"
        topic = "topic"
        ordering_key = "ordering_key"
        payload = "payload"
        status = "status"
        attempts = "attempts"
        created_at = { column = "created_at", kind = "timestamp" }
    "#;
    assert_eq!(
        native_map("").unwrap().column(Role::CreatedAt).unwrap().kind,
        Kind::Timestamp
    );
    MySqlStore::with_map(store.pool().clone(), TableMap::from_toml(toml).unwrap()).unwrap()
}

fn insert(id: &str) -> String {
    format!(
        "insert into posthaste_outbox (id, namespace, topic, content_type, payload, headers, status, attempts,
            next_attempt_at, created_at, updated_at)
         values ('{id}', 'default', 't', 'text/plain', 'x', '{{}}', 'pending', 0, utc_timestamp(6), utc_timestamp(6),
            utc_timestamp(6));"
    )
}

/// Proves pitfall 29.
#[tokio::test]
async fn a_claim_locks_what_it_takes_and_nothing_else() {
    let store = without_leases().await;
    let request = ClaimRequest {
        worker: WorkerId::new(),
        token: LeaseToken::new(),
        limit: 100,
        max_bytes: 1 << 20,
        scan_limit: None,
        lease: Duration::from_mins(5),
        max_attempts: 10,
        ordering: KeyOrdering::None,
        scope: Scope::default(),
        left_out: Vec::new(),
        pipelined: false,
    };
    let claimed = store.claim(&request).await.unwrap().messages;
    assert_eq!(claimed.len(), 100);
    let free: i64 = sqlx::query_scalar(
        "select count(*) from (select id from posthaste_outbox where status = 'pending' for update skip locked) free",
    )
    .fetch_one(store.pool())
    .await
    .unwrap();
    assert_eq!(free, i64::from(BACKLOG) - 100, "all others are free");
    let of_the_claim: Vec<String> = sqlx::query_scalar(
        "select t.trx_isolation_level from information_schema.innodb_trx t
         join information_schema.processlist p on p.id = t.trx_mysql_thread_id
         where p.db = database() and p.id <> connection_id() and t.trx_rows_locked > 0",
    )
    .fetch_all(store.pool())
    .await
    .unwrap();
    assert_eq!(of_the_claim, ["READ COMMITTED"]);
    // No gap is locked: new rows come in at once, also next to those that are taken.
    let isolation: String = sqlx::query_scalar("select @@session.transaction_isolation")
        .fetch_one(store.pool())
        .await
        .unwrap_or_else(|_| "REPEATABLE-READ".to_owned());
    assert_eq!(isolation, "REPEATABLE-READ", "the session's own setting is left alone");
    let taken: Vec<String> =
        sqlx::query_scalar("select id from posthaste_outbox where status = 'pending' order by seq limit 50")
            .fetch_all(store.pool())
            .await
            .unwrap();
    let inserts: String = taken.iter().map(|id| insert(&format!("{}x", &id[..35]))).collect();
    let inserted = tokio::time::timeout(Duration::from_secs(20), support::run(store.pool(), inserts));
    inserted.await.expect("nobody waits for the claim");
    let release = |claimed: &ClaimedMessage| Settlement::released(claimed.message.id, request.token);
    let released: Vec<_> = claimed.iter().map(release).collect();
    assert_eq!(store.settle(&released).await.unwrap().lost, []);
    support::drop_database(store.pool()).await;
}
