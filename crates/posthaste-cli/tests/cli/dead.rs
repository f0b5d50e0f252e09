//! Dead messages: seen, replayed, discarded.

use std::fs::File;
use std::process::Stdio;

use crate::probes;
use crate::support::{Background, DRAIN, Place, TO_STDOUT, eventually, on_every_database};

on_every_database!(
    a_dead_message_shows_in_log_status_list_and_detail,
    replayed_messages_are_delivered,
    discarded_messages_are_gone,
    an_id_of_no_dead_message_is_an_error_and_the_others_are_changed,
    changing_everything_must_be_said,
    a_dry_run_changes_nothing,
    dead_messages_are_listed_page_by_page,
    dead_messages_can_be_enqueued_in_another_outbox,
);

/// Each message has one attempt, at an address where nobody listens.
pub const DYING: [&str; 10] = [
    "--set",
    "publisher.kind=http",
    "--set",
    "publisher.url=http://127.0.0.1:1/x",
    "--set",
    "relay.retry.max_attempts=1",
    "--set",
    "relay.breaker.enabled=false",
    "--set",
    r#"relay.retry.backoff={kind="schedule",delays=["10ms"]}"#,
];

/// Enqueues messages and lets them die.
pub fn with_dead(place: &Place, messages: &[(&str, &str)]) -> Vec<String> {
    place.run(&["migrate"]).success();
    let enqueue =
        |(topic, key): &(&str, &str)| place.enqueue(&["--topic", topic, "--key", key, "--payload", r#"{"n":1}"#]);
    let ids = messages.iter().map(enqueue).collect();
    let log = File::create(place.path("log")).unwrap();
    // A drain that finds the way to the broker closed counts one attempt, and lets the other messages wait.
    eventually("all are dead", || {
        let mut command = place.command(&[&["run", "--drain"], &DYING[..]].concat());
        let log = log.try_clone().unwrap();
        Background::of(command.stdout(Stdio::null()).stderr(log).spawn().unwrap()).exit_code();
        place.status()["dead"] == messages.len()
    });
    ids
}

/// More than are changed at once.
fn with_600_dead() -> Place {
    let place = Place::with_sqlite().migrated();
    let lines = r#"{"topic":"orders","payload":1}"#.to_owned() + "\n";
    place
        .run_with_input(&["enqueue", "--stdin"], &lines.repeat(600))
        .success();
    place.sql("update posthaste_outbox set status = 'dead'");
    place
}

/// What dies again while its replay goes on is not meant a second time: others are.
#[test]
fn each_dead_message_is_replayed_once_though_it_dies_again() {
    let place = with_600_dead();
    place.sql(
        "create trigger dies_again after update of status on posthaste_outbox
         when old.status = 'dead' and new.status = 'pending'
         begin update posthaste_outbox set status = 'dead' where id = new.id; end",
    );
    let replayed = place.run(&["dead", "replay", "--all", "--json"]).success().json();
    let ids = replayed["ids"].as_array().unwrap();
    let distinct: std::collections::HashSet<_> = ids.iter().map(|id| id.as_str().unwrap()).collect();
    assert_eq!((ids.len(), distinct.len()), (600, 600));
}

/// One that a trigger keeps as it is stops none of the others, and is named.
#[test]
fn a_dead_message_that_the_database_refuses_to_change_keeps_no_other() {
    let place = with_600_dead();
    place.sql(
        "create trigger kept before update on posthaste_outbox
         when old.seq = 300 begin select raise(abort, 'kept for the audit'); end;
         create trigger kept_too before delete on posthaste_outbox
         when old.seq = 300 begin select raise(abort, 'kept for the audit'); end",
    );
    let refused = |verb: &[&str], done: &str, not: &str| {
        let ran = place.run(&[&["dead"], verb, &["--all"]].concat());
        assert_eq!(ran.stdout, done);
        ran.fails_with(&[not, "kept for the audit", "run this again"]);
    };
    refused(&["replay"], "replayed 599\n", "cannot be replayed");
    place.sql("update posthaste_outbox set status = 'dead' where seq <> 300");
    refused(&["discard", "--yes"], "discarded 599\n", "cannot be discarded");
    assert_eq!(place.status()["dead"], 1);
}

/// If the database refuses one after the other, the search ends, and those that were found are named beside the reason.
#[test]
fn the_search_for_refused_dead_messages_ends() {
    let place = with_600_dead();
    place.sql(
        "create trigger kept before update on posthaste_outbox
         when old.seq > 300 begin select raise(abort, 'kept for the audit'); end",
    );
    let ran = place.run(&["dead", "replay", "--all"]);
    assert_eq!(ran.stdout, "replayed 300\n");
    ran.fails_with(&["kept for the audit", "cannot be replayed", "run this again"]);
    assert_eq!(ran.stderr.matches("cannot be replayed").count(), 10);
}

/// Proves B16.
fn a_dead_message_shows_in_log_status_list_and_detail(place: &Place) {
    let ids = with_dead(place, &[("orders", "1"), ("mails", "2")]);
    let log = place.read("log");
    assert!(
        ids.iter()
            .all(|id| log.contains(&format!("message is dead; replay or discard it id={id}"))),
        "{log}"
    );

    let status = place.run(&["status"]).success().stdout;
    assert!(status.contains("dead        2  see `posthaste dead list`"), "{status}");

    let list = place.run(&["dead", "list"]).success().stdout;
    assert!(
        ids.iter().all(|id| list.contains(id)) && list.contains("cannot be reached"),
        "{list}"
    );
    let mails = place.run(&["dead", "list", "--topic", "mails", "--json"]).success();
    assert_eq!(
        (mails.stdout.lines().count(), mails.json()["id"].as_str()),
        (1, Some(ids[1].as_str()))
    );
    assert_eq!(
        place
            .run(&["dead", "list", "--limit", "1", "--json"])
            .success()
            .stdout
            .lines()
            .count(),
        1
    );

    let shown = place.run(&["dead", "show", &ids[0]]).success().stdout;
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(
        (&shown["topic"], &shown["attempts"], &shown["payload"]["n"]),
        (&"orders".into(), &1.into(), &1.into())
    );
    assert!(
        shown["last_error"].as_str().unwrap().contains("cannot be reached"),
        "{shown}"
    );
}

fn replayed_messages_are_delivered(place: &Place) {
    let ids = with_dead(place, &[("orders", "1"), ("orders", "2"), ("mails", "1")]);
    assert_eq!(place.run(&["dead", "replay", &ids[0]]).success().stdout, "replayed 1\n");
    place
        .run(&["dead", "replay", &ids[0]])
        .fails_with(&[&format!("message {} is not dead: it is pending", ids[0])]);
    assert_eq!(
        place.run(&["dead", "replay", "--all", "--limit", "1"]).success().stdout,
        "replayed 1\n"
    );
    let rest = place.run(&["dead", "replay", "--key", "1", "--json"]).success().json();
    assert_eq!(
        (&rest["replayed"], &rest["ids"][0]),
        (&1.into(), &ids[2].as_str().into())
    );
    let delivered = place.run(&DRAIN).success().stdout;
    assert!(ids.iter().all(|id| delivered.contains(id)), "{delivered}");
}

fn discarded_messages_are_gone(place: &Place) {
    let ids = with_dead(place, &[("orders", "1"), ("mails", "2")]);
    place
        .run(&["dead", "discard", &ids[0]])
        .fails_with(&["cannot be brought back", "--yes"]);
    assert_eq!(
        place
            .run(&["dead", "discard", "--topic", "orders", "--yes"])
            .success()
            .stdout,
        "discarded 1\n"
    );
    place
        .run(&["dead", "show", &ids[0]])
        .fails_with(&["there is no message", "`posthaste dead list`"]);
    assert_eq!(
        place.run(&["dead", "discard", "--all", "--yes"]).success().stdout,
        "discarded 1\n"
    );
    assert_eq!(place.run(&["dead", "list"]).success().stdout, "no dead messages\n");
}

/// Else a wrong id would look like one that was replayed.
fn an_id_of_no_dead_message_is_an_error_and_the_others_are_changed(place: &Place) {
    let ids = with_dead(
        place,
        &[("orders", "1"), ("orders", "2"), ("orders", "3"), ("mails", "4")],
    );
    let pending = place.enqueue(&["--topic", "orders", "--payload", "1"]);
    let unknown = uuid::Uuid::now_v7().to_string();
    let change = |args: &[&str], stdout: &str, parts: &[&str]| {
        let ran = place.run(&[&["dead"], args].concat());
        ran.fails_with(parts);
        assert_eq!(ran.stdout, stdout);
    };
    let not_found = format!("there is no message {unknown}");
    let not_dead = format!("message {pending} is not dead: it is pending");
    let parts = [not_found.as_str(), &not_dead, "`posthaste dead list`"];
    let wrong = ["replay", &unknown, &pending];
    change(
        &[&wrong[..], &[&ids[0], "--dry-run"]].concat(),
        "would replay 1\n",
        &parts,
    );
    change(&wrong, "replayed 0\n", &parts);
    change(&[&wrong[..], &[&ids[0]]].concat(), "replayed 1\n", &parts);
    change(&["discard", "--yes", &unknown, &ids[1]], "discarded 1\n", &[&not_found]);
    let excluded = format!("message {} is dead, but the other conditions exclude it", ids[3]);
    change(
        &["replay", "--topic", "orders", &ids[3]],
        "replayed 0\n",
        &[&excluded, "topic \"mails\""],
    );
    // What a limit leaves for the next time is no error.
    place
        .run(&["dead", "replay", "--limit", "1", &ids[2], &ids[3]])
        .success();
    assert_eq!(place.status()["dead"], 1);
}

fn changing_everything_must_be_said(place: &Place) {
    with_dead(place, &[("orders", "1")]);
    place
        .run(&["dead", "replay"])
        .fails_with(&["every dead message", "--all"]);
    place
        .run(&["dead", "discard", "--yes"])
        .fails_with(&["every dead message", "--all"]);
    assert_eq!(place.status()["dead"], 1);
}

fn a_dry_run_changes_nothing(place: &Place) {
    let ids = with_dead(place, &[("orders", "1"), ("orders", "2"), ("refunds", "3")]);
    let dry = |args: &[&str]| {
        let args = [&["dead"], args, &["--dry-run"]].concat();
        place.run(&args).success()
    };
    assert_eq!(dry(&["discard", "--all"]).stdout, "would discard 3\n", "without --yes");
    assert_eq!(dry(&["replay", "--topic", "orders"]).stdout, "would replay 2\n");
    let first = dry(&["replay", "--all", "--limit", "1", "--json"]).json();
    assert_eq!(first, serde_json::json!({"would_replay": 1, "ids": [ids[0]]}));
    assert_eq!(place.status()["dead"], 3);
}

fn dead_messages_are_listed_page_by_page(place: &Place) {
    let ids = with_dead(place, &[("orders", "1"), ("orders", "2"), ("orders", "3")]);
    let page = place.run(&["dead", "list", "--limit", "2"]).success().stdout;
    let note = format!("there are more; go on with --after {}, or raise --limit\n", ids[1]);
    assert!(page.ends_with(&note), "{page}");
    let page = place
        .run(&["dead", "list", "--limit", "2", "--after", &ids[1]])
        .success()
        .stdout;
    assert!(page.contains(&ids[2]) && !page.contains("there are more"), "{page}");
    let page = place.run(&["dead", "list", "--limit", "2", "--json"]).success();
    assert!(
        page.stderr.contains(&note) && page.stdout.lines().count() == 2,
        "{page:?}"
    );
    let all = place.run(&["dead", "list", "--limit", "3"]).success().stdout;
    assert!(!all.contains("there are more"), "{all}");
}

/// Every payload arrives byte for byte: also one that is a JSON string, has line breaks, or is no text.
fn dead_messages_can_be_enqueued_in_another_outbox(place: &Place) {
    place.run(&["migrate"]).success();
    let payloads: [&[u8]; 6] = [
        br#"{"n":  1.50}"#,
        br#""text""#,
        b"{\n  \"pretty\": true\n}\n",
        b"plain",
        b"\xff\x00",
        b" 1 ",
    ];
    for payload in payloads {
        std::fs::write(place.path("body"), payload).unwrap();
        let args = ["--topic", "a", "--key", "k", "--tenant", "t", "--dedupe-key"];
        let key = format!("t/{}", uuid::Uuid::new_v4());
        place.enqueue(&[&args[..], &[&key, "--header", "h=1", "--payload", "@body"]].concat());
    }
    let unavailable = [
        "--set",
        "publisher.kind=http",
        "--set",
        "publisher.url=http://127.0.0.1:1/x",
    ];
    let dying = [
        &["run", "--drain", "--set", "relay.retry.max_attempts=1"],
        &unavailable[..],
    ]
    .concat();
    // A dead head lets the next one of its key go.
    crate::support::eventually("all are dead", || {
        place.run(&[&dying[..], &["--set", "relay.breaker.enabled=false"]].concat());
        place.status()["dead"] == payloads.len()
    });
    let exported = place.run(&["dead", "list", "--json"]).success().stdout;

    let other = Place::with_sqlite().migrated();
    let imported = other
        .run_with_input(&["enqueue", "--stdin"], &exported)
        .success()
        .stdout;
    let ids: Vec<_> = imported
        .lines()
        .map(|line| line.strip_suffix(" new").unwrap())
        .collect();
    assert_eq!(ids.len(), payloads.len());
    let again = [&dying[..], &["--set", "relay.breaker.enabled=false"]].concat();
    crate::support::eventually("all are dead there", || {
        other.run(&again);
        other.status()["dead"] == payloads.len()
    });
    let arrived = other.run(&["dead", "list", "--json"]).success().stdout;
    let comparable = |lines: &str| -> Vec<serde_json::Value> {
        let mut rows: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for row in &mut rows {
            for own in ["sequence", "created_at", "updated_at", "last_error", "attempts"] {
                row.as_object_mut().unwrap().remove(own);
            }
        }
        rows
    };
    assert_eq!(comparable(&arrived), comparable(&exported));
}

/// Proves B16.
#[test]
fn dead_messages_show_in_the_metrics() {
    let place = Place::with_sqlite();
    with_dead(&place, &[("orders", "1"), ("orders", "2")]);
    let often = ["--set", "relay.janitor_interval=100ms"];
    let (_relay, port) = probes::start(&place, &[&TO_STDOUT[..], &often].concat());
    let metrics = || probes::get(port, "/metrics").map(|(_, figures)| figures);
    eventually("the gauge shows two", || {
        metrics().is_some_and(|text| text.contains("outbox_dead_count{namespace=\"default\"} 2\n"))
    });
    let text = metrics().unwrap();
    assert!(text.contains("# HELP outbox_dead_count Dead messages"), "{text}");
}

/// It would mean every message of a table that has no namespaces.
#[test]
fn a_namespace_is_refused_where_the_table_has_none() {
    let Some(place) = Place::with_mariadb() else { return };
    place.sql(include_str!("../../../posthaste-sql/maps/donation.sql"));
    place.sql(
        "insert into donation_outbox (request_id, event_type, payload, content_hash, status, created_at, updated_at)
         values ('1', 'DONATED', '{}', '', 'DEAD_LETTER', '2020-01-01', '2020-01-01')",
    );
    let place = place.set("DATABASE__MAP", "donation");
    for command in [
        &["dead", "discard", "--all", "--yes"][..],
        &["dead", "replay", "--all"],
        &["dead", "list"],
        &["purge", "--dead", "--older-than", "1d", "--yes"],
    ] {
        let ran = place.run(&[command, &["--namespace", "other"]].concat());
        ran.fails_with(&["--namespace other", "leave it out"]);
    }
    assert_eq!(
        place.run(&["dead", "list", "--json"]).success().stdout.lines().count(),
        1
    );
}
