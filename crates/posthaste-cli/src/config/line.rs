//! Which line of a TOML file gives a setting.

use std::collections::BTreeMap;

/// The number of the line, from 1. Of what stands in an inline table, that of the table.
pub(super) fn of(text: &str, field: &str) -> Option<usize> {
    let lines = lines_by_field(text);
    let ends = field.match_indices('.').map(|(at, _)| at).chain([field.len()]);
    let mut outer: Vec<&str> = ends.map(|end| &field[..end]).collect();
    outer.reverse();
    outer.into_iter().find_map(|field| lines.get(field).copied())
}

/// The first line of each table and of each key.
fn lines_by_field(text: &str) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    let mut lists = BTreeMap::new();
    let mut section = String::new();
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if let Some(name) = line.strip_prefix('[') {
            let is_element = name.starts_with('[');
            section = within_lists(&plain(name.split(']').next().unwrap_or_default()), &lists);
            if is_element {
                lines.entry(section.clone()).or_insert(number);
                let length = lists.entry(section.clone()).or_insert(0);
                section = format!("{section}.{length}");
                *length += 1;
            }
            lines.entry(section.clone()).or_insert(number);
            continue;
        }
        let Some((key, _)) = line.split_once('=').filter(|_| !line.starts_with('#')) else {
            continue;
        };
        let key = plain(key);
        let dotted = if section.is_empty() {
            key
        } else {
            format!("{section}.{key}")
        };
        lines.entry(dotted).or_insert(number);
    }
    lines
}

/// The name of a table, which is in the last element of each list that it names.
fn within_lists(name: &str, lists: &BTreeMap<String, usize>) -> String {
    let mut parts = name.split('.');
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        if let Some(length) = lists.get(&whole) {
            whole = format!("{whole}.{}", length - 1);
        }
        whole = format!("{whole}.{part}");
    }
    whole
}

/// A dotted name without quotes and blanks.
fn plain(name: &str) -> String {
    name.chars()
        .filter(|one| !matches!(one, '"' | '\'' | '[') && !one.is_whitespace())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn a_setting_is_found_by_its_section_and_key() {
        let text = "\
            # batch_size = 1\n\
            log.level = 'info'\n\
            \n\
            [relay] # ours\n\
            batch_size = 5\n\
            retry.max_attempts = 3\n\
            [relay.breaker]\n\
            enabled = true\n\
            [kafka.topics.'a.b']\n\
            partitions = 0\n\
            [kafka]\n\
            \"brokers\" = [\n\
              'a:1',\n\
            ]\n";
        assert_eq!(of(text, "log.level"), Some(2));
        assert_eq!(of(text, "relay.batch_size"), Some(5));
        assert_eq!(of(text, "relay.retry.max_attempts"), Some(6));
        assert_eq!(of(text, "relay.breaker"), Some(7));
        assert_eq!(of(text, "relay.breaker.enabled"), Some(8));
        assert_eq!(of(text, "kafka.topics.a.b.partitions"), Some(10));
        assert_eq!(of(text, "kafka.brokers"), Some(12));
        assert_eq!(of(text, "batch_size"), None);
    }

    #[test]
    fn a_setting_is_found_in_its_element_of_a_list() {
        let text = "\
            [[publishers]]\n\
            kind = 'log'\n\
            [[publishers]]\n\
            kind = 'kafka'\n\
            connection = { brokers = ['a:1'] }\n\
            [publishers.discord]\n\
            title = 'x'\n\
            [[publishers.routes]]\n\
            to = 'a'\n\
            [[publishers.routes]]\n\
            to = 'b'\n";
        assert_eq!(of(text, "publishers"), Some(1));
        assert_eq!(of(text, "publishers.0.kind"), Some(2));
        assert_eq!(of(text, "publishers.1"), Some(3));
        assert_eq!(of(text, "publishers.1.kind"), Some(4));
        assert_eq!(of(text, "publishers.1.connection.brokers"), Some(5));
        assert_eq!(of(text, "publishers.1.discord.title"), Some(7));
        assert_eq!(of(text, "publishers.1.routes.1"), Some(10));
        assert_eq!(of(text, "publishers.1.routes.1.to"), Some(11));
    }
}
