//! `status`

use crate::support::{DRAIN, Place, TO_STDOUT, eventually, on_every_database};

on_every_database!(
    status_counts_what_is_there_and_hides_the_password,
    status_shows_the_relays_and_misses_them_when_they_are_needed,
    status_shows_which_relay_leads,
    status_fails_if_a_condition_is_met,
);

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

fn status_shows_the_relays_and_misses_them_when_they_are_needed(place: &Place) {
    place.run(&["migrate"]).success();
    let text = place.run(&["status"]).success().stdout;
    assert!(text.contains("relays      0 alive\n"), "nothing waits for one: {text}");
    place.enqueue(&["--topic", "a", "--payload", "1"]);
    let text = place.run(&["status"]).success().stdout;
    assert!(
        text.contains("relays      0 alive  nothing is delivered; start one with `posthaste run`"),
        "{text}"
    );

    let mut relay = place.start(&[&["run"], &TO_STDOUT[..]].concat());
    let relays = || place.status()["relays"].as_array().unwrap().clone();
    eventually("the relay is on the list", || !relays().is_empty());
    let found = relays().remove(0);
    assert_eq!(
        (&found["alive"], &found["circuit"], &found["leads"]),
        (&true.into(), &"closed".into(), &false.into())
    );
    assert_eq!(
        (&found["publisher"], &found["namespace"]),
        (&"stdout".into(), &"default".into())
    );
    let text = place.run(&["status"]).success().stdout;
    let process = format!(
        "stdout on {}, process {}, version",
        found["host"].as_str().unwrap(),
        found["pid"]
    );
    assert!(
        text.contains("relays      1 alive\n") && text.contains(&process),
        "{text}"
    );
    assert!(text.contains("circuit closed since 2"), "{text}");
    relay.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(relay.exit_code(), Some(0));
    assert_eq!(relays().len(), 0, "it has left");
}

fn status_shows_which_relay_leads(place: &Place) {
    place.run(&["migrate"]).success();
    let exclusive = ["--set", "relay.exclusive=true"];
    let drain = [&DRAIN[..], &exclusive].concat();
    let mut relay = place.start(&[&["run"], &TO_STDOUT[..], &exclusive].concat());
    let leads = || place.status()["relays"][0]["leads"] == true;
    eventually("the relay leads", leads);
    assert!(place.run(&["status"]).success().stdout.contains(", leads\n"));
    place
        .run(&drain)
        .fails_with(&["leads this namespace", "stop it before you drain"]);
    relay.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(relay.exit_code(), Some(0));
    place.run(&drain).success();
}

fn status_fails_if_a_condition_is_met(place: &Place) {
    place.run(&["migrate"]).success();
    place.enqueue(&["--topic", "a", "--payload", "1"]);
    place.enqueue(&["--topic", "a", "--payload", "1"]);
    let fine = place
        .run(&[
            "status",
            "--fail-if",
            "dead>0",
            "--fail-if",
            "pending>2",
            "--fail-if",
            "oldest>1h",
        ])
        .success();
    assert!(fine.stdout.contains("pending     2"), "{fine:?}");
    let met = place.run(&[
        "status",
        "--json",
        "--fail-if",
        "dead>0",
        "--fail-if",
        "pending>1",
        "--fail-if",
        "relays<1",
    ]);
    met.fails_with(&["pending is 2 (--fail-if 'pending>1'); relays is 0 (--fail-if 'relays<1')"]);
    assert!(!met.stderr.contains("dead"), "{met:?}");
    assert_eq!(met.json()["pending"], 2, "what is there is printed all the same");
    let misspelt = place.run(&["status", "--fail-if", "ded>0"]);
    assert!(
        misspelt.code == Some(2) && misspelt.stderr.contains("use pending"),
        "{misspelt:?}"
    );
}

#[test]
fn watching_goes_on_until_interrupted() {
    let place = Place::with_sqlite().migrated();
    let mut watching = place.start(&["status", "--watch", "--json"]);
    eventually("it has looked twice", || place.read("out").lines().count() >= 2);
    // Not SIGINT, which shells let processes in the background ignore.
    watching.signal(nix::sys::signal::Signal::SIGTERM);
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
