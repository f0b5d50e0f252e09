//! Settings in layers: the defaults, the policy of a table's map, what a user asks for.

use serde_json::{Map, Value};

use super::{InvalidConfig, RelayConfig};

/// The table whose keys are the user's own words.
const FREE: [&str; 2] = ["ordering", "topics"];

/// The field that says which other fields a table has.
const TAG: &str = "kind";

impl RelayConfig {
    /// The defaults, except for what the policy of a table's map says.
    pub fn with_policy(policy: &Map<String, Value>) -> Result<Self, InvalidConfig> {
        let config = Self::default().overlaid("policy", policy)?;
        config.validate().map_err(|invalid| InvalidConfig {
            field: format!("policy.{}", invalid.field),
            ..invalid
        })?;
        Ok(config)
    }

    /// These settings, except for what the fragment says. Tables within tables are merged field by field. Unknown fields
    /// and values of the wrong kind are refused with their place; `name` says where the fragment came from. Whether the
    /// settings can work together is for [`RelayConfig::validate`] to say.
    pub fn overlaid(&self, name: &str, fragment: &Map<String, Value>) -> Result<Self, InvalidConfig> {
        let settings = serde_json::to_value(self).map_err(|error| InvalidConfig {
            field: name.to_owned(),
            value: format!("{self:?}"),
            remedy: error.to_string(),
        })?;
        let mut layers = Layers { settings, name };
        layers.overlay(&[], fragment)?;
        layers.read(&[], &Value::Null)
    }
}

struct Layers<'a> {
    settings: Value,
    name: &'a str,
}

impl Layers<'_> {
    fn overlay(&mut self, table: &[&str], fragment: &Map<String, Value>) -> Result<(), InvalidConfig> {
        for (key, value) in fragment {
            let path = [table, &[key]].concat();
            let Some(present) = self.at(&path) else {
                return Err(self.unknown(table, key, value));
            };
            match (present, value) {
                (Value::Object(present), Value::Object(fragment)) if path == FREE => {
                    present.extend(fragment.clone());
                }
                (Value::Object(present), Value::Object(fragment)) if is_same_kind(present, fragment) => {
                    self.overlay(&path, fragment)?;
                }
                (present, value) => *present = value.clone(),
            }
            // Here and now, so that whatever is wrong is known to be wrong here.
            self.read(&path, value)?;
        }
        Ok(())
    }

    fn at(&mut self, path: &[&str]) -> Option<&mut Value> {
        path.iter()
            .try_fold(&mut self.settings, |table, key| table.get_mut(key))
    }

    fn read(&self, path: &[&str], value: &Value) -> Result<RelayConfig, InvalidConfig> {
        serde_json::from_value(self.settings.clone()).map_err(|error| self.refusal(path, value, error.to_string()))
    }

    fn unknown(&mut self, table: &[&str], key: &str, value: &Value) -> InvalidConfig {
        let known = self.at(table).and_then(|table| table.as_object());
        let known: Vec<_> = known.into_iter().flat_map(Map::keys).map(String::as_str).collect();
        let remedy = match key {
            "purge" if table.is_empty() => {
                "this setting is gone: retention = \"off\" (the default) keeps delivered messages, \
                retention = \"on\" removes them after 30 days, and a duration after another time"
                    .to_owned()
            }
            _ => format!("unknown setting; here are {}", known.join(", ")),
        };
        self.refusal(&[table, &[key]].concat(), value, remedy)
    }

    fn refusal(&self, path: &[&str], value: &Value, remedy: String) -> InvalidConfig {
        InvalidConfig {
            field: [&[self.name], path].concat().join("."),
            value: value.to_string(),
            remedy,
        }
    }
}

/// Whether fields of one table can be fields of the other.
fn is_same_kind(present: &Map<String, Value>, fragment: &Map<String, Value>) -> bool {
    fragment.get(TAG).is_none_or(|kind| present.get(TAG) == Some(kind))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use posthaste_core::store::DeadHead;
    use posthaste_core::{Backoff, RetryPolicy};
    use serde_json::json;

    use super::*;

    fn with_policy(policy: &Value) -> Result<RelayConfig, InvalidConfig> {
        RelayConfig::with_policy(policy.as_object().expect("a policy is a table"))
    }

    fn refusal(policy: &Value) -> String {
        with_policy(policy).unwrap_err().to_string()
    }

    #[test]
    fn a_policy_changes_what_it_names_and_nothing_else() {
        assert_eq!(with_policy(&json!({})).unwrap(), RelayConfig::default());
        let config = with_policy(&json!({
            "poll_interval": "5s", "fixed_delay": true, "batch_size": 10, "retention": "on",
            "retry": { "max_attempts": 5 }, "breaker": { "trials": 1 },
        }));
        let expected = RelayConfig {
            poll_interval: Duration::from_secs(5),
            fixed_delay: true,
            batch_size: 10,
            retention: crate::Retention::ON,
            retry: RetryPolicy {
                max_attempts: 5,
                ..RetryPolicy::default()
            },
            breaker: posthaste_core::BreakerConfig {
                trials: 1,
                ..posthaste_core::BreakerConfig::default()
            },
            ..RelayConfig::default()
        };
        assert_eq!(config.unwrap(), expected);
    }

    #[test]
    fn a_backoff_of_the_same_kind_is_merged_and_one_of_another_kind_replaced() {
        let backoff = |policy| {
            with_policy(&json!({ "retry": { "backoff": policy } }))
                .unwrap()
                .retry
                .backoff
        };
        assert_eq!(
            backoff(json!({ "base": "30s", "jitter": false })),
            Backoff::Exponential {
                base: Duration::from_secs(30),
                max: Duration::from_mins(5),
                jitter: false
            }
        );
        assert_eq!(
            backoff(json!({ "kind": "schedule", "delays": ["100ms", "200ms"] })),
            Backoff::Schedule {
                delays: vec![Duration::from_millis(100), Duration::from_millis(200)]
            }
        );
    }

    #[test]
    fn topics_are_the_users_words_and_layers_add_up() {
        let block = json!({ "ordering": { "topics": { "payments.eu": "block" } } });
        let policy = with_policy(&block).unwrap();
        assert_eq!(policy.ordering.topics["payments.eu"], DeadHead::Block);
        let user = json!({ "ordering": { "dead_head": "block", "topics": { "stock": "skip" } }, "batch_size": 7 });
        let config = policy.overlaid("relay", user.as_object().unwrap()).unwrap();
        let topics = [("payments.eu", DeadHead::Block), ("stock", DeadHead::Skip)];
        let topics = topics.map(|(topic, policy)| (topic.to_owned(), policy)).into();
        assert_eq!(config.ordering.topics, topics, "the policy's and the user's");
        assert_eq!((config.ordering.dead_head, config.batch_size), (DeadHead::Block, 7));
    }

    #[test]
    fn whatever_is_wrong_is_refused_by_its_place() {
        let error = refusal(&json!({ "batch_sise": 10 }));
        assert!(
            error.starts_with("policy.batch_sise = 10: unknown setting; here are "),
            "{error}"
        );
        assert!(error.contains("batch_size"), "{error}");
        let error = refusal(&json!({ "purge": true }));
        assert!(
            error.starts_with("policy.purge = true: this setting is gone: retention = "),
            "{error}"
        );
        let error = refusal(&json!({ "retry": { "max_retries": 3 } }));
        assert!(
            error.starts_with("policy.retry.max_retries = 3: unknown setting; here are "),
            "{error}"
        );
        assert!(error.ends_with("backoff, max_attempts"), "{error}");
        let error = refusal(&json!({ "retry.max_attempts": 3 }));
        assert!(
            error.starts_with("policy.retry.max_attempts = 3: unknown setting"),
            "{error}"
        );
        let error = refusal(&json!({ "ordering": { "topics": { "stock": "jump" } } }));
        assert!(
            error.starts_with("policy.ordering.topics = ") && error.contains("`jump`"),
            "{error}"
        );
        let error = refusal(&json!({ "poll_interval": "5 parsecs" }));
        assert!(error.starts_with("policy.poll_interval = \"5 parsecs\": "), "{error}");
        let error = refusal(&json!({ "retry": { "backoff": { "kind": "schedule", "delay": [] } } }));
        assert!(
            error.starts_with("policy.retry.backoff = ") && error.contains("delays"),
            "{error}"
        );
        let error = refusal(&json!({ "retry": 5 }));
        assert!(error.starts_with("policy.retry = 5: "), "{error}");
        let error = refusal(&json!({ "batch_size": { "rows": 5 } }));
        assert!(error.starts_with("policy.batch_size = "), "{error}");
        let error = refusal(&json!({ "batch_size": 0 }));
        assert_eq!(error, "policy.batch_size = 0: must be at least 1");
    }
}
