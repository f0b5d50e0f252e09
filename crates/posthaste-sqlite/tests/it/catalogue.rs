//! Maps and the tables that are there.

use posthaste_sql::TableMap;
use posthaste_sql::table::catalogue::describe_all;
use posthaste_sql::table::check::check;
use posthaste_sql::table::infer::infer;
use posthaste_sql::table::{BuiltinMap, Catalogue, Database, Finding, Kind, Property, Role, Severity};
use posthaste_sqlite::{DEFAULT_PREFIX, SqliteCatalogue};
use sqlx::{AssertSqlSafe, Executor, SqlitePool};

use crate::support;

async fn findings(map: &TableMap, pool: &SqlitePool) -> Vec<Finding> {
    let live = describe_all(map, &SqliteCatalogue::new(pool.clone())).await.unwrap();
    check(map, &live, Database::Sqlite)
}

#[tokio::test]
async fn the_native_map_fits_the_migrated_tables() {
    let store = support::store(1).await;
    let map = TableMap::with_prefix(DEFAULT_PREFIX).unwrap().with_times(Kind::EpochMs);
    assert_eq!(findings(&map, store.pool()).await, []);
}

#[tokio::test]
async fn what_sqlite_cannot_do_is_said() {
    let (pool, _directory) = support::pool(1).await;
    for (name, part) in [("order-service", "row locks"), ("commerce", "PostgreSQL only")] {
        let found = findings(&BuiltinMap::find(name).unwrap().map().unwrap(), &pool).await;
        let said = |finding: &Finding| finding.severity == Severity::Error && finding.problem.contains(part);
        assert!(found.iter().any(said), "{found:?}");
    }
}

/// A proposal is sound and fits, and with what a check proposes there is nothing left to propose.
#[tokio::test]
async fn a_table_with_unusual_names_is_proposed_and_fixed() {
    let (pool, _directory) = support::pool(1).await;
    let ddl = r#"create table "Odd ""Box" ("eventId" integer primary key autoincrement, "Payload" text not null,
        "State" text not null check ("State" in ('NEW', 'BUSY', 'SENT', 'DEAD')), "retryCount" int not null default 0,
        "lockedBy" text, "lockedUntil" integer, "aggregateId" text, "createdAt" integer not null)"#;
    pool.execute(AssertSqlSafe(ddl)).await.unwrap();
    let catalogue = SqliteCatalogue::new(pool.clone());
    let tables = catalogue.tables(None).await.unwrap();
    let live = catalogue.describe(&tables[0]).await.unwrap().unwrap();
    let proposal = infer(&live, &[], Database::Sqlite);
    // What BUSY means cannot be known.
    assert!(proposal.notes.iter().any(|note| note.contains("BUSY")), "{proposal:?}");
    let toml = proposal.toml.replace("\"PROCESSING\"", "\"BUSY\"");
    let toml = toml.replace("source = \"odd-box\"", "source = \"shop\"");
    let map = TableMap::from_toml(&toml).unwrap_or_else(|error| panic!("{error}\n{toml}"));
    assert!(
        map.has(Property::Retries) && map.has(Property::GeneratedId) && map.has(Role::OrderingKey),
        "{toml}"
    );
    let found = findings(&map, &pool).await;
    assert_eq!(found.len(), 1, "{found:?}");
    let fix = found[0].fix.clone().unwrap();
    pool.execute(AssertSqlSafe(fix)).await.unwrap();
    assert_eq!(findings(&map, &pool).await, []);
}
