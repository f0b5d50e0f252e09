//! Lays settings of the environment and of flags over those that are there. Figment would replace a list as a whole: here
//! `publishers.1.url` is a key of the second one.

use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::problem::Problem;

/// The lists that only a file can begin.
const LISTS: [&str; 2] = ["publishers", "routes"];

/// The settings so far, overridden by those of `provider`.
pub(super) fn merge(figment: Figment, provider: &impl Provider) -> Result<Figment, Problem> {
    // A file that could not be read is reported by whoever reads the settings.
    let (Ok(base), Ok(mut given)) = (figment.find_value(""), provider.data()) else {
        return Ok(figment);
    };
    let given = Value::from(given.remove(&Profile::Default).unwrap_or_default());
    let settings = over(Some(&base), given, "")?.into_dict().unwrap_or_default();
    let metadata = provider.metadata();
    Ok(figment.merge(Overlaid { metadata, settings }))
}

/// Settings with those below them. Each keeps the tag that says where it was given; figment tags those that have none.
struct Overlaid {
    metadata: Metadata,
    settings: Dict,
}

impl Provider for Overlaid {
    fn metadata(&self) -> Metadata {
        self.metadata.clone()
    }

    fn data(&self) -> figment::Result<Map<Profile, Dict>> {
        Ok(Profile::Default.collect(self.settings.clone()))
    }
}

fn over(base: Option<&Value>, given: Value, path: &str) -> Result<Value, Problem> {
    let below = |key: &str| {
        if path.is_empty() {
            key.to_owned()
        } else {
            format!("{path}.{key}")
        }
    };
    match (base, given) {
        (Some(Value::Dict(tag, base)), Value::Dict(_, given)) => {
            let mut merged = base.clone();
            for (key, value) in given {
                let value = over(base.get(&key), value, &below(&key))?;
                merged.insert(key, value);
            }
            Ok(Value::Dict(*tag, merged))
        }
        (Some(Value::Array(tag, base)), Value::Dict(_, given)) => {
            let mut merged = base.clone();
            for (place, value) in given {
                let element = place.parse::<usize>().ok().and_then(|place| merged.get_mut(place));
                let Some(element) = element else {
                    return Err(no_such_element(path, &place, base.len()));
                };
                *element = over(Some(element), value, &below(&place))?;
            }
            Ok(Value::Array(*tag, merged))
        }
        (None, Value::Dict(_, given)) if LISTS.contains(&path) => {
            let place = given.keys().next().map_or("", String::as_str);
            Err(no_such_element(path, place, 0))
        }
        (_, given) => Ok(given),
    }
}

fn no_such_element(path: &str, place: &str, length: usize) -> Problem {
    let there_are = match length {
        0 => format!("the file has none; write [[{path}]] there, with what is no secret"),
        1 => "there is one, 0".to_owned(),
        _ => format!("there are {length}, 0 to {}", length - 1),
    };
    Problem::new(format!(
        "{path}.{place}: no element of the list {path} has this number; {there_are}"
    ))
}
