//! Texts with places for what a message holds.

use std::borrow::Cow;

use chrono::SecondsFormat;
use posthaste_core::Text;
use posthaste_core::publisher::Delivery;
use serde_json::Value;

/// A text, taken apart once. What is put in is never looked at for places again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Words(String),
    Place(Place),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Topic,
    EventType,
    Id,
    Key,
    Tenant,
    Source,
    AggregateType,
    AggregateId,
    CreatedAt,
    Sequence,
    Attempt,
    Payload,
    /// The way into a JSON payload.
    InPayload(Vec<String>),
    Header(String),
}

/// The names of places that stand for themselves.
const PLACES: [(&str, Place); 12] = [
    ("topic", Place::Topic),
    ("event_type", Place::EventType),
    ("id", Place::Id),
    ("key", Place::Key),
    ("tenant", Place::Tenant),
    ("source", Place::Source),
    ("aggregate_type", Place::AggregateType),
    ("aggregate_id", Place::AggregateId),
    ("created_at", Place::CreatedAt),
    ("sequence", Place::Sequence),
    ("attempt", Place::Attempt),
    ("payload", Place::Payload),
];

impl Template {
    /// Whether it says the same for every message.
    pub(crate) fn is_constant(&self) -> bool {
        self.0.iter().all(|part| matches!(part, Part::Words(_)))
    }

    /// Reads a text; the error says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut words = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            words.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            let after = &rest[at + 1..];
            if let Some(after) = after.strip_prefix(brace) {
                words.push_str(brace);
                rest = after;
                continue;
            }
            if brace == "}" {
                return Err("a `}` stands alone; write `}}` for a brace".to_owned());
            }
            let Some((name, after)) = after.split_once('}') else {
                return Err("a `{` is not closed; write `{{` for a brace".to_owned());
            };
            if !words.is_empty() {
                parts.push(Part::Words(std::mem::take(&mut words)));
            }
            parts.push(Part::Place(Place::parse(name)?));
            rest = after;
        }
        words.push_str(rest);
        if !words.is_empty() {
            parts.push(Part::Words(words));
        }
        Ok(Self(parts))
    }

    /// The text for a message, cut to `limit`. Where it is too long the payload is shortened first, so that what stands
    /// around it, such as the end of a block of code, stays whole.
    pub(crate) fn render(&self, delivery: &Delivery, limit: usize) -> String {
        let payload = payload_text(delivery);
        let text = self.fill(delivery, &payload);
        let over = units(&text).saturating_sub(limit);
        let places = self
            .0
            .iter()
            .filter(|part| **part == Part::Place(Place::Payload))
            .count();
        if over == 0 || places == 0 {
            return cut(&text, limit);
        }
        let shorter = cut(&payload, units(&payload).saturating_sub(over.div_ceil(places)));
        cut(&self.fill(delivery, &shorter), limit)
    }

    fn fill(&self, delivery: &Delivery, payload: &str) -> String {
        let parts = self.0.iter().map(|part| match part {
            Part::Words(words) => Cow::Borrowed(words.as_str()),
            Part::Place(place) => place.value(delivery, payload),
        });
        parts.collect()
    }
}

impl Place {
    fn parse(name: &str) -> Result<Self, String> {
        if let Some((_, place)) = PLACES.iter().find(|(known, _)| *known == name) {
            return Ok(place.clone());
        }
        if let Some(way) = name.strip_prefix("payload.")
            && way.split('.').all(|step| !step.is_empty())
        {
            return Ok(Self::InPayload(way.split('.').map(ToOwned::to_owned).collect()));
        }
        if let Some(header) = name.strip_prefix("header.")
            && !header.is_empty()
        {
            return Ok(Self::Header(header.to_owned()));
        }
        let known: Vec<_> = PLACES.iter().map(|(known, _)| *known).collect();
        Err(format!(
            "`{{{name}}}` is not known; use {}, payload.NAME or header.NAME",
            known.join(", ")
        ))
    }

    fn value<'a>(&self, delivery: &'a Delivery, payload: &'a str) -> Cow<'a, str> {
        let message = &delivery.message;
        let or_empty = |value: &'a Option<Text>| value.as_deref().unwrap_or_default().into();
        match self {
            Self::Topic => message.topic.as_str().into(),
            Self::EventType => message.event_type.as_deref().unwrap_or(&message.topic).into(),
            Self::Id => message.effective_event_id(),
            Self::Key => or_empty(&message.ordering_key),
            Self::Tenant => or_empty(&message.tenant),
            Self::Source => or_empty(&message.source),
            Self::AggregateType => or_empty(&message.aggregate_type),
            Self::AggregateId => or_empty(&message.aggregate_id),
            Self::CreatedAt => delivery.created_at.to_rfc3339_opts(SecondsFormat::Secs, true).into(),
            Self::Sequence => delivery
                .sequence
                .map(|number| number.to_string())
                .unwrap_or_default()
                .into(),
            Self::Attempt => delivery.attempt.to_string().into(),
            Self::Payload => payload.into(),
            Self::InPayload(way) => in_payload(&message.payload, way).into(),
            Self::Header(name) => message.headers.get(name).map_or("", String::as_str).into(),
        }
    }
}

/// The payload as people can read it.
fn payload_text(delivery: &Delivery) -> Cow<'_, str> {
    let message = &delivery.message;
    match std::str::from_utf8(&message.payload) {
        Ok(text) => text.into(),
        Err(_) => format!("({} bytes of {})", message.payload.len(), message.content_type).into(),
    }
}

fn in_payload(payload: &[u8], way: &[String]) -> String {
    let whole: Value = serde_json::from_slice(payload).unwrap_or_default();
    let found = way.iter().try_fold(&whole, |value, step| match value {
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        value => value.get(step),
    });
    match found {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// How long a text is to a receiver. It is not said in which unit it counts; UTF-16 is the largest that any would use.
pub(crate) fn units(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// The text, or as much of it as fits with a mark that it was cut.
pub(crate) fn cut(text: &str, limit: usize) -> String {
    const MARK: char = '…';
    if units(text) <= limit {
        return text.to_owned();
    }
    let Some(room) = limit.checked_sub(MARK.len_utf16()) else {
        return String::new();
    };
    let mut used = 0;
    let fits = text.chars().take_while(|c| {
        used += c.len_utf16();
        used <= room
    });
    fits.chain([MARK]).collect()
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use posthaste_core::Message;

    use super::*;

    fn delivery(payload: impl Into<String>) -> Delivery {
        let message = Message::new("orders", payload.into())
            .key("42")
            .aggregate("Order", "42")
            .header("trace", "t-1");
        Delivery::new(message, DateTime::UNIX_EPOCH).attempt(3)
    }

    fn render(template: &str, delivery: &Delivery) -> String {
        Template::parse(template).unwrap().render(delivery, 100)
    }

    #[test]
    fn places_are_filled_from_the_message() {
        let delivery = delivery(r#"{"order": {"id": 42, "note": "hi", "gone": null}, "items": [{"sku": "a"}]}"#);
        for (template, text) in [
            ("{topic}/{key}#{attempt}", "orders/42#3"),
            ("{event_type} {aggregate_type} {aggregate_id}", "orders Order 42"),
            ("[{tenant}{source}{payload.nothing.here}{payload.order.gone}]", "[]"),
            (
                "{payload.order.id} {payload.order.note} {payload.items.0.sku}",
                "42 hi a",
            ),
            ("{payload.items}", r#"[{"sku":"a"}]"#),
            ("{header.trace}{header.other}", "t-1"),
            ("{created_at}", "1970-01-01T00:00:00Z"),
            ("{{topic}} {{{topic}}}", "{topic} {orders}"),
        ] {
            assert_eq!(render(template, &delivery), text);
        }
        assert_eq!(render("{id}", &delivery), delivery.message.id.to_string());
    }

    #[test]
    fn what_is_put_in_is_not_a_template() {
        assert_eq!(render("{payload}", &delivery("{topic}")), "{topic}");
    }

    #[test]
    fn bytes_that_are_no_text_are_described() {
        let mut delivery = delivery("");
        delivery.message.payload = vec![0xff, 0xfe].into();
        delivery.message.content_type = "application/protobuf".into();
        assert_eq!(
            render("{payload}{payload.a}", &delivery),
            "(2 bytes of application/protobuf)"
        );
    }

    #[test]
    fn a_text_that_is_too_long_loses_the_end_of_its_payload() {
        let text = render("```\n{payload}\n```", &delivery("x".repeat(500)));
        assert_eq!(units(&text), 100);
        assert!(text.starts_with("```\nxxx") && text.ends_with("x…\n```"), "{text}");
        let twice = render("{payload} and {payload}.", &delivery("x".repeat(500)));
        assert!(units(&twice) <= 100 && twice.ends_with("…."), "{twice}");
        let hopeless = render(&"y".repeat(200), &delivery("x"));
        assert_eq!((units(&hopeless), hopeless.ends_with("y…")), (100, true));
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("äöü", 3), "äöü");
        assert_eq!(cut("äöüß", 3), "äö…");
        // Two units each: three of them and the mark are seven.
        assert_eq!(cut("🎁🎁🎁🎁", 7), "🎁🎁🎁…");
        assert_eq!(cut("🎁🎁🎁🎁", 6), "🎁🎁…");
        assert_eq!(cut("ab", 1), "…");
        assert_eq!(cut("ab", 0), "");
    }
}
