//! Which topic a message goes to.

use std::borrow::Cow;

use posthaste_core::type_name::TypeName;
use posthaste_core::{Message, PublishError};

use super::options::InvalidKafkaOptions;
use crate::routing::Route;

const PLACEHOLDERS: [&str; 4] = ["topic", "type", "domain", "tenant"];

/// The topic of a message: the first route that matches, else the message's own, else the one its type gives.
pub(super) fn topic<'a>(routes: &[Route], message: &'a Message) -> Result<Cow<'a, str>, PublishError> {
    let topic = match routes.iter().find(|route| route.matches(message)) {
        Some(route) => Cow::Owned(route.apply(message)?),
        None if message.topic.is_empty() => Cow::Owned(of_type(message)?),
        None => Cow::Borrowed(message.topic.as_str()),
    };
    if is_topic(&topic) {
        return Ok(topic);
    }
    Err(PublishError::permanent(format!(
        "Kafka: no topic can be called {topic:?}; use at most 249 letters, digits, `.`, `_` and `-`, or route the \
         message elsewhere by publisher.routes"
    )))
}

fn of_type(message: &Message) -> Result<String, PublishError> {
    let parsed = message.event_type.as_deref().map(TypeName::parse);
    match parsed {
        Some(Ok(name)) => Ok(name.default_topic()),
        _ => Err(PublishError::permanent(
            "Kafka: the message has no topic, and no type that gives one; set its topic, or add a rule to \
             publisher.routes",
        )),
    }
}

fn is_topic(name: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=249).contains(&name.len()) && name != "." && name != ".." && name.chars().all(fine)
}

impl Route {
    fn apply(&self, message: &Message) -> Result<String, PublishError> {
        let mut topic = String::new();
        for part in parts(&self.to) {
            match part {
                Part::Text(text) => topic.push_str(text),
                Part::Placeholder(name) => topic.push_str(&value(name, message).ok_or_else(|| {
                    // A matter of the settings, which can be fixed: the message must not die of it.
                    PublishError::transient(format!(
                        "Kafka: publisher.routes sends the message to {:?}, but it has no {name}; add a condition on \
                         it, or another rule before",
                        self.to
                    ))
                })?),
            }
        }
        Ok(topic)
    }

    pub(super) fn check(&self, place: usize) -> Result<(), InvalidKafkaOptions> {
        let refuse = |remedy: String| {
            Err(InvalidKafkaOptions::Field {
                field: format!("routes.{place}.to"),
                value: format!("{:?}", self.to),
                remedy,
            })
        };
        let mut example = String::new();
        for part in parts(&self.to) {
            match part {
                Part::Text(text) => example.push_str(text),
                Part::Placeholder(name) if PLACEHOLDERS.contains(&name) => example.push('x'),
                Part::Placeholder(name) => {
                    return refuse(format!(
                        "{{{name}}} is unknown; use {{topic}}, {{type}}, {{domain}} or {{tenant}}"
                    ));
                }
            }
        }
        if is_topic(&example) {
            Ok(())
        } else {
            refuse("no topic can have this name; use at most 249 letters, digits, `.`, `_` and `-`".to_owned())
        }
    }
}

enum Part<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

fn parts(template: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, after)) = after.split_once('}') else {
            break;
        };
        parts.extend([Part::Text(before), Part::Placeholder(name)]);
        rest = after;
    }
    parts.push(Part::Text(rest));
    parts
}

fn value<'a>(placeholder: &str, message: &'a Message) -> Option<Cow<'a, str>> {
    let event_type = message.event_type.as_deref();
    match placeholder {
        "topic" => Some(message.topic.as_str())
            .filter(|topic| !topic.is_empty())
            .map(Cow::Borrowed),
        "type" => event_type.map(Cow::Borrowed),
        "domain" => event_type
            .and_then(|name| TypeName::parse(name).ok())
            .map(|name| Cow::Owned(name.domain.to_owned())),
        "tenant" => message.tenant.as_deref().map(Cow::Borrowed),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(topic: Option<&str>, event_type: Option<&str>, tenant: Option<&str>, to: &str) -> Route {
        Route {
            topic: topic.map(str::to_owned),
            event_type: event_type.map(str::to_owned),
            tenant: tenant.map(str::to_owned),
            to: to.to_owned(),
        }
    }

    fn message() -> Message {
        Message::new("order-events", "x")
            .event_type("acme.order.created.v1")
            .tenant("t1")
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let routes = [
            route(None, Some("acme.payment.*"), None, "payments"),
            route(None, None, Some("t1"), "{domain}.{tenant}"),
            route(Some("order-*"), None, None, "other"),
        ];
        assert_eq!(topic(&routes, &message()).unwrap(), "order.t1");
        assert_eq!(topic(&routes, &Message::new("order-events", "x")).unwrap(), "other");
        assert_eq!(topic(&routes, &Message::new("x", "x")).unwrap(), "x");
        let all = [route(None, None, None, "{topic}-{type}")];
        assert_eq!(topic(&all, &message()).unwrap(), "order-events-acme.order.created.v1");
    }

    #[test]
    fn without_a_topic_the_type_gives_one() {
        let mut without = message();
        without.topic = "".into();
        assert_eq!(topic(&[], &without).unwrap(), "order-events");
        without.event_type = None;
        let error = topic(&[], &without).unwrap_err();
        assert!(error.message.contains("publisher.routes"), "{error}");
    }

    #[test]
    fn names_that_kafka_refuses_are_refused_here() {
        for bad in ["a/b", "", "..", "é", &"x".repeat(250)] {
            let routes = [route(None, None, None, bad)];
            assert!(routes[0].check(0).is_err(), "{bad}");
            assert!(topic(&routes, &message()).is_err(), "{bad}");
        }
        let unknown = route(None, None, None, "{tenat}").check(3).unwrap_err().to_string();
        assert_eq!(
            unknown,
            "routes.3.to = \"{tenat}\": {tenat} is unknown; use {topic}, {type}, {domain} or {tenant}"
        );
        let error = topic(&[route(None, None, None, "x-{tenant}")], &Message::new("t", "x")).unwrap_err();
        assert!(error.message.contains("has no tenant"), "{error}");
    }
}
