//! Where messages of a table go that has no column for it.

use serde::{Deserialize, Serialize};

use super::{Role, TableMap};
use posthaste_core::message::{Message, Text};
use posthaste_core::type_name::TypeName;

/// How a message's topic is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TopicRule {
    /// The column says it.
    Column,
    /// All go to one topic.
    Fixed(String),
    /// `{domain}-events` of a type name `{company}.{domain}.{action}.v{n}`.
    EventType,
    /// A text with `{event_type}`, `{aggregate_type}`, `{source}` or `{tenant}` in it; `{aggregate_type:lower}` is in small
    /// letters.
    Template(String),
}

impl TopicRule {
    /// The names that a template may mention.
    pub const NAMES: [&'static str; 4] = ["event_type", "aggregate_type", "source", "tenant"];

    /// The topic of a message, or why it has none.
    pub(super) fn topic(&self, message: &Message) -> Result<String, String> {
        match self {
            Self::Column if message.topic.is_empty() => Err("the row has no topic".to_owned()),
            Self::Column => Ok(message.topic.to_string()),
            Self::Fixed(topic) => Ok(topic.clone()),
            Self::EventType => {
                let name = message.event_type.as_deref().unwrap_or_default();
                let name = TypeName::parse(name).map_err(|error| format!("no topic: {error}"))?;
                Ok(name.default_topic())
            }
            Self::Template(text) => fill(text, message),
        }
    }

    /// The first name in a template that is not one of [`Self::NAMES`].
    pub(super) fn unknown_name(&self) -> Option<&str> {
        let Self::Template(text) = self else { return None };
        let mut names = text
            .split('{')
            .skip(1)
            .map(|part| part.split_once('}').map_or(part, |(name, _)| name));
        names.find(|name| !Self::NAMES.contains(&name.trim_end_matches(":lower")))
    }
}

impl TableMap {
    /// The topic of a new message by the table's rule, or why it has none.
    pub fn topic_for(&self, message: &Message) -> Result<String, String> {
        let or_constant = |value: &Option<Text>, role| value.clone().or_else(|| self.constant(role).map(Text::from));
        let mut message = message.clone();
        message.event_type = or_constant(&message.event_type, Role::EventType);
        message.source = or_constant(&message.source, Role::Source);
        message.aggregate_type = or_constant(&message.aggregate_type, Role::AggregateType);
        self.topic.topic(&message)
    }
}

fn fill(text: &str, message: &Message) -> Result<String, String> {
    let mut parts = text.split('{');
    let mut topic = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').unwrap_or((part, ""));
        let role = name.trim_end_matches(":lower");
        let value = match role {
            "event_type" => &message.event_type,
            "aggregate_type" => &message.aggregate_type,
            "source" => &message.source,
            "tenant" => &message.tenant,
            _ => &None,
        };
        let value = value
            .as_deref()
            .ok_or_else(|| format!("no topic: the row has no {role}"))?;
        topic += &if name.ends_with(":lower") {
            value.to_lowercase()
        } else {
            value.to_owned()
        };
        topic += rest;
    }
    Ok(topic)
}
