//! What `log move` looks at before it makes or changes anything, on SQLite.

use sqlx::Connection;

use crate::support::Place;

/// Of the file, in their order.
fn tables(place: &Place) -> Vec<String> {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(place.path("outbox.db"));
    let found = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut conn = sqlx::SqliteConnection::connect_with(&options).await?;
        let tables = sqlx::query_scalar("select name from sqlite_schema where type = 'table' order by name");
        tables.fetch_all(&mut conn).await
    });
    found.unwrap()
}

#[test]
fn a_file_without_a_queue_is_refused_and_stays_as_it_is() {
    let empty = Place::with_sqlite();
    empty.write("outbox.db", "");
    let other = Place::with_sqlite();
    other.sql("create table shop (id integer)");
    for (place, before) in [(empty, &[][..]), (other, &["shop"][..])] {
        let moved = place.run(&["log", "move"]);
        assert_eq!(tables(&place), before, "{moved:?}");
        moved.fails_with(&[
            "no such table",
            "check that file and table prefix are the ones you mean",
        ]);
        assert_eq!(moved.stdout, "");
    }
}

/// Whoever has to stop relays first would learn of it a minute later.
#[test]
fn what_the_log_does_not_take_is_named_before_relays_are_waited_for() {
    let place = Place::with_sqlite().migrated();
    place.sql(
        "insert into posthaste_outbox (id, topic, payload) values (x'0199c3a2000070008000000000000001', 'orders', '7');
         insert into posthaste_relays (worker, namespace, publisher, host, pid, version, started_at, seen_at, circuit, circuit_since)
         select '0199c3a2-0000-7000-8000-000000000002', 'default', 'stdout', 'h', 7, '1', now, now + 60000, 'closed', now
         from (select cast(unixepoch('subsec') * 1000 as integer) as now)",
    );
    let place = place.set("DATABASE__LAYOUT", "log");
    let before = place.run(&["migrate", "status"]).success().stdout;
    assert!(before.contains("1001 log") && before.contains("missing"), "{before}");
    let planned = place.run(&["log", "move", "--dry-run", "--json"]).success().json();
    assert_eq!((&planned["relays"], &planned["unfit"]), (&1.into(), &1.into()));

    let refused = place.run(&["log", "move", "--wait", "1s"]);
    refused.fails_with(&[
        "seq 1 (its id X'0199C3A2000070008000000000000001' is blob, not text)",
        "docs/log-layout.md",
    ]);
    assert_eq!(place.run(&["migrate", "status"]).success().stdout, before);
    let help = place.run(&["log", "move", "--help"]).success().stdout;
    assert!(help.contains("on SQLite those whose id is not text"), "{help}");

    // Without such a row the relay is what is in the way.
    place.sql("delete from posthaste_outbox");
    place
        .run(&["log", "move", "--wait", "1s"])
        .fails_with(&["for 1 relay to stop"]);
}
