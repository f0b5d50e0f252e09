//! Which metrics a rule looks at.

use std::str::FromStr;

/// Matchers of PromQL, such as `job="posthaste",env=~"live|test"`, without braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Selector(String);

impl Selector {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let bare = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
        let matchers = bare.unwrap_or(text).trim().trim_end_matches(',');
        if are_matchers(matchers) {
            Ok(Self(matchers.to_owned()))
        } else {
            Err(r#"write matchers of PromQL, such as job="posthaste" or env=~"live|test",team="shop""#.to_owned())
        }
    }
}

/// Reads one matcher after the other: a name, an operator, a value in double quotes.
fn are_matchers(mut rest: &str) -> bool {
    loop {
        let Some((name, after)) = rest.split_once(['=', '!']) else {
            return false;
        };
        let negated = rest[name.len()..].starts_with('!');
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name = name.trim();
        if name.is_empty() || !name.chars().all(is_name) || name.starts_with(|c: char| c.is_ascii_digit()) {
            return false;
        }
        let value = match (negated, after.as_bytes().first()) {
            (_, Some(b'~')) | (true, Some(b'=')) => &after[1..],
            (true, _) => return false,
            (false, _) => after,
        };
        let Some(after) = after_quoted(value.trim_start()) else {
            return false;
        };
        match after.trim_start().strip_prefix(',') {
            Some(more) => rest = more,
            None => return after.trim().is_empty(),
        }
    }
}

fn after_quoted(text: &str) -> Option<&str> {
    let inside = text.strip_prefix('"')?;
    let mut escaped = false;
    for (at, c) in inside.char_indices() {
        match c {
            '\n' | '\r' => return None,
            '"' if !escaped => return Some(&inside[at + 1..]),
            _ => escaped = c == '\\' && !escaped,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matchers_are_taken_with_and_without_braces() {
        for text in [
            r#"job="posthaste""#,
            r#"env=~"live|test", team!="shop",x!~"a\"b""#,
            r#"path="a=b,c}""#,
        ] {
            assert_eq!(text.parse::<Selector>().unwrap().as_str(), text);
            assert_eq!(format!("{{{text}}}").parse::<Selector>().unwrap().as_str(), text);
        }
    }

    #[test]
    fn what_would_break_an_expression_is_refused() {
        for text in [
            "",
            "{}",
            "job",
            "job=posthaste",
            r#"job="a"#,
            "job=\"a\nb\"",
            r#"job="a"} or vector(1"#,
            r#"1a="b""#,
            r#"a!"b""#,
            r#"a="b" c="d""#,
            r#"="b""#,
        ] {
            assert!(text.parse::<Selector>().is_err(), "{text}");
        }
    }
}
