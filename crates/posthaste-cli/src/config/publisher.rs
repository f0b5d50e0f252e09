//! Where messages go: one publisher, or several and which messages go to which.

use figment::Figment;
use figment::error::Kind;
use figment::value::{Dict, Value};
use posthaste_publishers::config::{NoSuchKind, Settings};
use posthaste_publishers::stdout::StdoutOptions;
use posthaste_publishers::{InvalidOption, PublisherConfig, PublisherContext};
use serde::de::DeserializeOwned;

use super::load::{ENV_PREFIX, ENV_SEPARATOR};
use super::lookup;
use super::problem::Problem;

/// A publisher and where its settings stand.
#[derive(Clone, Debug)]
pub struct NamedPublisher {
    /// What routes and logs call it.
    pub name: String,
    /// Its settings.
    pub config: PublisherConfig,
    /// Where they stand, such as `publishers.0`.
    pub(super) path: String,
}

/// The keys that a publisher of several has besides its own.
const KIND: &str = "kind";
const NAME: &str = "name";

/// Reads `publisher`, or each of `publishers`; none of both is no publisher.
pub(super) fn read(figment: &Figment) -> Result<Vec<NamedPublisher>, Box<figment::Error>> {
    let one = lookup::find(figment, "publisher");
    let many = lookup::find(figment, "publishers");
    match (one, many) {
        (None, None) => Ok(Vec::new()),
        (Some(value), None) => match table(value, "publisher")? {
            // Not set: what else there is to say about it is said where a publisher is needed.
            table if table.is_empty() => Ok(Vec::new()),
            table => Ok(vec![read_one(table, "publisher")?]),
        },
        (None, Some(Value::Array(_, values))) => {
            let read = |(place, value): (usize, Value)| {
                let path = format!("publishers.{place}");
                read_one(table(value, &path)?, &path)
            };
            values.into_iter().enumerate().map(read).collect()
        }
        (None, Some(_)) => Err(error(
            "publishers",
            "is a list of tables; write [[publishers]] above each",
        )),
        (Some(_), Some(_)) => Err(error(
            "publishers",
            "there is [publisher] as well; write it as one of [[publishers]]",
        )),
    }
}

fn read_one(mut table: Dict, path: &str) -> Result<NamedPublisher, Box<figment::Error>> {
    let name = table.remove(NAME);
    let Some(kind) = table.remove(KIND) else {
        return Err(without_kind(&table, path));
    };
    let kind = kind.as_str().map_or_else(|| format!("{kind:?}"), str::to_owned);
    let kind = kind.as_str();
    let config = match PublisherConfig::read(kind, &Table(&table)) {
        Ok(read) => read.map_err(|error| match &error.kind {
            Kind::MissingField(field) => missing(kind, field, path),
            Kind::UnknownField(..) => of_another_kind(&table, path, Some(kind)).unwrap_or_else(|| below(path, error)),
            _ => below(path, error),
        })?,
        Err(NoSuchKind::Unknown) if kind == "webhook" => {
            let reason = "is called http now; set publisher.format = \"discord\", and move style, username, title, text and \
                          fields to publisher.discord";
            return Err(error(&format!("{path}.{KIND}"), reason));
        }
        Err(NoSuchKind::Unknown) => {
            let unknown = Kind::UnknownVariant(kind.to_owned(), PublisherConfig::KINDS);
            return Err(Box::new(
                figment::Error::from(unknown).with_path(&format!("{path}.{KIND}")),
            ));
        }
        Err(_) => {
            let product = if kind == "kafka" { "Kafka" } else { kind };
            let reason = format!(
                "this program was built without {product}; build it with the feature `{kind}`, or use another one"
            );
            return Err(error(&format!("{path}.{KIND}"), &reason));
        }
    };
    let name = match &name {
        None => kind.to_owned(),
        Some(name) => match name.as_str() {
            Some(name) if !name.trim().is_empty() => name.to_owned(),
            _ => return Err(error(&format!("{path}.{NAME}"), "must be a text that is not empty")),
        },
    };
    Ok(NamedPublisher {
        name,
        config,
        path: path.to_owned(),
    })
}

/// What to say of settings that do not say which publisher they are for.
fn without_kind(table: &Dict, path: &str) -> Box<figment::Error> {
    let known: Vec<&'static str> = PublisherConfig::KINDS
        .iter()
        .flat_map(|kind| known_settings(kind))
        .collect();
    let unknown = table.keys().find(|key| !known.contains(&key.as_str()));
    match (unknown, of_another_kind(table, path, None)) {
        (Some(key), _) => {
            let mut all = vec![KIND];
            for name in known {
                if !all.contains(&name) {
                    all.push(name);
                }
            }
            let unknown = Kind::UnknownField(key.clone(), Box::leak(all.into_boxed_slice()));
            Box::new(figment::Error::from(unknown).with_path(path))
        }
        (None, Some(error)) => error,
        (None, None) => missing("", KIND, path),
    }
}

/// What to say of a setting that a publisher cannot be without.
fn missing(kind: &str, field: &str, path: &str) -> Box<figment::Error> {
    let reason = match field {
        "path" => format!("the {kind} publisher needs one, such as {path}.path = \"events.jsonl\""),
        "url" => {
            let variable = format!("{path}.url").to_uppercase().replace('.', ENV_SEPARATOR);
            format!(
                "the {kind} publisher needs the address that the receiver shows, best given by the environment: \
                 {ENV_PREFIX}{variable}=https://…"
            )
        }
        KIND => format!("say which publisher it is: {}", PublisherConfig::KINDS.join(", ")),
        _ => format!("the {kind} publisher needs it"),
    };
    error(&format!("{path}.{field}"), &format!("is missing; {reason}"))
}

/// What to say of a setting that was given although it is for another publisher.
fn of_another_kind(table: &Dict, path: &str, kind: Option<&str>) -> Option<Box<figment::Error>> {
    let own = kind.map(known_settings).unwrap_or_default();
    let misplaced = table.keys().find(|key| !own.contains(&key.as_str()))?;
    let others: Vec<&str> = PublisherConfig::KINDS
        .iter()
        .copied()
        .filter(|other| known_settings(other).contains(&misplaced.as_str()))
        .collect();
    let first = others.first()?;
    let (names, s) = (others.join(" and "), if others.len() == 1 { "" } else { "s" });
    let reason = format!("is for the {names} publisher{s}; set {path}.kind = {first:?}, or leave it out");
    Some(error(&format!("{path}.{misplaced}"), &reason))
}

/// What can be set for a kind, as its type says when it is given something else.
fn known_settings(kind: &str) -> Vec<&'static str> {
    let nonsense = Dict::from([("?".to_owned(), Value::from(0))]);
    match PublisherConfig::read(kind, &Table(&nonsense)) {
        Ok(Err(error)) => match error.kind {
            Kind::UnknownField(_, known) => known.to_vec(),
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

struct Table<'a>(&'a Dict);

impl Settings for Table<'_> {
    type Error = Box<figment::Error>;

    fn read<T: DeserializeOwned>(&self) -> Result<T, Box<figment::Error>> {
        Ok(Value::from(self.0.clone()).deserialize()?)
    }
}

fn table(value: Value, path: &str) -> Result<Dict, Box<figment::Error>> {
    let reason = match path {
        "publisher" => "must be one table; write [publisher], or [[publishers]] above each of several",
        _ => "must be a table",
    };
    value.into_dict().ok_or_else(|| error(path, reason))
}

/// The same error, of a setting below `path`.
fn below(path: &str, mut error: Box<figment::Error>) -> Box<figment::Error> {
    error.path.splice(0..0, path.split('.').map(str::to_owned));
    error
}

fn error(path: &str, reason: &str) -> Box<figment::Error> {
    Box::new(figment::Error::from(reason.to_owned()).with_path(path))
}

impl NamedPublisher {
    /// Standard output.
    pub(super) fn stdout() -> Self {
        Self {
            name: "stdout".to_owned(),
            config: PublisherConfig::Stdout(StdoutOptions::default()),
            path: "publisher".to_owned(),
        }
    }

    /// Says which of its settings cannot work.
    pub(super) fn check(&self, context: &PublisherContext, figment: &Figment) -> Result<(), Problem> {
        self.config.validate(context).map_err(|invalid| {
            let field = self.field_of(&invalid);
            match &*field {
                "kafka.brokers" if invalid.value == "[]" => Problem::new(no_brokers()),
                field if lookup::find(figment, field).is_some() && invalid.field == "answer_within" => {
                    Problem::of_field(figment, field, &invalid.remedy)
                }
                field => Problem::of_value(figment, field, &invalid.value, &invalid.remedy),
            }
        })
    }

    /// The whole name of a setting. Kafka publishers that name no cluster have that of the section `kafka`.
    pub fn field_of(&self, invalid: &InvalidOption) -> String {
        match (&self.config, invalid.field.strip_prefix("connection.")) {
            #[cfg(feature = "kafka")]
            (PublisherConfig::Kafka(options), Some(field)) if options.connection.brokers.is_empty() => {
                format!("kafka.{field}")
            }
            _ => format!("{}.{}", self.path, invalid.field),
        }
    }
}

fn no_brokers() -> String {
    "kafka.brokers: is missing; name at least one broker, such as kafka.brokers = [\"127.0.0.1:9092\"]".to_owned()
}
