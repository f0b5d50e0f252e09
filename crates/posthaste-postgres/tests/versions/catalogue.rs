//! Maps and the tables that are there.

use posthaste_postgres::PostgresCatalogue;
use posthaste_sql::TableMap;
use posthaste_sql::table::catalogue::describe_all;
use posthaste_sql::table::check::check;
use posthaste_sql::table::infer::infer;
use posthaste_sql::table::{BUILTIN_MAPS, Catalogue, Database, Identifier, LiveTable, Severity, Table, TableName};
use sqlx::{AssertSqlSafe, Executor, PgPool};

use crate::support;

/// A pool whose connections find their tables in a schema of their own.
async fn place(ddl: &str) -> PgPool {
    let schema = support::fresh_schema();
    let pool = support::pool(1).await;
    pool.execute(AssertSqlSafe(format!(
        "create schema {schema}; set search_path = {schema};"
    )))
    .await
    .unwrap();
    pool.execute(sqlx::raw_sql(AssertSqlSafe(ddl.to_owned())))
        .await
        .unwrap();
    pool
}

async fn live(pool: &PgPool, table: &str) -> LiveTable {
    let name = TableName {
        schema: None,
        name: Identifier::new(table).unwrap(),
    };
    let catalogue = PostgresCatalogue::new(pool.clone());
    catalogue.describe(&name).await.unwrap().unwrap()
}

async fn findings(map: &TableMap, pool: &PgPool) -> Vec<posthaste_sql::table::Finding> {
    let live = describe_all(map, &PostgresCatalogue::new(pool.clone())).await.unwrap();
    check(map, &live, Database::Postgres)
}

#[tokio::test]
async fn builtin_maps_fit_their_own_tables() {
    for builtin in BUILTIN_MAPS.iter().filter(|builtin| builtin.name != "donation") {
        let pool = place(builtin.ddl).await;
        let found = findings(&builtin.map().unwrap(), &pool).await;
        let errors: Vec<_> = found
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
            .collect();
        assert!(errors.is_empty(), "{}: {errors:?}", builtin.name);
    }
}

#[tokio::test]
async fn the_native_map_fits_the_migrated_tables() {
    let store = support::store(1).await;
    let schema: String = sqlx::query_scalar("select nspname::text from pg_namespace where nspname = $1")
        .bind(store.channel().trim_start_matches("posthaste:"))
        .fetch_one(store.pool())
        .await
        .unwrap();
    let map = TableMap::in_schema(&schema).unwrap();
    assert_eq!(findings(&map, store.pool()).await, []);
    let elsewhere = TableMap::in_schema("not_there").unwrap();
    let found = findings(&elsewhere, store.pool()).await;
    assert!(found[0].problem.contains("posthaste migrate up"), "{found:?}");
}

/// What a check proposes is run, and then there is nothing left to propose.
#[tokio::test]
async fn the_sql_that_fixes_a_table_does() {
    let worn = r#"
        create table "Odd ""Box" (
            "the id" uuid not null, payload jsonb not null, status varchar(4) not null, attempts int not null default 0,
            who varchar(20) not null, until timestamptz not null, wrong varchar(30) not null, created_at timestamptz not null
        )"#;
    let map = TableMap::from_toml(
        r#"
name = "odd"
order = ["created_at", "id"]
topic = { fixed = "t" }
[tables]
outbox = "Odd \"Box"
dead_letter = "graves"
[columns]
id = "the id"
payload = { column = "payload", kind = "jsonb" }
status = "status"
attempts = "attempts"
locked_by = { column = "who", kind = "text" }
locked_until = "until"
last_error = { column = "why; drop table x", max = 100 }
dedupe_key = "dedupe"
created_at = "created_at"
[dead_letter.columns]
id = { column = "id", kind = "uuid" }
payload = { column = "payload", kind = "jsonb" }
[states]
pending = "pending"
processing = "processing"
delivered = "delivered"
dead = "dead"
"#,
    )
    .unwrap();
    let pool = place(worn).await;
    for _ in 0..2 {
        for finding in findings(&map, &pool).await {
            let fix = finding.fix.clone().unwrap_or_else(|| panic!("{finding:?}"));
            pool.execute(sqlx::raw_sql(AssertSqlSafe(fix.clone())))
                .await
                .unwrap_or_else(|error| panic!("{error}: {fix}"));
        }
    }
    assert_eq!(findings(&map, &pool).await, []);
}

#[tokio::test]
async fn proposals_for_known_tables_are_sound_and_fit() {
    for builtin in BUILTIN_MAPS.iter().filter(|builtin| builtin.name != "donation") {
        let pool = place(builtin.ddl).await;
        let map = builtin.map().unwrap();
        let catalogue = PostgresCatalogue::new(pool.clone());
        let table = live(&pool, map.table(Table::Outbox).unwrap().name.as_str()).await;
        let mut others = Vec::new();
        for other in catalogue.tables(None).await.unwrap() {
            others.extend(catalogue.describe(&other).await.unwrap());
        }
        let proposal = infer(&table, &others, Database::Postgres);
        let proposed = TableMap::from_toml(&proposal.toml)
            .unwrap_or_else(|error| panic!("{}: {error}\n{}", builtin.name, proposal.toml));
        assert_eq!(proposed.strategy(), map.strategy(), "{}", proposal.toml);
        for (role, column) in map.columns() {
            let found = proposed.column(role).map(|column| (&column.name, column.kind));
            assert_eq!(found, Some((&column.name, column.kind)), "{role}\n{}", proposal.toml);
        }
        let found = findings(&proposed, &pool).await;
        assert!(
            found.iter().all(|finding| finding.severity == Severity::Warning),
            "{found:?}\n{}",
            proposal.toml
        );
    }
}

#[tokio::test]
async fn labels_are_read_from_constraints_enums_and_rows() {
    let pool = place(
        "create type mood as enum ('NEW', 'SENT', 'FAILED');
         create table a (id uuid primary key, status varchar(20) check (status in ('NEW', 'SENT', 'DEAD')), mood mood);
         insert into a values (gen_random_uuid(), 'NEW', 'SENT'), (gen_random_uuid(), 'SENT', null)",
    )
    .await;
    let table = live(&pool, "a").await;
    assert_eq!(table.column("status").unwrap().values, ["NEW", "SENT", "DEAD"]);
    assert_eq!(table.column("mood").unwrap().values, ["NEW", "SENT", "FAILED"]);
    let catalogue = PostgresCatalogue::new(pool);
    let status = Identifier::new("status").unwrap();
    assert_eq!(
        catalogue.values(&table.name, &status, 10).await.unwrap(),
        ["NEW", "SENT"]
    );
    assert_eq!(catalogue.values(&table.name, &status, 1).await.unwrap(), ["NEW"]);
}
