//! What `maps check` proposes: every statement of it has to run.

use serde_json::Value;

use crate::support::Place;

/// Rounds of proposals: a table, what it lacks, and then nothing.
const ROUNDS: usize = 4;

fn findings(place: &Place, map: &str) -> Vec<Value> {
    let ran = place.run(&["maps", "check", "--map", map, "--json"]);
    ran.json()["findings"].as_array().unwrap().clone()
}

fn mend(finding: &Value) -> Option<&str> {
    finding["mend"].as_str()
}

/// Runs all that is proposed until nothing more is, and returns what is still found.
#[track_caller]
fn mended(place: &Place, map: &str) -> Vec<Value> {
    for _ in 0..ROUNDS {
        let found = findings(place, map);
        if !found.iter().any(|finding| mend(finding).is_some()) {
            return found;
        }
        for statement in found.iter().filter_map(mend) {
            place.sql(statement);
        }
    }
    panic!("it goes on proposing: {:?}", findings(place, map));
}

/// The statement that creates the table of a map.
fn ddl(place: &Place, map: &str) -> String {
    let missing = findings(place, map);
    let create = |finding: &Value| {
        mend(finding)
            .filter(|sql| sql.contains("create table"))
            .map(str::to_owned)
    };
    missing.iter().find_map(create).unwrap()
}

#[track_caller]
fn has(findings: &[Value], field: &str, severity: &str, parts: &[&str]) {
    let found = findings
        .iter()
        .find(|finding| finding["field"] == field && finding["severity"] == severity)
        .unwrap_or_else(|| panic!("no {severity} of {field}: {findings:?}"));
    for part in parts {
        let problem = found["problem"].as_str().unwrap();
        assert!(problem.contains(part), "`{part}` is not in: {problem}");
    }
    assert_eq!(mend(found), None, "{found}");
}

const MAPS: [&str; 4] = ["donation", "logistics", "order-service", "usage"];

#[test]
fn all_that_is_proposed_for_an_empty_database_runs() {
    for map in MAPS {
        for place in Place::with_postgres().into_iter().chain(Place::with_mariadb()) {
            assert_eq!(mended(&place, map), Vec::<Value>::new(), "{map}");
        }
    }
    if let Some(place) = Place::with_postgres() {
        assert_eq!(mended(&place, "commerce"), Vec::<Value>::new());
    }
}

#[test]
fn for_a_view_the_table_behind_it_is_named_in_place_of_sql() {
    for place in [
        Some(Place::with_sqlite()),
        Place::with_postgres(),
        Place::with_mariadb(),
    ] {
        let Some(place) = place else { continue };
        place.write("outbox.db", "");
        let table = ddl(&place, "usage").replace("modkit_outbox_events", "behind");
        place.sql(&table);
        place.sql("create view modkit_outbox_events as select * from behind");
        let found = mended(&place, "usage");
        let parts = ["modkit_outbox_events is a view", "the table behind it"];
        has(&found, "columns.id", "error", &parts);
        has(&found, "columns.dedupe_key", "error", &parts);
        has(&found, "order", "warning", &parts);
    }
}

/// The table of a map in parts, by the time of its rows.
fn partition(place: &Place, map: &str, parts: &str) {
    let table = ddl(place, map).replace(" primary key", " not null");
    let table = table.trim_end_matches(';');
    place.sql(&format!("{table} {parts}"));
}

#[test]
fn unique_indexes_of_a_partitioned_table_have_its_partition_key() {
    let by_columns = [
        (Place::with_postgres(), "partition by range (created_at)"),
        (
            Place::with_mariadb(),
            "partition by range columns (created_at) (partition p0 values less than (maxvalue))",
        ),
    ];
    for (place, parts) in by_columns {
        let Some(place) = place else { continue };
        partition(&place, "usage", parts);
        let found = mended(&place, "usage");
        let by = "the table is partitioned by (created_at)";
        has(&found, "columns.id", "warning", &[by, "a UUID"]);
        has(
            &found,
            "columns.dedupe_key",
            "error",
            &[by, "take dedupe_key out of the map"],
        );
        assert_eq!(found.len(), 2, "{found:?}");
    }
}

#[test]
fn a_table_that_is_partitioned_by_an_expression_can_have_no_unique_index() {
    let Some(place) = Place::with_postgres() else { return };
    partition(&place, "usage", "partition by range ((created_at at time zone 'UTC'))");
    let found = mended(&place, "usage");
    has(
        &found,
        "columns.id",
        "error",
        &["partitioned by an expression", "by columns"],
    );
}
