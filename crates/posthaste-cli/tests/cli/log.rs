//! `log`

use nix::sys::signal::Signal;

use crate::support::{Place, TO_STDOUT, eventually};

#[test]
fn a_queue_is_moved_to_the_log_with_one_command_when_its_relays_have_stopped() {
    let Some(place) = Place::with_postgres() else { return };
    place.run(&["migrate"]).success();
    for payload in ["1", "2", "3"] {
        place.enqueue(&["--topic", "a", "--payload", payload, "--key", "k", "--not-before", "1h"]);
    }
    let planned = place.run(&["log", "move", "--dry-run"]).success().stdout;
    assert!(
        planned.contains("would move 3 messages: 0 pending, 3 waiting, 0 dead, 0 processing"),
        "{planned}"
    );

    let mut relay = place.start(&[&["run"], &TO_STDOUT[..]].concat());
    eventually("the relay is on the list", || {
        !place.status()["relays"].as_array().unwrap().is_empty()
    });
    place
        .run(&["log", "move", "--wait", "1s"])
        .fails_with(&["waited 1s for 1 relays to stop"]);
    relay.signal(Signal::SIGTERM);
    assert_eq!(relay.exit_code(), Some(0));

    let moved = place.run(&["log", "move", "--json"]).success().json();
    assert_eq!(moved["moved"], 3);
    // Producers that were not told go on, and what they write is in the log.
    place.enqueue(&["--topic", "a", "--payload", "4", "--key", "k"]);
    assert_eq!(place.status()["pending"], 0);
    let again = place.run(&["log", "move", "--json"]).success().json();
    assert_eq!(again["moved"], 0, "and once more changes nothing");
}

#[test]
fn how_far_a_log_is_read_is_shown() {
    let Some(place) = Place::with_postgres() else { return };
    place.run(&["migrate"]).success();
    place.run(&["log", "move"]).success();
    assert!(place.run(&["log", "status", "--json"]).success().json()["shards"].is_array());
    let text = place.run(&["log", "status"]).success().stdout;
    assert!(text.contains("shard") && text.contains("leased until"), "{text}");
}

#[test]
fn what_has_no_queue_beside_a_log_is_refused() {
    let place = Place::with_sqlite();
    place.run(&["log", "move"]).fails_with(&["PostgreSQL only"]);
}
