use std::collections::BTreeMap;
use std::time::Duration;

use super::compare::{FoundConfig, FoundTopic, differences};
use super::*;

fn read(json: &str) -> TopicSpec {
    serde_json::from_str(json).unwrap()
}

fn wanted(spec: TopicSpec) -> Vec<WantedTopic> {
    DeclaredTopics::default().topic("order-events", spec).wanted()
}

#[test]
fn what_is_left_out_comes_from_the_defaults_and_then_from_posthaste() {
    let declared = DeclaredTopics::named(["a"])
        .topic(
            "b",
            read(r#"{"partitions": 6, "retention": "forever", "config": {"max.message.bytes": 100}}"#),
        )
        .defaults(read(
            r#"{"replication_factor": 3, "min_insync_replicas": 2, "config": {"x": {"y": true}}}"#,
        ));
    assert_eq!(declared.validate(), Ok(()));
    let [a, a_dlq, b, b_dlq] = &declared.wanted()[..] else {
        panic!("not four")
    };
    let config = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    };
    assert_eq!((a.name.as_str(), a.partitions, a.replication_factor), ("a", 3, Some(3)));
    assert_eq!(
        a.config,
        config(&[
            ("retention.ms", "604800000"),
            ("min.insync.replicas", "2"),
            ("x.y", "true")
        ])
    );
    assert_eq!(
        (a_dlq.name.as_str(), a_dlq.partitions, a_dlq.replication_factor),
        ("a.dlq", 1, Some(3))
    );
    assert_eq!(
        a_dlq.config,
        config(&[("retention.ms", "2592000000"), ("min.insync.replicas", "2")]),
        "a dead-letter topic has none of the topic's other settings"
    );
    assert_eq!((b.partitions, b.config["retention.ms"].as_str()), (6, "-1"));
    assert_eq!(b_dlq.config["max.message.bytes"], (100 + 16 * 1024).to_string());
    let without = wanted(read(r#"{"dlq": false}"#));
    assert_eq!(without.len(), 1);
}

#[test]
fn declarations_that_no_cluster_would_take_are_refused_by_field() {
    let refused = |name: &str, json: &str| {
        let declared = DeclaredTopics::default().topic(name, read(json));
        declared.validate().unwrap_err().to_string()
    };
    assert_eq!(
        refused("a", r#"{"partitions": 0}"#),
        "topics.a.partitions = 0: must be at least 1"
    );
    assert!(refused("a", r#"{"dlq_partitions": 0}"#).starts_with("topics.a.dlq_partitions = 0"));
    assert!(refused("a", r#"{"replication_factor": 40000}"#).contains("at most 32767"));
    assert_eq!(
        refused("a", r#"{"replication_factor": 2, "min_insync_replicas": 3}"#),
        "topics.a.min_insync_replicas = 3: must be at most replication_factor, which is 2, or nothing could be written"
    );
    assert!(refused("a", r#"{"retention": "0s"}"#).starts_with("topics.a.retention = 0s: must be above 0"));
    assert!(refused("a", r#"{"config": {"retention.ms": 5}}"#).contains("set retention instead"));
    assert!(refused("a", r#"{"dlq_config": {"retention.ms": 5}}"#).contains("set dlq_retention instead"));
    assert!(refused("a", r#"{"config": {"min.insync.replicas": 5}}"#).contains("set min_insync_replicas instead"));
    assert!(refused("order events", "{}").starts_with(r#"topics = "order events": has ' ' in it"#));
    assert!(refused("a.dlq", "{}").contains("set dlq_retention and dlq_partitions of topics.a"));
    assert!(refused(&"a".repeat(246), "{}").contains("longer than 245"));
    assert!(refused(&"a".repeat(250), r#"{"dlq": false}"#).contains("longer than 249"));
    assert!(refused("..", "{}").contains("no name for a topic"));
    let twins = DeclaredTopics::named(["a.b", "a_b"])
        .validate()
        .unwrap_err()
        .to_string();
    assert!(twins.contains(r#"cannot tell it from "a.b""#), "{twins}");
    let defaults = DeclaredTopics::default().defaults(read(r#"{"partitions": 0}"#));
    assert_eq!(defaults.validate().unwrap_err().field, "topic_defaults.partitions");
    let together = DeclaredTopics::named(["a"])
        .topic("b", read(r#"{"replication_factor": 1}"#))
        .defaults(read(r#"{"replication_factor": 3, "min_insync_replicas": 2}"#));
    assert_eq!(together.validate().unwrap_err().field, "topics.b.min_insync_replicas");
}

#[test]
fn retention_is_a_duration_or_forever() {
    assert_eq!("7d".parse(), Ok(Retention::days(7)));
    assert_eq!("forever".parse(), Ok(Retention::Forever));
    assert_eq!(Retention::For(Duration::from_secs(90)).to_string(), "1m 30s");
    let wrong = serde_json::from_str::<TopicSpec>(r#"{"retention": "soon"}"#).unwrap_err();
    assert!(wrong.to_string().contains("expected a duration"), "{wrong}");
}

fn found(partitions: usize, replicas: usize, config: &[(&str, &str)]) -> FoundTopic {
    let entry = |(name, value): &(&str, &str)| {
        let value = Some((*value).to_owned());
        ((*name).to_owned(), FoundConfig { value, is_own: true })
    };
    FoundTopic {
        partitions,
        replicas,
        config: config.iter().map(entry).collect(),
    }
}

#[test]
fn each_difference_says_who_can_change_it() {
    let spec = r#"{"partitions": 3, "replication_factor": 3, "min_insync_replicas": 2,
        "config": {"cleanup.policy": "compact, delete", "max.message.bytes": 2000, "max.mesage.bytes": 1}}"#;
    let wanted = &wanted(read(spec))[0];
    let changes = |found: &FoundTopic| -> Vec<(String, Change)> {
        let all = differences(wanted, found).into_iter();
        all.map(|difference| (difference.field, difference.change)).collect()
    };
    let all = |pairs: &[(&str, Change)]| -> Vec<(String, Change)> {
        pairs
            .iter()
            .map(|(field, change)| ((*field).to_owned(), *change))
            .collect()
    };
    let same = [
        ("cleanup.policy", "delete,compact"),
        ("max.mesage.bytes", "1"),
        ("max.message.bytes", "2000"),
        ("min.insync.replicas", "2"),
        ("retention.ms", "604800000"),
    ];
    assert_eq!(changes(&found(3, 3, &same)), []);
    let growing = [
        ("cleanup.policy", "delete"),
        ("max.message.bytes", "1000"),
        ("min.insync.replicas", "1"),
        ("retention.ms", "1000"),
    ];
    assert_eq!(
        changes(&found(2, 3, &growing)),
        all(&[
            ("partitions", Change::GrowPartitions),
            ("cleanup.policy", Change::AllowLoss),
            ("max.mesage.bytes", Change::ByHand),
            ("max.message.bytes", Change::Apply),
            ("min.insync.replicas", Change::Apply),
            ("retention.ms", Change::Apply),
        ])
    );
    let shrinking = [
        ("cleanup.policy", "compact,delete"),
        ("max.mesage.bytes", "1"),
        ("max.message.bytes", "2000"),
        ("min.insync.replicas", "1"),
        ("retention.ms", "-1"),
    ];
    assert_eq!(
        changes(&found(4, 1, &shrinking)),
        all(&[
            ("partitions", Change::ByHand),
            ("replication_factor", Change::ByHand),
            ("min.insync.replicas", Change::ByHand),
            ("retention.ms", Change::AllowLoss),
        ])
    );
    assert_eq!(changes(&found(3, 3, &[])), all(&[("config", Change::ByHand)]));
}

#[test]
fn a_topic_that_could_not_be_written_is_not_worth_creating() {
    let wanted = &wanted(read(r#"{"min_insync_replicas": 2}"#))[0];
    let refused = super::refusal::unwritable(wanted, Some(1)).unwrap();
    assert!(refused.contains("default.replication.factor is 1"), "{refused}");
    assert_eq!(super::refusal::unwritable(wanted, Some(3)), None);
    assert_eq!(super::refusal::unwritable(wanted, None), None, "it is not known");
}
