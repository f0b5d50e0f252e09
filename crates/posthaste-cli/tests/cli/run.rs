//! `run`: starting, checking, stopping.

use std::io::Read;
use std::process::{ChildStdout, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::{Background, DRAIN, Place, Ran, TO_STDOUT, eventually, on_every_database};

on_every_database!(
    a_signal_stops_the_relay_after_what_is_on_its_way,
    a_check_says_what_it_found_and_changes_nothing,
    a_named_database_needs_a_named_publisher,
    a_drain_that_did_not_deliver_all_that_was_due_fails,
    a_drain_that_leaves_due_messages_behind_a_waiting_one_fails,
);

const CHECK: [&str; 4] = ["run", "--check", TO_STDOUT[0], TO_STDOUT[1]];

const TO_FILE: [&str; 4] = ["--set", "publisher.kind=file", "--set", "publisher.path=events.jsonl"];

/// Proves B12.
fn a_signal_stops_the_relay_after_what_is_on_its_way(place: &Place) {
    place.run(&["migrate"]).success();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let id = place.enqueue(&["--topic", "a", "--payload", "1"]);
        let mut relay = place.start(&[&["run"], &TO_FILE[..]].concat());
        eventually("the message is delivered", || place.read("events.jsonl").contains(&id));
        relay.signal(signal);
        assert_eq!(relay.exit_code(), Some(0), "{}", place.read("log"));
        let log = place.read("log");
        assert!(log.contains("stopping") && log.contains("relay stopped"), "{log}");
        let status = place.status();
        assert_eq!(
            (&status["pending"], &status["processing"]),
            (&0.into(), &0.into()),
            "{status}"
        );
    }
}

fn a_check_says_what_it_found_and_changes_nothing(place: &Place) {
    place.run(&CHECK).fails_with(&["`posthaste migrate up`"]);
    place.run(&["migrate"]).success();
    place.enqueue(&["--topic", "a", "--payload", "1"]);
    let found = place.run(&CHECK).success().stdout;
    for part in [
        "settings   ok",
        "schema version",
        "namespace default: 1 pending",
        "publisher  stdout",
        "metrics    off",
    ] {
        assert!(found.contains(part), "{found}");
    }
    assert_eq!(place.status()["pending"], 1);
}

fn a_named_database_needs_a_named_publisher(place: &Place) {
    place.run(&["migrate"]).success();
    let id = place.enqueue(&["--topic", "payments", "--payload", "1"]);
    for args in [&["run"][..], &["run", "--drain"], &["run", "--check"]] {
        let ran = place.run(args);
        ran.fails_with(&["publisher.kind: is missing", "--set publisher.kind=stdout"]);
        assert_eq!(ran.stdout, "", "nothing is delivered");
    }
    assert_eq!(place.status()["pending"], 1);
    assert!(place.run(&DRAIN).success().stdout.contains(&id));
}

/// The address may be given in any place where settings are.
#[test]
fn a_database_is_named_by_a_file_by_a_flag_and_by_a_map() {
    let place = Place::empty();
    let refused = |args: &[&str]| {
        place
            .run(&[&["run", "--drain"], args].concat())
            .fails_with(&["publisher.kind: is missing"]);
    };
    refused(&["--database-url", "sqlite://posthaste.db"]);
    refused(&["--set", "database.url=sqlite://posthaste.db"]);
    refused(&["--set", "database.map=usage"]);
    place.write("posthaste.toml", "[database]\nurl = 'sqlite://posthaste.db'");
    refused(&[]);
    assert!(!place.path("posthaste.db").exists());
    place.run(&["status"]).fails_with(&["there is no file"]);
}

/// A webhook that nobody listens at.
const AWAY: [&str; 4] = [
    "--set",
    "publisher.kind=http",
    "--set",
    "publisher.url=http://127.0.0.1:1/x",
];

fn a_drain_that_did_not_deliver_all_that_was_due_fails(place: &Place) {
    place.run(&["migrate"]).success();
    let drain = |args: &[&str]| place.run(&[&["run", "--drain"], args].concat());
    let nothing = drain(&TO_FILE).success();
    assert_eq!(nothing.stdout, "delivered 0, failed 0, dead 0\n");

    // Too few to open the circuit.
    for n in ["1", "2", "3"] {
        place.enqueue(&["--topic", "a", "--payload", n]);
    }
    let long_wait = ["--set", r#"relay.retry.backoff={kind="schedule",delays=["1h"]}"#];
    let failed = drain(&[&AWAY[..], &long_wait].concat());
    assert_eq!(failed.stdout, "delivered 0, failed 3, dead 0\n");
    failed.fails_with(&[
        "not all that was due was delivered: delivered 0, failed 3, dead 0",
        "the first of them, message ",
        "127.0.0.1:1",
        "drain again",
    ]);
    assert_eq!(place.status()["pending"], 3);

    place.enqueue(&["--topic", "a", "--payload", "4"]);
    // The others have used up their one attempt. Without a breaker nobody doubts whether it is the message.
    let one_attempt = [
        "--set",
        "relay.retry.max_attempts=1",
        "--set",
        "relay.breaker.enabled=false",
    ];
    let died = drain(&[&AWAY[..], &one_attempt, &["--json"]].concat());
    let mut summary = died.json();
    let first = summary.as_object_mut().unwrap().remove("first_failure").unwrap();
    assert!(first.as_str().unwrap().starts_with("message "), "{first}");
    assert_eq!(
        summary,
        serde_json::json!({"delivered": 0, "failed": 0, "dead": 4, "remaining": 0})
    );
    died.fails_with(&["dead 4", "the first of them, message ", "`posthaste dead list`"]);

    place.run(&["dead", "replay", "--all"]).success();
    let delivered = drain(&[&TO_FILE[..], &["--json"]].concat()).success();
    assert_eq!(
        delivered.json(),
        serde_json::json!({"delivered": 4, "failed": 0, "dead": 0, "remaining": 0})
    );
}

fn a_drain_that_leaves_due_messages_behind_a_waiting_one_fails(place: &Place) {
    place.run(&["migrate"]).success();
    place.enqueue(&["--topic", "a", "--key", "k", "--payload", "1"]);
    let later = "next_attempt_at = {}";
    let outbox = match place.setting("DATABASE__URL") {
        Some(url) if url.starts_with("postgres") => later.replace("{}", "now() + interval '1 hour'"),
        Some(url) if url.starts_with("mysql") => later.replace("{}", "utc_timestamp(6) + interval 1 hour"),
        _ => later.replace("{}", "next_attempt_at + 3600000"),
    };
    let table = match place.setting("DATABASE__SCHEMA") {
        Some(_) => "outbox",
        None => "posthaste_outbox",
    };
    place.sql(&format!("update {table} set {outbox}"));
    let drain = |args: &[&str]| place.run(&[&["run", "--drain"], &TO_FILE[..], args].concat());
    // One that waits is not due.
    drain(&[]).success();
    place.enqueue(&["--topic", "a", "--key", "k", "--payload", "2"]);
    place.enqueue(&["--topic", "a", "--key", "other", "--payload", "3"]);
    let left = drain(&[]);
    assert_eq!(left.stdout, "delivered 1, failed 0, dead 0, still due 1\n");
    left.fails_with(&[
        "not all that was due was delivered",
        "waits for its retry",
        "drain again",
    ]);
    // Another topic's are not this one's.
    drain(&["--set", r#"relay.scope.topics=["b"]"#]).success();
}

#[test]
fn a_drain_that_finds_the_broker_unavailable_prints_what_it_did() {
    let place = Place::with_sqlite().migrated();
    for _ in 0..9 {
        place.enqueue(&["--topic", "a", "--payload", "1"]);
    }
    let ran = place.run(&[&["run", "--drain", "--json"], &AWAY[..]].concat());
    ran.fails_with(&["the broker is unavailable"]);
    assert_eq!(ran.json()["delivered"], 0);
    assert!(ran.json()["failed"].as_u64() >= Some(5), "{ran:?}");
}

/// A relay that hangs in a write to standard output, which nobody reads, and was told to stop.
fn stopping_in_a_write(place: &Place, grace: &str) -> (Background, Option<ChildStdout>) {
    // More than a pipe holds.
    place.write("body", &"x".repeat(300_000));
    place.enqueue(&["--topic", "a", "--payload", "@body"]);
    let log = std::fs::File::create(place.path("log")).unwrap();
    let grace = format!("relay.shutdown_grace={grace}");
    let mut command = place.command(&[&["run"], &TO_STDOUT[..], &["--set", &grace]].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    let mut pipe = child.stdout.take();
    let relay = Background::of(child);
    // Its first byte: the write has begun, and cannot end.
    pipe.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    relay.signal(Signal::SIGTERM);
    eventually("it is stopping", || place.read("log").contains("stopping"));
    (relay, pipe)
}

/// Proves B12.
#[test]
fn a_publisher_that_hangs_delays_a_stop_by_the_grace_and_no_more() {
    let place = Place::with_sqlite().migrated();
    let (mut relay, pipe) = stopping_in_a_write(&place, "6s");
    let begun = Instant::now();
    assert_eq!(relay.exit_code(), Some(0), "{}", place.read("log"));
    // A second is for the thread that hangs; twice the grace would be too long.
    assert!(begun.elapsed() < Duration::from_secs(11), "{:?}", begun.elapsed());
    let log = place.read("log");
    assert!(
        log.contains("stdout gave no answer for 1 messages within relay.shutdown_grace"),
        "{log}"
    );
    drop(pipe);
}

/// Proves B12.
#[test]
fn a_second_signal_ends_the_process_at_once() {
    let place = Place::with_sqlite().migrated();
    let (mut relay, pipe) = stopping_in_a_write(&place, "1h");
    // Two at once are one: `timeout` signals the process and then its group.
    relay.signal(Signal::SIGTERM);
    std::thread::sleep(Duration::from_secs(2));
    assert!(relay.is_running(), "{}", place.read("log"));
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.exit_code(), Some(128 + 15), "{}", place.read("log"));
    drop(pipe);
}

#[test]
fn without_configuration_it_just_works() {
    let place = Place::empty();
    let checked = place.run(&["run", "--check"]).success().stdout;
    assert!(
        checked.contains("sqlite://posthaste.db") && checked.contains("`run` will create them"),
        "{checked}"
    );
    assert!(!place.path("posthaste.db").exists(), "a check changes nothing");
    let id = place.enqueue(&["--topic", "hello", "--payload", "world"]);
    let delivered: Ran = place.run(&["run", "--drain"]).success();
    assert!(
        delivered.stdout.contains(&id) && delivered.stdout.lines().count() == 1,
        "{delivered:?}"
    );
    assert!(
        delivered.stderr.contains("relay started"),
        "logs go to standard error: {delivered:?}"
    );
}

#[test]
fn a_configured_database_is_migrated_only_if_that_was_asked_for() {
    let place = Place::with_sqlite();
    place.run(&DRAIN).fails_with(&["`posthaste migrate up`"]);
    let place = place.set("DATABASE__AUTO_MIGRATE", "true");
    place.run(&DRAIN).success();
}

#[test]
fn json_logs_are_lines_of_json() {
    // Where standard error is no terminal, `auto` is the same.
    for format in ["json", "auto"] {
        let set = format!("log.format={format}");
        let ran = Place::empty().run(&["run", "--drain", "--set", &set]).success();
        assert!(ran.stderr.contains("relay started"), "{ran:?}");
        for line in ran.stderr.lines() {
            serde_json::from_str::<serde_json::Value>(line).unwrap();
        }
    }
    let quiet = Place::empty()
        .run(&["run", "--drain", "--set", "log.level=error"])
        .success();
    assert_eq!(quiet.stderr, "");
}
