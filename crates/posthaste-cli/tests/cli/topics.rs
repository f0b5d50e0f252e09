//! Topics: declared, planned, applied.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::Place;

/// A place with the settings of the cluster that all tests share, unless the test runner said that there is none.
pub fn with_kafka() -> Option<Place> {
    let without = std::env::var("POSTHASTE_TEST_WITHOUT").unwrap_or_default();
    if without.split(',').any(|server| server == "kafka") {
        eprintln!("not tested: there is no Kafka on this machine");
        return None;
    }
    Some(Place::empty().set("KAFKA__BROKERS", &brokers()))
}

pub fn brokers() -> String {
    let brokers = std::env::var("POSTHASTE_TEST_KAFKA")
        .ok()
        .filter(|brokers| !brokers.is_empty());
    brokers.expect("POSTHASTE_TEST_KAFKA names no brokers: run these tests with `cargo xtask test`")
}

pub fn unique(name: &str) -> String {
    format!("{name}-{}", Uuid::new_v4().simple())
}

/// Whether a line has all of these parts.
#[track_caller]
fn has_line(text: &str, parts: &[&str]) {
    let found = text.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(found, "no line with {parts:?} in:\n{text}");
}

/// Proves C13.
#[test]
fn declared_topics_are_planned_created_and_then_left_alone() {
    let Some(place) = with_kafka() else { return };
    let (orders, stock) = (unique("order-events"), unique("stock-events"));
    place.write(
        "posthaste.toml",
        &format!(
            "[kafka.topic_defaults]\nreplication_factor = 3\nmin_insync_replicas = 2\n\
             [kafka.topics.{orders}]\n\
             [kafka.topics.{stock}]\npartitions = 6\nconfig = {{ \"max.message.bytes\" = 2_000_000 }}\n"
        ),
    );
    let plan = place.run(&["topics", "plan"]).success().stdout;
    has_line(
        &plan,
        &[
            &format!("+ {orders} "),
            "3 partitions, replication factor 3, min.insync.replicas 2, retention.ms 604800000 (7d)",
        ],
    );
    has_line(
        &plan,
        &[
            &format!("+ {orders}.dlq "),
            "1 partition, replication factor 3, max.message.bytes 1064972, min.insync.replicas 2, retention.ms 2592000000 (30d)",
        ],
    );
    has_line(&plan, &["4 to create, 0 to change, 0 as declared"]);
    assert_eq!(place.run(&["topics", "plan", "--exit-code"]).code, Some(3));

    let applied = place.run(&["topics", "apply"]).success().stdout;
    has_line(&applied, &[&format!("+ {stock}.dlq "), "created"]);
    has_line(&applied, &["4 created, 0 changed, 0 failed, 0 still different"]);

    let again = place.run(&["topics", "apply", "--json"]).success().json();
    let expected = |topic: String| json!({ "topic": topic, "outcome": "untouched", "left": [] });
    let dlq = |topic: &str| format!("{topic}.dlq");
    let all = [orders.clone(), dlq(&orders), stock.clone(), dlq(&stock)];
    assert_eq!(again["topics"], Value::from_iter(all.map(expected)));
    let plan = place.run(&["topics", "plan", "--exit-code"]).success().stdout;
    has_line(&plan, &["0 to create, 0 to change, 4 as declared"]);
}

#[test]
fn differences_are_shown_with_who_can_change_them() {
    let Some(place) = with_kafka() else { return };
    let topic = unique("like-events");
    let declare = |lines: &str| {
        place.write(
            "posthaste.toml",
            &format!("[kafka.topics.{topic}]\ndlq = false\n{lines}"),
        );
    };
    declare("partitions = 1\nreplication_factor = 2\nretention = '3d'");
    place.run(&["topics", "apply"]).success();
    declare("replication_factor = 3\nretention = '1d'\nconfig = { 'segment.ms' = 3600000 }");

    let plan = place.run(&["topics", "plan"]).success().stdout;
    has_line(&plan, &[&format!("! {topic}"), "differs"]);
    has_line(
        &plan,
        &["! partitions: 1 -> 3; only with --grow-partitions", "out of order"],
    );
    has_line(&plan, &["! replication_factor: 2 -> 3", "kafka-reassign-partitions.sh"]);
    has_line(
        &plan,
        &[
            "! retention.ms: 259200000 (3d) -> 86400000 (1d); only with --allow-loss",
            "deletes",
        ],
    );
    has_line(&plan, &["~ segment.ms: 604800000 (7d) -> 3600000 (1h)"]);
    let json = place.run(&["topics", "plan", "--json"]).success().json();
    let difference = &json["topics"][0]["differences"][0];
    assert_eq!(
        (
            &difference["field"],
            &difference["found"],
            &difference["declared"],
            &difference["change"]
        ),
        (
            &json!("partitions"),
            &json!("1"),
            &json!("3"),
            &json!("grow_partitions")
        )
    );

    let applied = place.run(&["topics", "apply"]).success().stdout;
    has_line(&applied, &[&format!("~ {topic}"), "changed segment.ms"]);
    has_line(&applied, &["! partitions: 1 -> 3"]);
    has_line(&applied, &["0 created, 1 changed, 0 failed, 1 still different"]);
    let applied = place
        .run(&["topics", "apply", "--grow-partitions", "--allow-loss"])
        .success()
        .stdout;
    has_line(&applied, &["changed partitions, retention.ms"]);
    let plan = place.run(&["topics", "plan"]).success().stdout;
    assert!(
        !plan.contains("partitions: ") && plan.contains("! replication_factor"),
        "{plan}"
    );
}

#[test]
fn what_the_cluster_refuses_is_told_before_and_fails_after() {
    let Some(place) = with_kafka() else { return };
    let topic = unique("greedy");
    let setting = format!("kafka.topics.{topic}.replication_factor=9");
    let plan = place.run(&["topics", "plan", "--set", &setting]).success().stdout;
    has_line(
        &plan,
        &[
            &format!("! {topic} "),
            "cannot be created",
            "3 brokers, which cannot keep 9 copies",
        ],
    );
    let ran = place.run(&["topics", "apply", "--set", &setting]);
    ran.fails_with(&[&topic, "lower replication_factor"]);
    has_line(&ran.stdout, &["0 created, 0 changed, 2 failed"]);
}

#[test]
fn what_is_missing_or_unavailable_is_said_with_the_remedy() {
    let place = Place::empty();
    place
        .run(&["topics", "plan"])
        .fails_with(&["no topics are declared", "[kafka.topics.order-events]"]);
    let declared = ["topics", "plan", "--set", "kafka.topics.order-events.partitions=3"];
    place
        .run(&declared)
        .fails_with(&["kafka.brokers: is missing", "kafka.brokers = [\"127.0.0.1:9092\"]"]);
    let unavailable = [&declared[..], &["--set", "kafka.brokers=127.0.0.1:1"]].concat();
    place
        .run(&unavailable)
        .fails_with(&["no broker answers at 127.0.0.1:1", "correct kafka.brokers"]);
}

#[test]
fn bad_declarations_are_refused_with_field_value_and_place() {
    let refused = |lines: &str, parts: &[&str]| {
        let place = Place::empty();
        place.write("posthaste.toml", lines);
        place
            .run(&["topics", "plan"])
            .fails_with(&[parts, &["(in posthaste.toml"]].concat());
    };
    refused(
        "[kafka.topics.a]\npartitions = 0",
        &["kafka.topics.a.partitions = 0: must be at least 1"],
    );
    refused(
        "[kafka.topics.a]\nreplication_factor = 2\nmin_insync_replicas = 3",
        &["kafka.topics.a.min_insync_replicas = 3: must be at most replication_factor, which is 2"],
    );
    refused(
        "[kafka.topic_defaults]\nretention = 'soon'",
        &["kafka.topic_defaults.retention = \"soon\": not a duration", "\"7d\""],
    );
    refused(
        "[kafka.topics.a]\npartitons = 3",
        &["kafka.topics.a.partitons: unknown key; did you mean kafka.topics.a.partitions?"],
    );
    refused("[kafka.topics.'a b']", &["kafka.topics = \"a b\": has ' ' in it"]);
    refused("[kafka.topics.'a.dlq']", &["declared along with its topic"]);
    let retention = "kafka.topics.a.config.retention.ms=5";
    Place::empty()
        .run(&["topics", "plan", "--set", retention])
        .fails_with(&[
            "kafka.topics.a.config.retention.ms = \"5\": has a field of its own; set retention instead",
            "(in a flag)",
        ]);
    refused(
        "[kafka]\nbrokers = ['nowhere']",
        &["kafka.brokers = \"nowhere\": write host:port"],
    );
}
