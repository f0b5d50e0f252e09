//! What `maps check` proposes: every statement of it has to run.

use serde_json::Value;

use crate::support::Place;

/// Rounds of proposals: a table, what it lacks, and then nothing.
const ROUNDS: usize = 4;

fn findings(place: &Place, map: &str) -> Vec<Value> {
    let ran = place.run(&["maps", "check", "--map", map, "--json"]);
    ran.json()["findings"].as_array().unwrap().clone()
}

fn fix(finding: &Value) -> Option<&str> {
    finding["fix"].as_str()
}

/// Runs all that is proposed until nothing more is, and returns what is still found.
#[track_caller]
fn fixed(place: &Place, map: &str) -> Vec<Value> {
    for _ in 0..ROUNDS {
        let found = findings(place, map);
        if !found.iter().any(|finding| fix(finding).is_some()) {
            return found;
        }
        for statement in found.iter().filter_map(fix) {
            place.sql(statement);
        }
    }
    panic!("it goes on proposing: {:?}", findings(place, map));
}

/// The statement that creates the table of a map.
fn ddl(place: &Place, map: &str) -> String {
    let missing = findings(place, map);
    let create = |finding: &Value| {
        fix(finding)
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
    assert_eq!(fix(found), None, "{found}");
}

const MAPS: [&str; 4] = ["donation", "logistics", "order-service", "usage"];

#[test]
fn all_that_is_proposed_for_an_empty_database_runs() {
    for map in MAPS {
        for place in Place::with_postgres().into_iter().chain(Place::with_mariadb()) {
            assert_eq!(fixed(&place, map), Vec::<Value>::new(), "{map}");
        }
    }
    if let Some(place) = Place::with_postgres() {
        assert_eq!(fixed(&place, "commerce"), Vec::<Value>::new());
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
        let found = fixed(&place, "usage");
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
        let found = fixed(&place, "usage");
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
    let found = fixed(&place, "usage");
    has(
        &found,
        "columns.id",
        "error",
        &["partitioned by an expression", "by columns"],
    );
}

fn databases() -> Vec<Place> {
    let places = [
        Some(Place::with_sqlite()),
        Place::with_postgres(),
        Place::with_mariadb(),
    ];
    places.into_iter().flatten().collect()
}

fn is(place: &Place, server: &str) -> bool {
    place.setting("DATABASE__URL").unwrap().starts_with(server)
}

#[test]
fn the_tables_that_ship_are_what_their_maps_say() {
    for (map, server) in [
        ("donation", Place::with_mariadb()),
        ("logistics", Place::with_postgres()),
        ("order-service", Place::with_postgres()),
        ("usage", Place::with_postgres()),
    ] {
        let Some(place) = server else { continue };
        let ddl = place.run(&["maps", "show", map, "--ddl"]).success().stdout;
        place.sql(&ddl);
        let found = findings(&place, map);
        assert_eq!(found.iter().filter_map(fix).collect::<Vec<_>>(), [""; 0], "{map}");
    }
}

/// A table of jobs in the words of each database, and its map. `{id}`, `{text}` and `{time}` stand for types.
fn jobs(place: &Place, columns: &str, rest: &str) -> &'static str {
    let (text, time) = match place.setting("DATABASE__URL") {
        Some(url) if url.starts_with("postgres") => ("varchar(100)", "timestamptz"),
        Some(url) if url.starts_with("mysql") => ("varchar(100)", "datetime(6)"),
        _ => ("text", "bigint"),
    };
    let columns = columns.replace("{text}", text).replace("{time}", time);
    place.write("outbox.db", "");
    place.sql(&format!("create table jobs ({columns})"));
    let kind = if is(place, "sqlite") { "epoch_ms" } else { "timestamptz" };
    let map = format!(
        "name = \"jobs\"\norder = [\"created_at\", \"id\"]\ntopic = {{ fixed = \"jobs\" }}\n\
         [tables]\noutbox = \"jobs\"\n[constants]\nsource = \"test\"\n\
         [states]\npending = \"NEW\"\nprocessing = \"RUNS\"\ndelivered = \"DONE\"\ndead = \"DEAD\"\n\
         [columns]\nid = {{ column = \"id\", kind = \"text\" }}\npayload = {{ column = \"payload\", kind = \"text\" }}\n\
         status = \"status\"\nattempts = \"attempts\"\nlocked_by = {{ column = \"locked_by\", kind = \"text\" }}\n\
         locked_until = {{ column = \"locked_until\", kind = \"{kind}\" }}\n\
         next_attempt_at = {{ column = \"next_attempt_at\", kind = \"{kind}\" }}\n\
         created_at = {{ column = \"created_at\", kind = \"{kind}\" }}\n{rest}"
    );
    place.write("jobs.toml", &map);
    "./jobs.toml"
}

const JOBS: &str = "id {text} primary key, payload {text} not null, status {text} not null, attempts int not null, \
    locked_by {text}, locked_until {time}, next_attempt_at {time}, created_at {time} not null";

#[test]
fn an_index_whose_name_is_taken_gets_another() {
    for place in databases() {
        let map = jobs(&place, &JOBS.replace(" primary key", " not null"), "");
        place.sql("create index jobs_claim on jobs (attempts); create index jobs_id on jobs (attempts)");
        if is(&place, "sqlite") || is(&place, "mysql") {
            place.sql("create index jobs_claim_2 on jobs (attempts)");
        }
        assert_eq!(fixed(&place, map), Vec::<Value>::new());
    }
}

/// One that was left behind by `create index concurrently` is neither used nor gone.
#[test]
fn an_index_that_is_not_valid_is_none_and_has_its_name() {
    let Some(place) = Place::with_postgres() else { return };
    let map = jobs(&place, JOBS, "");
    place.sql("create index jobs_claim on jobs (status, created_at, id)");
    assert_eq!(findings(&place, map), Vec::<Value>::new());
    place.sql("update pg_index set indisvalid = false where indexrelid = 'jobs_claim'::regclass");
    assert_eq!(findings(&place, map).len(), 1);
    assert_eq!(fixed(&place, map), Vec::<Value>::new());
}

#[test]
fn columns_are_added_to_a_table_that_has_rows() {
    for place in databases() {
        let map = jobs(&place, "id {text} primary key, payload {text} not null", "");
        place.sql("insert into jobs (id, payload) values ('a', '{}'), ('b', '{}')");
        assert_eq!(fixed(&place, map), Vec::<Value>::new());
    }
}

#[test]
fn an_id_that_counts_is_added_where_the_database_can() {
    for place in databases() {
        let map = jobs(&place, &JOBS.replace("id {text} primary key, ", ""), "");
        let counts = place.read("jobs.toml").replace(
            "id = { column = \"id\", kind = \"text\" }",
            "id = { column = \"id\", kind = \"integer\", generated = true }",
        );
        place.write("jobs.toml", &counts);
        let rows = "insert into jobs (payload, status, attempts, created_at) values ('{}', 'DONE', 1, {}), ('{}', 'DONE', 1, {})";
        place.sql(&rows.replace(
            ", {})",
            if is(&place, "sqlite") {
                ", 1)"
            } else {
                ", '2026-01-01')"
            },
        ));
        let found = fixed(&place, map);
        if is(&place, "sqlite") {
            has(&found, "columns.id", "error", &["create it anew"]);
        } else {
            assert_eq!(found, Vec::<Value>::new());
        }
    }
}

#[test]
fn a_column_that_the_primary_key_needs_stays_as_it_is() {
    for place in databases() {
        let key = JOBS.replace(" primary key", " not null unique") + ", shop {text} not null, primary key (shop, id)";
        let map = jobs(&place, &key, "");
        place.sql("create index jobs_claim on jobs (status, created_at, id)");
        let found = fixed(&place, map);
        has(
            &found,
            "columns",
            "warning",
            &["the column shop may not be NULL", "map it"],
        );
    }
}

/// What is said of a column on MySQL is said as a whole.
#[test]
fn a_column_keeps_all_but_what_is_changed() {
    let Some(place) = Place::with_mariadb() else { return };
    let columns = JOBS
        .replace(
            "status {text} not null",
            "status char(3) character set ascii not null default 'NEW' comment 'a, b'",
        )
        .replace("locked_by {text}", "locked_by varchar(40) not null default 'x'")
        + ", last_error text not null, note varchar(20) not null comment 'is NOT NULL'";
    let map = jobs(
        &place,
        &columns,
        "last_error = { column = \"last_error\", max = 100 }\n",
    );
    assert_eq!(fixed(&place, map), Vec::<Value>::new());
    // Each would be refused or changed if its definition had been lost.
    place.sql("insert into jobs (id, payload, attempts, created_at) values ('a', '{}', 0, now(6))");
    place.sql("insert into jobs (id, payload, attempts, created_at) select concat(status, column_comment, character_set_name), \
         '{}', 0, now(6) from jobs, information_schema.columns where table_schema = database() and table_name = 'jobs' and \
         column_name = 'status'");
    place.sql("update jobs set attempts = if(id = 'NEWa, bascii', 1, 1 / 0) where id <> 'a'");
}

#[test]
fn what_the_database_indexes_in_part_only_is_told_without_sql() {
    let Some(place) = Place::with_mariadb() else { return };
    let columns = JOBS
        .replace("id {text} primary key", "id text not null")
        .replace("status {text}", "status text");
    let found = fixed(&place, jobs(&place, &columns, ""));
    has(&found, "columns.id", "error", &["only a part of id", "varchar"]);
    has(&found, "order", "warning", &["only a part of status"]);
}

#[test]
fn columns_of_a_lease_are_not_added_to_a_view() {
    let place = Place::with_sqlite();
    place.write("outbox.db", "");
    let table = ddl(&place, "order-service").replace("create table \"outbox\"", "create table behind");
    place.sql(&table);
    place.sql("create view outbox as select * from behind");
    has(
        &fixed(&place, "order-service"),
        "columns.locked_until",
        "error",
        &["no row locks"],
    );
}

/// The lines that go with the SQL for a lease are lines of a map.
#[test]
fn with_the_columns_of_a_lease_and_their_lines_a_map_can_be_used() {
    let place = Place::with_sqlite();
    place.write("outbox.db", "");
    let shown = place.run(&["maps", "show", "order-service"]).success().stdout;
    place.sql(&ddl(&place, "order-service"));
    place.sql("insert into outbox (id, aggregate_type, aggregate_id, event_type, payload, status, created_at) \
         values ('0198c0de-0000-7000-8000-000000000001', 'Order', '0198c0de-0000-7000-8000-000000000002', 'a', '{}', 'SENT', '2026-01-01 00:00:00')");
    let found = findings(&place, "order-service");
    let lease = found
        .iter()
        .find(|finding| finding["field"] == "columns.locked_until")
        .unwrap();
    place.sql(fix(lease).unwrap());
    let lines = fix(lease)
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("--   "));
    let columns: Vec<_> = lines.filter(|line| line.contains("column =")).collect();
    let map = shown
        .replace("[columns]\n", &format!("[columns]\n{}\n", columns.join("\n")))
        .replace("[states]\n", "[states]\nprocessing = \"RUNS\"\n");
    place.write("leased.toml", &map);
    assert_eq!(fixed(&place, "./leased.toml"), Vec::<Value>::new());
}
