//! `migrate`, and what depends on it.

use crate::support::{Place, on_every_database};

on_every_database!(
    migrating_twice_applies_each_step_once,
    a_dry_run_prints_the_sql_and_changes_nothing,
    status_tells_applied_from_missing,
    every_statement_is_printed_without_a_database,
);

fn migrating_twice_applies_each_step_once(place: &Place) {
    assert!(
        place
            .run(&["migrate"])
            .success()
            .stdout
            .starts_with("applied 0001 outbox\n")
    );
    assert_eq!(place.run(&["migrate", "up"]).success().stdout, "up to date\n");
}

fn a_dry_run_prints_the_sql_and_changes_nothing(place: &Place) {
    for args in [&["migrate", "--dry-run"][..], &["migrate", "up", "--dry-run"]] {
        let printed = place.run(args).success().stdout;
        assert!(
            printed.contains("-- 0001 outbox") && printed.contains("create table"),
            "{printed}"
        );
    }
    assert!(!place.path("outbox.db").exists());
    place.run(&["status"]).fails_with(&["`posthaste migrate up`"]);
    place.run(&["migrate"]).success();
    assert_eq!(place.run(&["migrate", "--dry-run"]).success().stdout, "-- up to date\n");
}

fn status_tells_applied_from_missing(place: &Place) {
    let before = place.run(&["migrate", "status"]).success().stdout;
    assert!(before.lines().all(|line| line.ends_with("missing")), "{before}");
    let checked = place.run(&["migrate", "status", "--check"]);
    checked.fails_with(&["migrations are missing: 0001 outbox", "`posthaste migrate up`"]);
    assert_eq!(checked.stdout, before);
    let checked = place.run(&["migrate", "status", "--check", "--json"]);
    checked.fails_with(&["migrations are missing"]);
    assert_eq!(checked.json()["applied"], false);
    place.run(&["migrate"]).success();
    place.run(&["migrate", "status", "--check"]).success();
    let after = place.run(&["migrate", "status"]).success().stdout;
    assert!(after.lines().all(|line| line.ends_with("applied")), "{after}");
    assert_eq!(before.lines().count(), after.lines().count());
}

fn every_statement_is_printed_without_a_database(place: &Place) {
    let printed = place.run(&["sql"]).success().stdout;
    for name in ["-- enqueue\n", "-- settle\n", "-- replay\n"] {
        assert!(printed.contains(name), "{printed}");
    }
    assert!(!place.path("outbox.db").exists());
}

#[test]
fn statements_are_printed_for_the_schema_asked_for() {
    let printed = Place::empty()
        .run(&["sql", "--backend", "postgres", "--schema", "mine"])
        .success()
        .stdout;
    assert!(printed.contains("\"mine\".\"outbox\""), "{printed}");
}
