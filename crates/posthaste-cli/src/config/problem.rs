//! What is wrong with a setting, in words that let its author fix it.

use std::fmt::Write;

use figment::error::{Actual, Kind};
use figment::value::Value;
use figment::{Figment, Source};
use thiserror::Error;

use super::database_url::without_password;
use super::load::{ENV_PREFIX, ENV_SEPARATOR, FLAG, Flag, extract};
use super::secret::show;
use super::{line, lookup, overlay, syntax};

/// A setting that cannot be used: the dotted field, its value, the remedy and where it was given.
#[derive(Clone, Debug, Error)]
#[error("{0}")]
pub struct Problem(String);

impl Problem {
    pub(super) fn new(text: String) -> Self {
        Self(text)
    }

    /// A field whose value was read but cannot be used.
    pub(super) fn of_field(figment: &Figment, field: &str, reason: &str) -> Self {
        let value = lookup::find(figment, field).map_or_else(|| "(default)".to_owned(), |value| show(field, &value));
        Self::of_value(figment, field, &value, reason)
    }

    /// `value` is what may be shown. A reason may quote the value as it was given, and then shows it without its secret,
    /// too; the rest of the sentence stays as it is.
    pub(super) fn of_value(figment: &Figment, field: &str, value: &str, reason: &str) -> Self {
        let reason = match lookup::find(figment, field) {
            Some(Value::String(tag, given)) if !given.is_empty() => {
                let quoted = format!("{given:?}");
                let shown = show(field, &Value::String(tag, given.clone()));
                if shown == quoted {
                    reason.to_owned()
                } else {
                    reason.replace(&given, shown.trim_matches('"'))
                }
            }
            _ => reason.to_owned(),
        };
        Self(format!("{field} = {value}: {reason}{}", place(figment, field)))
    }
}

/// What figment found, said our way.
pub(super) fn of_extraction(error: &figment::Error, figment: &Figment) -> Problem {
    let field = error.path.join(".");
    match &error.kind {
        Kind::UnknownField(name, known) => {
            // Figment ends the path sometimes with the table and sometimes with the key.
            let table = field
                .strip_suffix(name.as_str())
                .unwrap_or(&field)
                .trim_end_matches('.');
            let dotted = |key: &str| match table {
                "" => key.to_owned(),
                table => format!("{table}.{key}"),
            };
            let unknown = dotted(name);
            let remedy = match closest(name, known) {
                Some(key) => format!("did you mean {}?", dotted(key)),
                None => format!("known are {}", known.join(", ")),
            };
            Problem::new(format!("{unknown}: unknown key; {remedy}{}", place(figment, &unknown)))
        }
        // A file that is no TOML.
        Kind::Message(message) if field.is_empty() => {
            let file = error.metadata.as_ref().and_then(|metadata| match &metadata.source {
                Some(Source::File(path)) => Some(format!("{}: ", path.display())),
                _ => None,
            });
            Problem::new(format!(
                "{}{}",
                file.unwrap_or_default(),
                without_password(&syntax::without_values(message.trim_end()))
            ))
        }
        Kind::MissingField(name) => {
            let remedy = if field.starts_with("routes.") && name == "to" {
                "say where such messages go, by the name of a publisher"
            } else {
                "add it"
            };
            Problem::new(format!(
                "{field}.{name}: is missing; {remedy}{}",
                place(figment, &field)
            ))
        }
        // Nothing has a value that could be shown.
        Kind::Message(message) if message.starts_with("is missing") => {
            Problem::new(format!("{field}: {message}{}", place(figment, &field)))
        }
        kind => {
            let (field, kind) = of_the_setting(figment, field, kind);
            let field = narrow(figment, field, &kind);
            let (field, reason) = misplaced(figment, &field, &kind).unwrap_or_else(|| (field, reason(&kind)));
            Problem::of_field(figment, &field, &reason)
        }
    }
}

/// Serde knows the legal values of a setting that has names for them only when it was given a text; and it takes a list for
/// a table, and then complains about an element of it. What it would say of a text is the better answer to both.
fn of_the_setting(figment: &Figment, field: String, kind: &Kind) -> (String, Kind) {
    let said_of_text = |field: &str| {
        let error = extract(&overlay::merge(figment.clone(), &Flag { field, value: r#""""# }).ok()?).err()?;
        (error.path.join(".") == field).then_some(error.kind)
    };
    if let Kind::InvalidType(_, expected) = kind
        && expected.starts_with("enum ")
    {
        let better = said_of_text(&field).unwrap_or_else(|| kind.clone());
        return (field, better);
    }
    match field.rsplit_once('.') {
        Some((list, element)) if element.parse::<usize>().is_ok() => match said_of_text(list) {
            Some(Kind::InvalidType(actual, expected)) if expected != "a sequence" => {
                (list.to_owned(), Kind::InvalidType(actual, expected))
            }
            _ => (list.to_owned(), kind.clone()),
        },
        _ => (field, kind.clone()),
    }
}

/// Serde loses the way inside an enum, and names the table only: looks there for the value that it complains about.
fn narrow(figment: &Figment, field: String, kind: &Kind) -> String {
    let (Kind::InvalidType(actual, _) | Kind::InvalidValue(actual, _)) = kind else {
        return field;
    };
    let Some(Value::Dict(_, table)) = lookup::find(figment, &field) else {
        return field;
    };
    let is_meant = |value: &Value| match value {
        Value::Array(_, list) => list.iter().any(|element| element.to_actual() == *actual),
        value => value.to_actual() == *actual,
    };
    match table.iter().find(|(_, value)| is_meant(value)) {
        Some((key, _)) => format!("{field}.{key}"),
        None => field,
    }
}

/// What to say of a table that stands where something else belongs, and of which field.
fn misplaced(figment: &Figment, field: &str, kind: &Kind) -> Option<(String, String)> {
    match kind {
        Kind::InvalidType(Actual::Map, expected) if expected == "a sequence" && is_list_of_tables(field) => {
            let reason = format!("is a list of tables; write [[{field}]] above each");
            Some((field.to_owned(), reason))
        }
        // A name with a dot, such as that of a topic: serde takes what follows the dot for the value.
        Kind::UnknownVariant(taken, _) => {
            let table = field.strip_suffix(taken)?.strip_suffix('.')?;
            lookup::find(figment, table)?.into_dict()?;
            let (outer, name) = table.rsplit_once('.')?;
            let reason = format!(
                "is a table, because of the dot; put a name that has dots in quotes, in the file or after --set: \
                 {outer}.\"{name}.{taken}\""
            );
            Some((table.to_owned(), reason))
        }
        _ => None,
    }
}

fn is_list_of_tables(field: &str) -> bool {
    ["publishers", "routes", "fields"].contains(&field.rsplit('.').next().unwrap_or_default())
}

fn reason(kind: &Kind) -> String {
    match kind {
        Kind::UnknownVariant(value, known) => {
            let mut reason = format!("unknown value; use {}", known.join(" or "));
            if let Some(meant) = closest(value, known) {
                write!(reason, "; did you mean {meant}?").expect("a String takes all that is written");
            }
            reason
        }
        Kind::InvalidType(actual, expected) | Kind::InvalidValue(actual, expected) => remedy(actual, expected),
        Kind::Message(message) if message == "invalid socket address syntax" => ADDRESS.to_owned(),
        // Ours, or a type's own words. A value in them is blotted out by its text, and the sentence stays.
        other => other.to_string(),
    }
}

fn remedy(actual: &Actual, expected: &str) -> String {
    match expected {
        "a duration" => r#"not a duration; write a number with its unit, such as "500ms", "30s" or "7d""#.to_owned(),
        "a boolean" => "write true or false".to_owned(),
        "a sequence" => r#"write a list, in brackets: ["…", "…"]"#.to_owned(),
        "socket address" => ADDRESS.to_owned(),
        "a string" | "string" if matches!(actual, Actual::Unsigned(_) | Actual::Signed(_) | Actual::Bool(_)) => {
            r#"write text, in quotes: "…" (in an environment variable too)"#.to_owned()
        }
        number if number.trim_start_matches(['u', 'i']).parse::<u8>().is_ok() || number == "usize" => {
            format!("write a whole number that fits {number}")
        }
        table if table.starts_with("struct ") => "this is a section; give the keys inside it".to_owned(),
        // An example.
        table if table.starts_with('{') => format!("write {table}"),
        other => format!("expected {other}"),
    }
}

const ADDRESS: &str = r#"write an address and a port, such as "127.0.0.1:9464""#;

/// Where the field was given, as a remark in brackets.
fn place(figment: &Figment, field: &str) -> String {
    let Some(metadata) = lookup::origin(figment, field) else {
        // What is missing in an element of a list is missing there.
        return match field.rsplit_once('.') {
            Some((element, _)) if element.ends_with(|end: char| end.is_ascii_digit()) => place(figment, element),
            _ => String::new(),
        };
    };
    if metadata.name == FLAG {
        return " (in a flag)".to_owned();
    }
    if let Some(Source::File(path)) = &metadata.source {
        let here = std::env::current_dir().unwrap_or_default();
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line = line::of(&text, field).map_or_else(String::new, |line| format!(", line {line}"));
        return format!(" (in {}{line})", path.strip_prefix(here).unwrap_or(path).display());
    }
    let variable = field.to_uppercase().replace('.', ENV_SEPARATOR);
    format!(" (in the environment variable {ENV_PREFIX}{variable})")
}

/// The known word that was probably meant.
pub(super) fn closest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let likeness = |candidate: &str| strsim::jaro_winkler(word, candidate);
    let best = known
        .iter()
        .copied()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(best) > 0.8).then_some(best)
}
