//! Environment variables that look like settings and are none.

use super::load::{ENV_PREFIX, ENV_SEPARATOR};

const SECTIONS: [&str; 7] = ["DATABASE", "RELAY", "PUBLISHER", "KAFKA", "OUTBOX", "METRICS", "LOG"];

/// Sections that are lists of tables.
const LISTS: [&str; 2] = ["PUBLISHERS", "ROUTES"];

/// How to write what a variable, without our prefix, seems to mean; nothing for one that is a setting or none of ours.
pub(super) fn meant(key: &str) -> Option<String> {
    // Where tests find Kafka's jars.
    if key == "KAFKA_LIBS" {
        return None;
    }
    let in_section = |section: &str, before_field: &str| -> Option<String> {
        let rest = key.trim_start_matches('_').strip_prefix(section)?;
        let field = match rest.strip_prefix('_') {
            Some(field) => field.trim_start_matches('_'),
            None if rest.is_empty() => "<FIELD>",
            None => return None,
        };
        Some([ENV_PREFIX, section, ENV_SEPARATOR, before_field, field].concat())
    };
    let begins_with_separator = key.starts_with('_');
    if key.contains(ENV_SEPARATOR) && !begins_with_separator {
        return None;
    }
    let of_list = LISTS.iter().find_map(|list| in_section(list, "<NUMBER>__"));
    let of_section = || SECTIONS.iter().find_map(|section| in_section(section, ""));
    let any = || begins_with_separator.then(|| [ENV_PREFIX, "<SECTION>", ENV_SEPARATOR, "<FIELD>"].concat());
    of_list.or_else(of_section).or_else(any)
}

#[cfg(test)]
mod tests {
    use super::meant;

    #[test]
    fn what_is_no_setting_but_looks_like_one_is_told_how_it_is_written() {
        for (key, expected) in [
            ("RELAY_LEASE", "POSTHASTE_RELAY__LEASE"),
            ("LOG", "POSTHASTE_LOG__<FIELD>"),
            ("_LOG__LEVEL", "POSTHASTE_LOG__LEVEL"),
            ("PUBLISHERS", "POSTHASTE_PUBLISHERS__<NUMBER>__<FIELD>"),
            ("_PUBLISHERS", "POSTHASTE_PUBLISHERS__<NUMBER>__<FIELD>"),
            ("PUBLISHERS_URL", "POSTHASTE_PUBLISHERS__<NUMBER>__URL"),
            ("ROUTES_X", "POSTHASTE_ROUTES__<NUMBER>__X"),
            ("_X", "POSTHASTE_<SECTION>__<FIELD>"),
        ] {
            assert_eq!(meant(key).as_deref(), Some(expected), "{key}");
        }
        for key in [
            "RELAY__LEASE",
            "PUBLISHERS__0__URL",
            "CONFIG",
            "SEED",
            "KAFKA_LIBS",
            "REDIS_SERVER",
            "LOGGING",
        ] {
            assert_eq!(meant(key), None, "{key}");
        }
    }
}
