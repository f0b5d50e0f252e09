//! Maps and the tables that are there.

use posthaste_mysql::{DEFAULT_PREFIX, MySqlCatalogue, native_map};
use posthaste_sql::TableMap;
use posthaste_sql::table::catalogue::describe_all;
use posthaste_sql::table::check::check;
use posthaste_sql::table::infer::infer;
use posthaste_sql::table::{
    BuiltinMap, Catalogue, Database, Finding, Identifier, LiveTable, Role, Severity, Table, TableName,
};
use sqlx::MySqlPool;

use crate::support;

async fn findings(map: &TableMap, pool: &MySqlPool) -> Vec<Finding> {
    let live = describe_all(map, &MySqlCatalogue::new(pool.clone())).await.unwrap();
    check(map, &live, Database::MySql)
}

async fn live(pool: &MySqlPool, table: &str) -> LiveTable {
    let name = TableName {
        schema: None,
        name: Identifier::new(table).unwrap(),
    };
    let catalogue = MySqlCatalogue::new(pool.clone());
    catalogue.describe(&name).await.unwrap().unwrap()
}

#[tokio::test]
async fn the_native_map_fits_the_migrated_tables() {
    if support::left_out("mariadb") {
        return;
    }
    let store = support::store(1).await;
    let map = native_map(DEFAULT_PREFIX).unwrap();
    assert_eq!(findings(&map, store.pool()).await, []);
    support::drop_database(store.pool()).await;
}

#[tokio::test]
async fn the_builtin_map_fits_its_tables_and_a_proposal_too() {
    if support::left_out("mariadb") {
        return;
    }
    let pool = support::pool(1).await;
    let builtin = BuiltinMap::find("donation").unwrap();
    support::run(&pool, builtin.ddl).await;
    let map = builtin.map().unwrap();
    let errors = |found: Vec<Finding>| -> Vec<Finding> {
        let is_error = |finding: &Finding| finding.severity == Severity::Error;
        found.into_iter().filter(is_error).collect()
    };
    assert_eq!(errors(findings(&map, &pool).await), []);
    let table = live(&pool, "donation_outbox").await;
    let others = [live(&pool, "donation_dlq").await];
    let proposal = infer(&table, &others, Database::MySql);
    let proposed = TableMap::from_toml(&proposal.toml).unwrap_or_else(|error| panic!("{error}\n{}", proposal.toml));
    assert_eq!(proposed.strategy(), map.strategy());
    // That a version is the row's own, and not its aggregate's, cannot be known.
    assert!(!proposed.has(Role::Version), "{}", proposal.toml);
    for (role, column) in map.columns().filter(|(role, _)| *role != Role::Version) {
        let found = proposed.column(role).map(|column| (&column.name, column.kind));
        assert_eq!(found, Some((&column.name, column.kind)), "{role}\n{}", proposal.toml);
    }
    for (role, column) in map.side_columns(Table::DeadLetter) {
        let found = proposed.side_column(Table::DeadLetter, role);
        assert_eq!(
            found.map(|column| &column.name),
            Some(&column.name),
            "{role}\n{}",
            proposal.toml
        );
    }
    assert_eq!(errors(findings(&proposed, &pool).await), [], "{}", proposal.toml);
    support::drop_database(&pool).await;
}

/// What a check proposes is run, and then there is nothing left to propose.
#[tokio::test]
async fn the_sql_that_fixes_a_table_does() {
    if support::left_out("mariadb") {
        return;
    }
    let pool = support::pool(1).await;
    support::run(
        &pool,
        "create table `Odd ``Box` (`the id` bigint auto_increment primary key, payload json not null, \
         status varchar(4) not null, attempts int not null default 0, who varchar(20) not null, \
         until datetime(6) not null, created_at datetime(6) not null)",
    )
    .await;
    let map = TableMap::from_toml(
        r#"
name = "odd"
order = ["id"]
topic = { fixed = "t" }
[tables]
outbox = "Odd `Box"
dead_letter = "graves"
[columns]
id = { column = "the id", kind = "integer", generated = true }
payload = { column = "payload", kind = "json" }
status = "status"
attempts = "attempts"
locked_by = { column = "who", kind = "text" }
locked_until = { column = "until", kind = "timestamp" }
last_error = { column = "why; drop table x", max = 100 }
dedupe_key = "dedupe"
created_at = { column = "created_at", kind = "timestamp" }
[dead_letter.columns]
id = "id"
payload = { column = "payload", kind = "json" }
[constants]
source = "shop"
[states]
pending = "pending"
processing = "processing"
delivered = "delivered"
dead = "dead"
"#,
    )
    .unwrap();
    for _ in 0..2 {
        for finding in findings(&map, &pool).await {
            support::run(&pool, finding.fix.clone().unwrap_or_else(|| panic!("{finding:?}"))).await;
        }
    }
    assert_eq!(findings(&map, &pool).await, []);
    support::drop_database(&pool).await;
}

#[tokio::test]
async fn labels_are_read_from_constraints_enums_and_rows() {
    if support::left_out("mariadb") {
        return;
    }
    let pool = support::pool(1).await;
    support::run(
        &pool,
        "create table a (id bigint primary key, status varchar(20) check (status in ('NEW', 'SENT', 'DEAD')), \
         mood enum('NEW', 'it''s'))",
    )
    .await;
    support::run(&pool, "insert into a values (1, 'NEW', 'NEW'), (2, 'SENT', null)").await;
    let table = live(&pool, "a").await;
    assert_eq!(table.column("status").unwrap().values, ["NEW", "SENT", "DEAD"]);
    assert_eq!(table.column("mood").unwrap().values, ["NEW", "it's"]);
    let status = Identifier::new("status").unwrap();
    let catalogue = MySqlCatalogue::new(pool.clone());
    assert_eq!(
        catalogue.values(&table.name, &status, 10).await.unwrap(),
        ["NEW", "SENT"]
    );
    support::drop_database(&pool).await;
}
