//! `run`: starting, checking, stopping.

use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::support::{Place, Ran, eventually, on_every_database};

on_every_database!(
    a_signal_stops_the_relay_after_what_is_on_its_way,
    a_check_says_what_it_found_and_changes_nothing
);

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
    place.run(&["run", "--check"]).fails_with(&["`posthaste migrate up`"]);
    place.run(&["migrate"]).success();
    place.enqueue(&["--topic", "a", "--payload", "1"]);
    let found = place.run(&["run", "--check"]).success().stdout;
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

/// Proves B12.
#[test]
fn a_second_signal_ends_the_process_at_once() {
    let place = Place::with_sqlite().migrated();
    // More than a pipe holds: with nobody reading, the publisher hangs in its write, and a clean stop would wait for it.
    place.write("body", &"x".repeat(300_000));
    place.enqueue(&["--topic", "a", "--payload", "@body"]);
    let log = std::fs::File::create(place.path("log")).unwrap();
    let mut command = place.command(&["run", "--set", "relay.shutdown_grace=1h"]);
    let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    let pipe = child.stdout.take();
    let mut relay = crate::support::Background::of(child);
    eventually("the message is being sent", || place.status()["processing"] == 1);
    relay.signal(Signal::SIGTERM);
    eventually("it is stopping", || place.read("log").contains("stopping"));
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
    place.run(&["run", "--drain"]).fails_with(&["`posthaste migrate up`"]);
    let place = place.set("DATABASE__AUTO_MIGRATE", "true");
    place.run(&["run", "--drain"]).success();
}

#[test]
fn json_logs_are_lines_of_json() {
    let ran = Place::empty()
        .run(&["run", "--drain", "--set", "log.format=json"])
        .success();
    for line in ran.stderr.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    let quiet = Place::empty()
        .run(&["run", "--drain", "--set", "log.level=error"])
        .success();
    assert_eq!(quiet.stderr, "");
}
