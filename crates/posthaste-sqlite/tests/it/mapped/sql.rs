//! The SQL of existing tables is prepared by SQLite.

use posthaste_core::store::SchemaStore;
use posthaste_sql::TableMap;
use sqlx::{AssertSqlSafe, Executor, SqlSafeStr};

use super::tables::{DONATION_DDL, MappedTable, UNUSUAL_DDL, USAGE_DDL, donation_map, unusual_map, usage_map};

async fn prepared(ddl: &str, map: TableMap) -> Vec<(&'static str, String)> {
    let mapped = MappedTable::new(ddl, map).await;
    let statements = mapped.store.statements();
    for (name, sql) in &statements {
        let prepared = mapped
            .store
            .pool()
            .prepare(AssertSqlSafe(sql.clone()).into_sql_str())
            .await;
        prepared.unwrap_or_else(|error| panic!("{name}: {error}\n{sql}"));
    }
    statements
}

/// A map has the statements that its tables need, and no others.
#[tokio::test]
async fn no_statement_asks_for_a_table_that_is_not_there() {
    let names = async |ddl, map| {
        let mut names: Vec<_> = prepared(ddl, map).await.into_iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        names
    };
    let common = [
        "claim_in_order",
        "discard",
        "enqueue",
        "extend",
        "find",
        "find_duplicate",
        "has_more_pending",
        "list",
        "probe_in_order",
        "purge_delivered",
        "purgeable",
        "replay",
        "restore",
        "settle",
        "stats_in_order",
        "sweep",
        "trial_claim",
        "trial_rows",
    ];
    let with = |more: &[&'static str]| {
        let mut names = [&common[..], more].concat();
        names.sort_unstable();
        names
    };
    assert_eq!(names(UNUSUAL_DDL, unusual_map()).await, with(&["topic_gauges"]));
    let of_donations = ["insert_dead_letter", "purge_dead", "recover", "restore_dead_letter"];
    assert_eq!(names(DONATION_DDL, donation_map()).await, with(&of_donations));
    assert_eq!(
        names(USAGE_DDL, usage_map()).await,
        with(&["purge_dead", "topic_gauges"])
    );
}
