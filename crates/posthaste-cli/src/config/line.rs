//! Which line of a TOML file gives a setting.

/// The number of the line, from 1. Nothing if it cannot be told by its look, such as in an inline table.
pub(super) fn of(text: &str, field: &str) -> Option<usize> {
    let mut section = String::new();
    let mut header = None;
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if let Some(name) = line.strip_prefix('[') {
            section = plain(name.split(']').next().unwrap_or_default());
            if section == field {
                header.get_or_insert(number);
            }
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
        if dotted == field {
            return Some(number);
        }
    }
    header
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
}
