//! Rules that say where messages go, by topic, type and tenant.

use posthaste_core::Message;
use serde::{Deserialize, Serialize};

/// A rule that says where messages go: to a topic, or to one of several publishers. All conditions that are given must hold;
/// `*` in them stands for any text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The message's own topic. Defaults to any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// The event's type. Defaults to any, and to messages without one.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub event_type: Option<String>,
    /// The tenant. Defaults to any, and to messages without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Where such messages go: the name of a publisher; or of a topic, in which `{topic}`, `{type}`, `{domain}` (of the type)
    /// and `{tenant}` stand for the message's own.
    pub to: String,
}

impl Route {
    /// Sends all messages to `to`, unless conditions are added.
    pub fn to(to: impl Into<String>) -> Self {
        Self {
            to: to.into(),
            ..Self::default()
        }
    }

    /// The same, for messages with such a topic.
    #[must_use]
    pub fn topic(mut self, pattern: impl Into<String>) -> Self {
        self.topic = Some(pattern.into());
        self
    }

    /// The same, for events of such a type.
    #[must_use]
    pub fn event_type(mut self, pattern: impl Into<String>) -> Self {
        self.event_type = Some(pattern.into());
        self
    }

    /// The same, for messages of such a tenant.
    #[must_use]
    pub fn tenant(mut self, pattern: impl Into<String>) -> Self {
        self.tenant = Some(pattern.into());
        self
    }

    /// Whether it is for all messages.
    pub fn is_unconditional(&self) -> bool {
        self.topic.is_none() && self.event_type.is_none() && self.tenant.is_none()
    }

    /// Whether it is for this message.
    pub fn matches(&self, message: &Message) -> bool {
        let matches = |pattern: &Option<String>, text: Option<&str>| match pattern {
            None => true,
            Some(pattern) => text.is_some_and(|text| matches_pattern(pattern, text)),
        };
        matches(&self.topic, Some(&message.topic))
            && matches(&self.event_type, message.event_type.as_deref())
            && matches(&self.tenant, message.tenant.as_deref())
    }

    /// Whether it is for all messages that `other` is for.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        let covers = |wide: &Option<String>, narrow: Option<&str>| match (wide, narrow) {
            (None, _) => true,
            (Some(wide), Some(narrow)) => includes(wide, narrow),
            // Messages without one fit no pattern.
            (Some(_), None) => false,
        };
        // Every message has a topic.
        covers(&self.topic, Some(other.topic.as_deref().unwrap_or("*")))
            && covers(&self.event_type, other.event_type.as_deref())
            && covers(&self.tenant, other.tenant.as_deref())
    }
}

/// Whether every text that fits `narrow` fits `wide`. A letter that no pattern has stands for any text that a star of `narrow`
/// stands for: it fits nothing but a star.
fn includes(wide: &str, narrow: &str) -> bool {
    const ANY_TEXT: &str = "\u{0}";
    matches_pattern(wide, &narrow.replace('*', ANY_TEXT))
}

/// Whether text matches a pattern in which `*` stands for any text.
fn matches_pattern(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(mut text) = text.strip_prefix(start) else {
        return false;
    };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let end = pieces.pop().unwrap_or_default();
    for piece in pieces {
        match text.find(piece) {
            Some(at) => text = &text[at + piece.len()..],
            None => return false,
        }
    }
    text.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_covers_those_for_fewer_messages() {
        let to = || Route::to("a");
        for (wide, narrow) in [
            (to(), to().tenant("t")),
            (to().topic("*"), to()),
            (to().topic("*"), to().topic("x").event_type("y")),
            (to().topic("x*"), to().topic("xy")),
            (to().topic("x*"), to().topic("x*y*")),
            (to().topic("x*z"), to().topic("xy*z")),
            (to().topic("x"), to().topic("x")),
            (to().event_type("*.order.*"), to().event_type("a.order.b*").tenant("t")),
        ] {
            assert!(wide.covers(&narrow), "{wide:?} {narrow:?}");
        }
        for (wide, narrow) in [
            (to().topic("x"), to()),
            (to().event_type("*"), to()),
            (to().tenant("*"), to().topic("x")),
            (to().topic("xy*"), to().topic("x*")),
            (to().topic("x*y"), to().topic("x*")),
            (to().topic("*x*"), to().topic("*")),
            (to().topic("x*").tenant("t"), to().topic("xy")),
        ] {
            assert!(!wide.covers(&narrow), "{wide:?} {narrow:?}");
        }
    }

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("*", "a", true),
            ("a", "a", true),
            ("a", "ab", false),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxc", false),
            ("ab*ba", "aba", false),
            ("*b*", "abc", true),
            ("", "a", false),
        ] {
            assert_eq!(matches_pattern(pattern, text), expected, "{pattern} {text}");
        }
    }
}
