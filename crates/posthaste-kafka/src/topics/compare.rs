//! A topic as it is against the topic as it was declared.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{Change, Difference};
use super::spec::{MIN_INSYNC, RETENTION, WantedTopic};

/// A topic as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FoundTopic {
    pub(super) partitions: usize,
    /// Of the partition with the fewest.
    pub(super) replicas: usize,
    /// All that is in force; empty if it may not be read.
    pub(super) config: BTreeMap<String, FoundConfig>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundConfig {
    pub(super) value: Option<String>,
    /// Set for this topic, other than inherited from the cluster.
    pub(super) is_own: bool,
}

/// Everything that is not as declared.
pub(super) fn differences(wanted: &WantedTopic, found: &FoundTopic) -> Vec<Difference> {
    let shape = [partitions(wanted, found), replicas(wanted, found)];
    let config = if found.config.is_empty() {
        vec![unreadable()]
    } else {
        let compare = |(name, declared): (&String, &String)| setting(name, declared, found);
        wanted.config.iter().filter_map(compare).collect()
    };
    shape.into_iter().flatten().chain(config).collect()
}

fn partitions(wanted: &WantedTopic, found: &FoundTopic) -> Option<Difference> {
    let declared = usize::try_from(wanted.partitions).unwrap_or(usize::MAX);
    let (change, note) = match declared.cmp(&found.partitions) {
        std::cmp::Ordering::Equal => return None,
        std::cmp::Ordering::Greater => (
            Change::GrowPartitions,
            "moves keys to other partitions: records of one key that are there already and those to come may be handled \
             out of order, unless consumers have caught up and producers pause",
        ),
        std::cmp::Ordering::Less => (
            Change::ByHand,
            "Kafka cannot take partitions away; declare what is there, or move to a new topic",
        ),
    };
    Some(Difference {
        field: "partitions".to_owned(),
        declared: declared.to_string(),
        found: found.partitions.to_string(),
        change,
        note: Some(note.to_owned()),
    })
}

fn replicas(wanted: &WantedTopic, found: &FoundTopic) -> Option<Difference> {
    let declared = wanted.replication_factor?.to_string();
    (declared != found.replicas.to_string()).then(|| Difference {
        field: "replication_factor".to_owned(),
        declared,
        found: found.replicas.to_string(),
        change: Change::ByHand,
        note: Some("copies move between brokers; do it with kafka-reassign-partitions.sh".to_owned()),
    })
}

fn unreadable() -> Difference {
    Difference {
        field: "config".to_owned(),
        declared: "(some)".to_owned(),
        found: "(not to be seen)".to_owned(),
        change: Change::ByHand,
        note: Some("grant this client's user DescribeConfigs on the topic with kafka-acls.sh".to_owned()),
    }
}

fn setting(name: &str, declared: &str, found: &FoundTopic) -> Option<Difference> {
    let difference = |found: String, change, note: Option<String>| {
        Some(Difference {
            field: name.to_owned(),
            declared: declared.to_owned(),
            found,
            change,
            note,
        })
    };
    let Some(in_force) = found.config.get(name) else {
        let note = "this cluster knows no such setting of a topic; correct its name";
        return difference("(unknown)".to_owned(), Change::ByHand, Some(note.to_owned()));
    };
    let value = in_force.value.as_deref().unwrap_or_default();
    if same(value, declared) {
        return None;
    }
    if name == MIN_INSYNC && declared.parse().is_ok_and(|least: usize| least > found.replicas) {
        let note = format!(
            "there are {} replicas, and nothing could be written; add replicas first with kafka-reassign-partitions.sh",
            found.replicas
        );
        return difference(value.to_owned(), Change::ByHand, Some(note));
    }
    match loss(name, declared, value) {
        Some(note) => difference(value.to_owned(), Change::AllowLoss, Some(note.to_owned())),
        None => difference(value.to_owned(), Change::Apply, None),
    }
}

/// What Kafka would delete, if it would.
fn loss(name: &str, declared: &str, found: &str) -> Option<&'static str> {
    // -1 means without end.
    let bound = |text: &str| text.parse::<i64>().ok().filter(|bound| *bound >= 0).unwrap_or(i64::MAX);
    match name {
        RETENTION if bound(declared) < bound(found) => Some("Kafka deletes the records that are older"),
        "retention.bytes" if bound(declared) < bound(found) => Some("Kafka deletes the oldest records above that size"),
        "cleanup.policy" => Some("Kafka deletes records by another rule than before"),
        _ => None,
    }
}

/// Whether two spellings of a value mean the same.
fn same(one: &str, other: &str) -> bool {
    let list = |text: &str| -> BTreeSet<String> { text.split(',').map(|item| item.trim().to_owned()).collect() };
    let number = |text: &str| text.trim().parse::<f64>().ok();
    match (number(one), number(other)) {
        // Whole numbers of Kafka's size are exact up to 2^53 only.
        (Some(a), Some(b)) if a.abs() < 9e15 => a.total_cmp(&b).is_eq(),
        _ => list(one) == list(other),
    }
}
