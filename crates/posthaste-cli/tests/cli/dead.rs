//! Dead messages: seen, replayed, discarded.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::support::{Background, Place, eventually, on_every_database};

on_every_database!(
    a_dead_message_shows_in_log_status_list_and_detail,
    replayed_messages_are_delivered,
    discarded_messages_are_gone,
    changing_everything_must_be_said,
);

/// Enqueues messages and lets them die: their one attempt goes to a pipe that nobody reads.
fn with_dead(place: &Place, messages: &[(&str, &str)]) -> Vec<String> {
    place.run(&["migrate"]).success();
    let enqueue =
        |(topic, key): &(&str, &str)| place.enqueue(&["--topic", topic, "--key", key, "--payload", r#"{"n":1}"#]);
    let ids = messages.iter().map(enqueue).collect();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let log = File::create(place.path("log")).unwrap();
    let mut command = place.command(&["run", "--drain", "--set", "relay.retry.max_attempts=1"]);
    let mut relay = Background::of(command.stdout(writer).stderr(log).spawn().unwrap());
    assert_eq!(relay.exit_code(), Some(0), "{}", place.read("log"));
    assert_eq!(place.status()["dead"], messages.len());
    ids
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
        ids.iter().all(|id| list.contains(id)) && list.contains("nobody reads"),
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
        shown["last_error"].as_str().unwrap().contains("nobody reads"),
        "{shown}"
    );
}

fn replayed_messages_are_delivered(place: &Place) {
    let ids = with_dead(place, &[("orders", "1"), ("orders", "2"), ("mails", "1")]);
    assert_eq!(place.run(&["dead", "replay", &ids[0]]).success().stdout, "replayed 1\n");
    assert_eq!(
        place.run(&["dead", "replay", &ids[0]]).success().stdout,
        "replayed 0\n",
        "it is not dead any more"
    );
    assert_eq!(
        place.run(&["dead", "replay", "--all", "--limit", "1"]).success().stdout,
        "replayed 1\n"
    );
    let rest = place.run(&["dead", "replay", "--key", "1", "--json"]).success().json();
    assert_eq!(
        (&rest["replayed"], &rest["ids"][0]),
        (&1.into(), &ids[2].as_str().into())
    );
    let delivered = place.run(&["run", "--drain"]).success().stdout;
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

/// Proves B16.
#[test]
fn dead_messages_show_in_the_metrics() {
    let place = Place::with_sqlite();
    with_dead(&place, &[("orders", "1"), ("orders", "2")]);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("metrics.listen=127.0.0.1:{port}");
    let _relay = place.start(&["run", "--set", &listen, "--set", "relay.janitor_interval=100ms"]);
    eventually("the gauge shows two", || {
        metrics(port).is_some_and(|text| text.contains("outbox_dead_count{namespace=\"default\"} 2\n"))
    });
    let text = metrics(port).unwrap();
    assert!(text.contains("# HELP outbox_dead_count Dead messages"), "{text}");
}

fn metrics(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}
