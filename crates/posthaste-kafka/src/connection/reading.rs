//! Reads a connection's settings in the shapes in which files, environments and flags bring them.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

pub(super) fn split(brokers: &str) -> Vec<String> {
    let trimmed = brokers.split(',').map(str::trim);
    trimmed.filter(|broker| !broker.is_empty()).map(str::to_owned).collect()
}

/// A list, or text separated by commas, which is all that an environment variable can be.
pub fn brokers<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<String>, D::Error> {
    struct Brokers;
    impl<'de> Visitor<'de> for Brokers {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of brokers, such as [\"127.0.0.1:9092\"]")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(split(text))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut brokers = Vec::new();
            while let Some(broker) = list.next_element::<String>()? {
                brokers.push(broker.trim().to_owned());
            }
            Ok(brokers)
        }
    }
    input.deserialize_any(Brokers)
}

/// A table that may be nested, flattened to dotted names.
pub fn properties<'de, D: Deserializer<'de>>(input: D) -> Result<BTreeMap<String, String>, D::Error> {
    let mut flat = BTreeMap::new();
    // Names with dots in them first: environment variables and flags nest, and override what a file quotes.
    let (quoted, nested): (Vec<_>, Vec<_>) = BTreeMap::<String, Property>::deserialize(input)?
        .into_iter()
        .partition(|(name, _)| name.contains('.'));
    for (name, property) in quoted.into_iter().chain(nested) {
        property.flatten(name, &mut flat);
    }
    Ok(flat)
}

enum Property {
    Text(String),
    Table(BTreeMap<String, Property>),
}

impl Property {
    fn flatten(self, name: String, flat: &mut BTreeMap<String, String>) {
        match self {
            Self::Text(value) => {
                flat.insert(name, value);
            }
            Self::Table(table) => {
                for (part, property) in table {
                    property.flatten(format!("{name}.{part}"), flat);
                }
            }
        }
    }
}

impl<'de> Deserialize<'de> for Property {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct OneProperty;
        impl<'de> Visitor<'de> for OneProperty {
            type Value = Property;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text, a number, true or false")
            }

            fn visit_str<E>(self, text: &str) -> Result<Property, E> {
                Ok(Property::Text(text.to_owned()))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Property, E> {
                Ok(Property::Text(value.to_string()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Property, E> {
                Ok(Property::Text(value.to_string()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Property, E> {
                Ok(Property::Text(value.to_string()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Property, E> {
                Ok(Property::Text(value.to_string()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<Property, A::Error> {
                let mut properties = BTreeMap::new();
                while let Some((name, property)) = table.next_entry()? {
                    properties.insert(name, property);
                }
                Ok(Property::Table(properties))
            }
        }
        input.deserialize_any(OneProperty)
    }
}
