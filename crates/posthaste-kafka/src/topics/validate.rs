//! What no cluster would take.

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;

use super::retention::Retention;
use super::spec::{DeclaredTopics, MIN_INSYNC, RETENTION, TopicSpec};
use crate::dead_letter;

/// A declaration that cannot work.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field} = {value}: {remedy}")]
pub struct InvalidTopics {
    /// The field, with dots: `topics.order-events.partitions`, `topic_defaults.retention`.
    pub field: String,
    /// The value that was given.
    pub value: String,
    /// What to give instead.
    pub remedy: String,
}

/// Kafka's own limit.
const MAX_NAME_LENGTH: usize = 249;

impl DeclaredTopics {
    /// Checks what can be known without a cluster.
    pub fn validate(&self) -> Result<(), InvalidTopics> {
        check_spec("topic_defaults", &self.defaults, &self.defaults)?;
        let mut seen = BTreeMap::new();
        for (name, spec) in &self.topics {
            let field = format!("topics.{name}");
            check_name(name, spec.dlq.or(self.defaults.dlq).unwrap_or(true)).map_err(|remedy| InvalidTopics {
                field: "topics".to_owned(),
                value: format!("{name:?}"),
                remedy,
            })?;
            if let Some(twin) = seen.insert(name.replace('.', "_"), name) {
                return Err(InvalidTopics {
                    field: "topics".to_owned(),
                    value: format!("{name:?}"),
                    remedy: format!("Kafka cannot tell it from {twin:?}: `.` and `_` count as one; rename one of them"),
                });
            }
            check_spec(&field, spec, &self.defaults)?;
        }
        Ok(())
    }
}

fn check_name(name: &str, dlq: bool) -> Result<(), String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let longest = if dlq {
        MAX_NAME_LENGTH - dead_letter::topic_for("").len()
    } else {
        MAX_NAME_LENGTH
    };
    if name.is_empty() || name == "." || name == ".." {
        return Err("is no name for a topic; use letters, digits, `.`, `_` and `-`".to_owned());
    }
    if let Some(wrong) = name.chars().find(|c| !legal(*c)) {
        return Err(format!("has {wrong:?} in it; use letters, digits, `.`, `_` and `-`"));
    }
    if name.len() > longest {
        return Err(format!(
            "is longer than {longest} characters, which is the most that Kafka takes"
        ));
    }
    match dead_letter::origin_of(name) {
        Some(origin) => Err(format!(
            "a .dlq topic is declared along with its topic; set dlq_retention and dlq_partitions of topics.{origin}"
        )),
        None => Ok(()),
    }
}

fn check_spec(at: &str, spec: &TopicSpec, defaults: &TopicSpec) -> Result<(), InvalidTopics> {
    let wrong = |field: &str, value: String, remedy: String| {
        let field = format!("{at}.{field}");
        Err(InvalidTopics { field, value, remedy })
    };
    let counts = [
        ("partitions", spec.partitions, 200_000),
        // The protocol has 16 bits for it.
        ("replication_factor", spec.replication_factor, 32_767),
        ("min_insync_replicas", spec.min_insync_replicas, 32_767),
        ("dlq_partitions", spec.dlq_partitions, 200_000),
    ];
    for (field, count, most) in counts {
        match count {
            Some(0) => return wrong(field, "0".to_owned(), "must be at least 1".to_owned()),
            Some(count) if count > most => {
                return wrong(field, count.to_string(), format!("must be at most {most}"));
            }
            _ => {}
        }
    }
    let replicas = spec.replication_factor.or(defaults.replication_factor);
    let in_sync = spec.min_insync_replicas.or(defaults.min_insync_replicas);
    if let (Some(replicas), Some(in_sync)) = (replicas, in_sync)
        && in_sync > replicas
    {
        let remedy = format!("must be at most replication_factor, which is {replicas}, or nothing could be written");
        return wrong("min_insync_replicas", in_sync.to_string(), remedy);
    }
    for (field, retention) in [("retention", spec.retention), ("dlq_retention", spec.dlq_retention)] {
        if let Some(Retention::For(time)) = retention
            && time < Duration::from_millis(1)
        {
            return wrong(
                field,
                Retention::For(time).to_string(),
                "must be above 0; Kafka would delete records before they are read".to_owned(),
            );
        }
    }
    let owned = [(RETENTION, "retention"), (MIN_INSYNC, "min_insync_replicas")];
    for (table, config) in [("config", &spec.config), ("dlq_config", &spec.dlq_config)] {
        for (name, field) in owned {
            if let Some(value) = config.get(name) {
                let field_there = match (table, name) {
                    ("dlq_config", RETENTION) => "dlq_retention",
                    _ => field,
                };
                return wrong(
                    &format!("{table}.{name}"),
                    format!("{value:?}"),
                    format!("has a field of its own; set {field_there} instead"),
                );
            }
        }
    }
    Ok(())
}
