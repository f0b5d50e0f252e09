//! `status`

use crate::support::{Place, eventually, on_every_database};

on_every_database!(status_counts_what_is_there_and_hides_the_password);

fn status_counts_what_is_there_and_hides_the_password(place: &Place) {
    place.run(&["migrate"]).success();
    place.enqueue(&["--topic", "a", "--payload", "1"]);
    place.enqueue(&["--topic", "a", "--payload", "1", "--not-before", "1h"]);
    let status = place.status();
    let counts = ["pending", "waiting", "processing", "dead"].map(|count| status[count].as_u64().unwrap());
    assert_eq!(counts, [2, 1, 0, 0], "{status}");
    assert!(
        status["schema_version"].as_i64() >= Some(1) && status["oldest_seconds"].as_f64() >= Some(0.0),
        "{status}"
    );
    let text = place.run(&["status"]).success().stdout;
    assert!(text.contains("pending     2 (of these 1 wait"), "{text}");
    assert_eq!(
        place
            .run(&["status", "--json", "--namespace", "other"])
            .success()
            .json()["pending"],
        0
    );
}

#[test]
fn watching_goes_on_until_interrupted() {
    let place = Place::with_sqlite().migrated();
    let mut watching = place.start(&["status", "--watch", "--json"]);
    eventually("it has looked twice", || place.read("out").lines().count() >= 2);
    watching.signal(nix::sys::signal::Signal::SIGINT);
    assert_eq!(watching.exit_code(), None, "ended by the signal, not by itself");
}

#[test]
fn completions_know_every_command() {
    let place = Place::empty();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.run(&["completions", shell]).success().stdout;
        assert!(script.contains("migrate") && script.contains("enqueue"), "{shell}");
    }
}
