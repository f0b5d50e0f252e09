//! Finds a setting by its dotted name.

use figment::value::Value;
use figment::{Figment, Metadata};

/// The value of a field, also in a list, where numbers are places, and under a key that has dots itself.
pub(super) fn find(figment: &Figment, field: &str) -> Option<Value> {
    within(&figment.find_value("").ok()?, field).cloned()
}

/// Where it was given.
pub(super) fn origin<'a>(figment: &'a Figment, field: &str) -> Option<&'a Metadata> {
    figment.get_metadata(find(figment, field)?.tag())
}

fn within<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    if path.is_empty() {
        return Some(value);
    }
    let rest = |end: usize| path[end..].trim_start_matches('.');
    match value {
        Value::Array(_, list) => {
            let end = path.find('.').unwrap_or(path.len());
            within(list.get(path[..end].parse::<usize>().ok()?)?, rest(end))
        }
        Value::Dict(_, table) => {
            let ends = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
            let mut found = ends.filter_map(|end| within(table.get(&path[..end])?, rest(end)));
            found.next()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use figment::Figment;
    use figment::providers::{Format, Toml};

    use super::find;

    #[test]
    fn lists_and_keys_with_dots_are_entered() {
        let text = "a.b = 1\n'c.d'.e = 2\n[[l]]\n[[l]]\nf = 3\nm = [{ g = 4 }]\n";
        let figment = Figment::from(Toml::string(text));
        for (field, value) in [("a.b", 1), ("c.d.e", 2), ("l.1.f", 3), ("l.1.m.0.g", 4)] {
            assert_eq!(
                find(&figment, field).and_then(|found| found.to_i128()),
                Some(value),
                "{field}"
            );
        }
        for missing in ["a.c", "a.b.c", "c.d.f", "l.0.f", "l.2", "l.f", "l.1.m.1.g"] {
            assert!(find(&figment, missing).is_none(), "{missing}");
        }
    }
}
