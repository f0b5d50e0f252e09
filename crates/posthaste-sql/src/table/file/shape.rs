//! How a map's TOML is read so that an error names its field and its line, in the words of maps and not of Rust.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use toml::de::DeTable;

/// A text alone, or a table that says more.
#[derive(Debug)]
pub(super) enum TextOr<T> {
    Text(String),
    Table(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for TextOr<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Reader<T> {
            type Value = TextOr<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or a table in braces")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(TextOr::Text(text.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(TextOr::Table)
            }
        }
        input.deserialize_any(Reader(PhantomData))
    }
}

/// The line of a place in a text, counted from one.
pub(super) fn line(text: &str, at: usize) -> usize {
    let before = text.as_bytes().iter().take(at);
    before.filter(|byte| **byte == b'\n').count() + 1
}

/// The line of a field, or of the nearest table around it that the text has.
pub(super) fn line_of(text: &str, field: &str) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let mut table = root.get_ref();
    let mut found = None;
    for part in field.split('.') {
        let Some((key, value)) = table.iter().find(|(key, _)| key.get_ref() == part) else {
            break;
        };
        found = Some(line(text, key.span().start));
        let Some(inner) = value.get_ref().as_table() else { break };
        table = inner;
    }
    found
}

/// The field at a place, with dots; empty if it is not in any.
pub(super) fn field_at(text: &str, place: &Range<usize>) -> String {
    let mut parts: Vec<String> = Vec::new();
    let Ok(root) = DeTable::parse(text) else {
        return String::new();
    };
    let mut table = root.get_ref();
    let holds = |span: Range<usize>| span.start <= place.start && place.end <= span.end;
    // A table under a heading has the span of its heading alone, so what stands in it is looked for in all of them.
    while let Some((key, value)) = table.iter().find(|(key, value)| {
        holds(key.span()) || holds(value.span()) || value.get_ref().as_table().is_some_and(|inner| is_in(inner, place))
    }) {
        parts.push(key.get_ref().to_string());
        match value.get_ref().as_table() {
            Some(inner) if !holds(key.span()) => table = inner,
            _ => break,
        }
    }
    parts.join(".")
}

fn is_in(table: &DeTable<'_>, place: &Range<usize>) -> bool {
    table.iter().any(|(key, value)| {
        let spans = [key.span(), value.span()];
        spans
            .iter()
            .any(|span| span.start <= place.start && place.end <= span.end)
            || value.get_ref().as_table().is_some_and(|inner| is_in(inner, place))
    })
}
