//! `enqueue`, by flags and by lines.

use std::fs::File;
use std::process::Stdio;

use serde_json::Value;

use crate::support::{DRAIN, Place, on_every_database};

on_every_database!(
    a_message_given_by_flags_is_delivered_as_given,
    a_dedupe_key_is_answered_with_the_first_id,
    lines_are_enqueued_in_order,
    a_bad_line_is_named_and_its_chunk_is_not_written,
    delivered_messages_are_purged_when_asked,
);

fn delivered(place: &Place) -> Vec<Value> {
    let ran = place.run(&DRAIN).success();
    ran.stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn migrated(place: &Place) -> &Place {
    place.run(&["migrate"]).success();
    place
}

fn a_message_given_by_flags_is_delivered_as_given(place: &Place) {
    let id = migrated(place).enqueue(&[
        "--topic",
        "orders",
        "--key",
        "-42",
        "--payload",
        r#"{"orderId":  42}"#,
        "--type",
        "acme.orders.created.v1",
        "--tenant",
        "acme",
        "--header",
        "traceparent=00-ab",
        "--aggregate",
        "Order/42",
        "--source",
        "/shop",
    ]);
    let events = delivered(place);
    assert_eq!(events.len(), 1);
    for (attribute, value) in [
        ("id", id.as_str()),
        ("type", "acme.orders.created.v1"),
        ("source", "/shop"),
        ("partitionkey", "-42"),
        ("traceparent", "00-ab"),
        ("datacontenttype", "application/json"),
    ] {
        assert_eq!(events[0][attribute], value, "{attribute} of {}", events[0]);
    }
    assert_eq!(events[0]["data"]["orderId"], 42);
}

fn a_dedupe_key_is_answered_with_the_first_id(place: &Place) {
    let args = ["enqueue", "--topic", "orders", "--payload", "1", "--dedupe-key", "k"];
    let first = migrated(place).run(&args).success().stdout;
    let second = place.run(&args).success().stdout;
    assert_eq!(second, first.replace(" new", " duplicate"));
    let third = place.run(&[&args[..], &["--json"]].concat()).success().json();
    assert_eq!(third["new"], false);
    assert!(first.starts_with(third["id"].as_str().unwrap()));
}

fn lines_are_enqueued_in_order(place: &Place) {
    let line = |n| format!("{{\"topic\": \"numbers\", \"key\": \"k\", \"payload\": {n}}}\n");
    let lines = (0..25).map(line).collect::<Vec<_>>().join("\n");
    let ran = migrated(place)
        .run_with_input(&["enqueue", "--stdin", "--chunk", "10"], &lines)
        .success();
    assert_eq!(ran.stdout.lines().filter(|line| line.ends_with(" new")).count(), 25);
    let numbers: Vec<_> = delivered(place)
        .iter()
        .map(|event| event["data"].as_i64().unwrap())
        .collect();
    assert_eq!(numbers, (0..25).collect::<Vec<_>>());
}

fn a_bad_line_is_named_and_its_chunk_is_not_written(place: &Place) {
    let good = "{\"topic\": \"a\", \"payload\": \"text\"}\n";
    let stdin = |lines: String| place.run_with_input(&["enqueue", "--stdin", "--chunk", "2"], &lines);
    migrated(place);
    stdin(format!("{good}{{\"topic\": \"a\"\n")).fails_with(&["nothing was written", "line 2: "]);
    assert_eq!(place.status()["pending"], 0);
    let ran = stdin(format!("{good}{good}{good}{{\"topic\": \"\", \"payload\": 1}}\n"));
    ran.fails_with(&[
        "lines 1 to 2 were written, nothing after them",
        "line 4: topic is empty",
    ]);
    assert_eq!(
        (ran.stdout.lines().count(), place.status()["pending"].as_u64()),
        (2, Some(2))
    );
}

fn delivered_messages_are_purged_when_asked(place: &Place) {
    migrated(place).enqueue(&["--topic", "a", "--payload", "1"]);
    assert_eq!(delivered(place).len(), 1);
    place.enqueue(&["--topic", "a", "--payload", "2"]);
    assert_eq!(
        place.run(&["purge", "--older-than", "7d"]).success().stdout,
        "removed 0 rows\n"
    );
    let asked = ["purge", "--older-than", "0s", "--dry-run"];
    for _ in 0..2 {
        assert_eq!(place.run(&asked).success().stdout, "would remove 1 rows\n");
    }
    let asked = place.run(&[&asked[..], &["--json"]].concat()).success();
    assert_eq!(asked.json()["would_remove"], 1);
    assert_eq!(asked.json()["tables"]["outbox"], 1);
    place
        .run(&["purge", "--older-than", "0s"])
        .fails_with(&["every delivered message", "--yes"]);
    place
        .run(&["purge"])
        .fails_with(&["relay.retention is off", "--older-than"]);
    let by_age = place.run(&["purge", "--dry-run"]).success().stdout;
    assert!(by_age.contains("would remove 0 rows older than 30days\n"), "{by_age}");
    assert!(by_age.contains("older than 90days"), "{by_age}");
    assert_eq!(
        place.run(&["purge", "--older-than", "0s", "--yes"]).success().stdout,
        "removed 1 rows\n"
    );
    assert_eq!(delivered(place).len(), 1, "what is not delivered is not purged");
}

#[test]
fn payloads_come_from_files_and_standard_input_byte_for_byte() {
    let place = Place::with_sqlite().migrated();
    place.write("body.txt", "from a file\n");
    place.enqueue(&["--topic", "a", "--payload", "@body.txt"]);
    place
        .run_with_input(&["enqueue", "--topic", "a", "--payload", "-"], "from a pipe")
        .success();
    let bodies: Vec<_> = delivered(&place)
        .iter()
        .map(|event| event["data"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(bodies, ["from a file\n", "from a pipe"]);
    place
        .run(&["enqueue", "--topic", "a", "--payload", "@none"])
        .fails_with(&["--payload @none: cannot read"]);
}

#[test]
fn a_message_for_later_waits() {
    let place = Place::with_sqlite().migrated();
    place.enqueue(&["--topic", "a", "--payload", "1", "--not-before", "1h"]);
    place.enqueue(&["--topic", "a", "--payload", "1", "--not-before", "2000-01-01T00:00:00Z"]);
    assert_eq!(delivered(&place).len(), 1);
    assert_eq!(place.status()["waiting"], 1);
}

#[test]
fn a_bad_field_of_a_line_is_named_with_one_line_number() {
    let place = Place::with_sqlite().migrated();
    let good = r#"{"topic": "a", "payload": 1}"#;
    for (line, complaint) in [
        (
            r#"{"payload": 1}"#,
            "line 3: topic: is missing; say where the message goes",
        ),
        (
            r#"{"topic": "a", "payload": 1, "not_before": "yesterday"}"#,
            "line 3: not_before: ",
        ),
        (
            r#"{"topic": "a", "payload": 1, "key": 1}"#,
            "line 3: key: invalid type: integer `1`, expected a string",
        ),
    ] {
        let ran = place.run_with_input(&["enqueue", "--stdin"], &format!("{good}\n{good}\n{line}\n"));
        ran.fails_with(&["nothing was written", complaint]);
        assert!(!ran.stderr.contains("line 1"), "{ran:?}");
    }
}

#[test]
fn a_refusal_names_the_flag_and_the_setting() {
    let place = Place::with_sqlite().migrated();
    place.write("body", &"x".repeat(2_000_000));
    let large = ["enqueue", "--topic", "a", "--payload", "@body"];
    let ran = place.run(&large);
    ran.fails_with(&["--payload: 2000000 bytes", "outbox.limits.payload_bytes = 2000000"]);
    assert!(!ran.stderr.contains("message 0"), "{ran:?}");
    place
        .run(&[&large[..], &["--set", "outbox.limits.payload_bytes=2000000"]].concat())
        .success();

    let enqueue = |args: &[&str]| place.run(&[&["enqueue", "--topic", "a", "--payload", "1"], args].concat());
    enqueue(&["--tenant", "t1", "--dedupe-key", "k"]).fails_with(&["--dedupe-key: ", "`t1/`"]);
    enqueue(&["--type", "Paid"]).fails_with(&["--type: ", "outbox.type_names = \"any\""]);
    enqueue(&["--key", ""]).fails_with(&["--key: ", "is empty"]);
    enqueue(&["--header", "id=1"]).fails_with(&["--header: header `id`"]);
    let long = "k".repeat(600);
    let ran = enqueue(&["--key", &long]);
    ran.fails_with(&["--key: 600 bytes are more than the 512 that are allowed; shorten it"]);
    assert!(!ran.stderr.contains("raise"), "that limit is fixed: {ran:?}");

    let lines =
        format!("{{\"topic\": \"a\", \"payload\": 1}}\n{{\"topic\": \"a\", \"key\": \"{long}\", \"payload\": 1}}\n");
    let ran = place.run_with_input(&["enqueue", "--stdin"], &lines);
    ran.fails_with(&["line 2: ordering_key: 600 bytes"]);
}

/// Whoever reads the ids may have seen enough of them; the rest is written all the same.
#[test]
fn lines_are_written_though_nobody_reads_their_ids() {
    let place = Place::with_sqlite();
    migrated(&place);
    let lines = "{\"topic\": \"t\", \"payload\": 1}\n".repeat(2_000);
    place.write("lines", &lines);
    let mut child = place
        .command(&["enqueue", "--stdin"])
        .stdin(File::open(place.path("lines")).unwrap())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
    assert_eq!(delivered(&place).len(), 2_000);
}

/// What was written before standard output was full is counted.
#[test]
fn ids_that_cannot_be_printed_do_not_hide_what_was_written() {
    let place = Place::with_sqlite();
    migrated(&place);
    place.write("lines", &"{\"topic\": \"t\", \"payload\": 1}\n".repeat(3));
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = place
        .command(&["enqueue", "--stdin"])
        .stdin(File::open(place.path("lines")).unwrap())
        .stdout(full)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    for part in ["lines 1 to 3 were written", "cannot be printed"] {
        assert!(said.contains(part), "{said}");
    }
}
