//! Commands with the settings of a queue whose messages are in the log.

use crate::dead::with_dead;
use crate::support::{DRAIN, Place, Ran, TO_STDOUT};

/// On each database that has a log.
fn places() -> impl Iterator<Item = Place> {
    [Place::with_postgres(), Some(Place::with_sqlite())]
        .into_iter()
        .flatten()
}

const LAYOUT: &str = "database.layout = \"log\"";

#[track_caller]
fn notes(ran: Ran, parts: &[&str]) -> Ran {
    for part in parts {
        assert!(ran.stderr.contains(part), "`{part}` is not in: {ran:?}");
    }
    ran
}

/// Everything else would look as if all were well.
#[test]
fn what_an_outbox_that_was_moved_has_is_counted_and_nothing_is_changed() {
    let Some(place) = Place::with_postgres() else { return };
    let dead = with_dead(&place, &[("orders", "a")]);
    for payload in ["1", "2"] {
        place.enqueue(&["--topic", "orders", "--payload", payload]);
    }
    place.run(&["log", "move"]).success();
    let moved = &["was moved to the log", LAYOUT][..];

    place
        .run(&["status", "--fail-if", "dead>0", "--fail-if", "pending>0"])
        .fails_with(&[&["dead is 1", "pending is 2"], moved].concat());
    place.run(&["status", "--fail-if", "pending>2"]).success();
    let status = place.status();
    for counted in [&status, &status["log"]] {
        assert_eq!(
            (&counted["pending"], &counted["dead"]),
            (&2.into(), &1.into()),
            "{status}"
        );
    }
    let text = place.run(&["status"]).success().stdout;
    assert!(
        text.contains("pending     2 (") && text.contains("dead        1 "),
        "{text}"
    );
    assert!(
        text.contains("2 messages wait and 1 dead message is in the log"),
        "{text}"
    );

    notes(place.run(&["dead", "list"]).success(), moved);
    let shown = place.run(&["dead", "show", &dead[0]]);
    shown.fails_with(&["there is no message"]);
    notes(shown, moved);
    for change in [
        &["dead", "replay", "--all"][..],
        &["dead", "replay", &dead[0], "--dry-run"],
        &["dead", "discard", "--all", "--yes"],
        &["purge", "--older-than", "0s", "--yes"],
        &["purge", "--dry-run"],
    ] {
        let ran = place.run(change);
        ran.fails_with(moved);
        assert_eq!(ran.stdout, "", "{change:?}");
    }
    // Other namespaces stay in the queue.
    let other = ["--namespace", "other"];
    for command in [&["status", "--fail-if", "dead>0"][..], &["purge", "--dry-run"]] {
        let ran = place.run(&[command, &other].concat()).success();
        assert_eq!(ran.stderr, "");
    }
    let place = place.set("DATABASE__LAYOUT", "log");
    assert_eq!(place.run(&["dead", "replay", "--all"]).success().stdout, "replayed 1\n");
}

/// A queue beside a log is served, if nothing in the log waits for a relay.
#[test]
fn what_is_dead_in_a_log_beside_the_queue_is_counted_and_told() {
    for place in places() {
        let place = place.set("DATABASE__LAYOUT", "log");
        with_dead(&place, &[("orders", "a")]);
        let place = place.set("DATABASE__LAYOUT", "queue");
        let told = &["1 dead message is in the log", LAYOUT][..];
        place
            .run(&["status", "--fail-if", "dead>0"])
            .fails_with(&[&["dead is 1"], told].concat());
        place.run(&["status", "--fail-if", "pending>0"]).success();
        notes(place.run(&["dead", "list"]).success(), told);
        place.run(&["dead", "replay", "--all"]).fails_with(told);
        notes(place.run(&["purge", "--older-than", "1d"]).success(), told);
        place.run(&DRAIN).success();
    }
}

/// The mirror: nothing finds those that were left in the queue.
#[test]
fn what_is_dead_in_a_queue_beside_the_log_is_counted() {
    for place in places() {
        with_dead(&place, &[("orders", "a")]);
        let place = place.set("DATABASE__LAYOUT", "log").migrated();
        place
            .run(&["status", "--fail-if", "dead>0"])
            .fails_with(&["dead is 1", "posthaste log move"]);
    }
}

/// In a circle they would be sent from one layout to the other: a relay of either refuses to start.
#[test]
fn messages_in_both_layouts_are_brought_together_by_a_move() {
    for place in places() {
        let place = place.migrated();
        place.enqueue(&["--topic", "orders", "--payload", "1"]);
        let place = place.set("DATABASE__LAYOUT", "log").migrated();
        place.enqueue(&["--topic", "orders", "--payload", "2"]);
        let of_log = place.run(&DRAIN);
        of_log.fails_with(&[
            "1 message waits in the queue",
            "stop the relays of the log, then run `posthaste log move`",
        ]);
        assert!(!of_log.stderr.contains("layout = \"queue\""), "{of_log:?}");
        place
            .run(&[&DRAIN[..], &["--set", "database.layout=queue"]].concat())
            .fails_with(&["1 message waits in the log", LAYOUT]);
        place.run(&["log", "move"]).success();
        let drained = place.run(&DRAIN).success();
        assert_eq!(drained.stdout.lines().count(), 2, "{drained:?}");
    }
}

/// With the rights that are documented for `posthaste status` and for a relay of the queue, which are none on the log.
#[test]
fn a_role_that_may_not_look_at_the_log_hears_of_a_move() {
    let Some(place) = Place::with_postgres() else { return };
    let place = place.set("DATABASE__LAYOUT", "log").migrated();
    let place = place.set("DATABASE__LAYOUT", "queue");
    place.enqueue(&["--topic", "orders", "--payload", "1"]);
    let url = place.setting("DATABASE__URL").unwrap();
    let schema = place.setting("DATABASE__SCHEMA").unwrap();
    let (monitor, relay) = (format!("monitor_{schema}"), format!("relay_{schema}"));
    place.sql(&format!(
        "create role {monitor}; create role {relay}; grant usage on schema {schema} to {monitor}, {relay};
         grant select on outbox, schema_version, relays, leaders to {monitor};
         grant select, insert, update, delete on outbox, outbox_dedupe, inbox, schema_version, relays, leaders to {relay}"
    ));
    let run_as = |role: &str, command: &[&str]| {
        let setting = format!("database.url={url}?options=-c%20role%3D{role}");
        place.run(&[command, &["--set", &setting]].concat())
    };
    let check = [&["run", "--check"], &TO_STDOUT[..]].concat();
    let watch = ["status", "--fail-if", "pending>5"];
    // While nothing was moved, a log that it may not look at is none.
    run_as(&monitor, &watch).success();
    run_as(&relay, &check).success();

    let said = |parts: &[&str]| {
        for role in [&monitor, &relay] {
            let status = run_as(role, &["status"]).success().stdout;
            assert!(parts.iter().all(|part| status.contains(part)), "{role}: {status}");
            // Figures without those of the log are no reason to be content.
            run_as(role, &watch).fails_with(&[&["cannot be counted", "permission denied"], parts].concat());
        }
        run_as(&relay, &check).fails_with(parts);
        run_as(&relay, &DRAIN).fails_with(parts);
    };
    place.sql("select log_fence_queue()");
    said(&["was begun", "`posthaste log move` again", "if nothing is in the log"]);
    place.run(&["log", "move"]).success();
    said(&["was moved to the log", LAYOUT]);
    for role in [monitor, relay] {
        place.sql(&format!("drop owned by {role}; drop role {role}"));
    }
}

/// The check tries a claim, which the queue refuses then.
#[test]
fn the_check_says_that_a_move_was_begun() {
    let Some(place) = Place::with_postgres() else { return };
    let place = place.set("DATABASE__LAYOUT", "log").migrated();
    let place = place.set("DATABASE__LAYOUT", "queue");
    place.enqueue(&["--topic", "orders", "--payload", "1"]);
    place.sql("select log_fence_queue()");
    let check = place.run(&[&["run", "--check"], &TO_STDOUT[..]].concat());
    check.fails_with(&["a move of this outbox to the log was begun", "--abort"]);
    assert!(!check.stderr.contains("triggers"), "{check:?}");
}

/// It is refused then.
#[test]
fn a_move_that_was_cut_off_is_not_offered_to_be_taken_back() {
    let Some(place) = Place::with_postgres() else { return };
    let place = place.set("DATABASE__LAYOUT", "log").migrated();
    let place = place.set("DATABASE__LAYOUT", "queue");
    for payload in ["1", "2", "3"] {
        place.enqueue(&["--topic", "orders", "--payload", payload]);
    }
    place.sql(
        "update outbox set status = 'processing', locked_by = gen_random_uuid(), lease_token = gen_random_uuid(),
         locked_until = now() + interval '1 hour' where seq = (select max(seq) from outbox);
         select log_fence_queue(); select log_move_batch(2)",
    );
    let text = place.run(&["status"]).success().stdout;
    let planned = place.run(&["log", "move", "--dry-run"]).success().stdout;
    for said in [&text, &planned] {
        assert!(said.contains("2 messages wait in the log already"), "{said}");
        assert!(said.contains("was begun") && !said.contains("--abort"), "{said}");
    }
    let planned = place.run(&["log", "move", "--dry-run", "--json"]).success().json();
    assert_eq!((&planned["would_move"], &planned["in_log"]), (&1.into(), &2.into()));
    place
        .run(&["status", "--fail-if", "pending>1"])
        .fails_with(&["pending is 2", "`posthaste log move` again"]);
    let gave_up = place.run(&["log", "move", "--wait", "1s"]);
    gave_up.fails_with(&[
        "1 message that a relay has claimed",
        "relays of the queue claim nothing",
    ]);
    assert!(!gave_up.stderr.contains("--abort"), "{gave_up:?}");
    place
        .run(&["log", "move", "--abort"])
        .fails_with(&["messages wait in the log"]);
}

#[test]
fn commands_for_a_log_that_is_not_there_say_how_to_make_one() {
    for place in places() {
        let is_postgres = place.setting("DATABASE__SCHEMA").is_some();
        let place = place.migrated();
        let remedy = &[
            "there is no log",
            LAYOUT,
            "`posthaste migrate up`",
            "`posthaste log move`",
        ][..];
        place.run(&["log", "status"]).fails_with(remedy);
        if is_postgres {
            place.run(&["log", "shards", "3"]).fails_with(remedy);
        }
        let place = place.set("DATABASE__LAYOUT", "log").migrated();
        place.run(&["log", "status"]).success();
    }
}

#[test]
fn a_schema_without_tables_is_named_and_old_ones_are_counted() {
    let Some(place) = Place::with_postgres() else { return };
    let place = place.migrated();
    place.sql("delete from schema_version where version in (5, 6)");
    place
        .run(&["status"])
        .fails_with(&["are old, without migrations 5 (finite times) and 6 (trace context)"]);
    let place = place.set("DATABASE__SCHEMA", "posthast");
    place.run(&["status"]).fails_with(&[
        "there are no outbox tables in schema \"posthast\"",
        "check that database.schema is right, then",
    ]);
}

#[test]
fn purge_says_how_a_log_is_removed() {
    let Some(place) = Place::with_postgres() else { return };
    let place = place.set("DATABASE__LAYOUT", "log").migrated();
    place.enqueue(&["--topic", "orders", "--payload", "1"]);
    place.run(&DRAIN).success();
    let by_segments = &["by whole segments", "relay.retention"][..];
    for purge in [&["purge", "--older-than", "0s", "--yes"][..], &["purge", "--dry-run"]] {
        notes(place.run(purge).success(), by_segments);
    }
    let dead = place.run(&["purge", "--dead", "--older-than", "1d", "--yes"]).success();
    assert_eq!(dead.stderr, "");
    let help = place.run(&["purge", "--help"]).success().stdout;
    assert!(help.contains("by whole"), "{help}");
}
