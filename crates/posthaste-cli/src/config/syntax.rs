//! What is wrong with a file that is no TOML, without the values in it: any of them may be a secret, and what follows a
//! missing quote may be anything.

/// The parser's message, which quotes a line, with no more of that line than its key.
pub(super) fn without_values(message: &str) -> String {
    let shown = message.lines().filter_map(|line| match quoted(line) {
        Some(text) => key(text).map(|key| format!("{}{key} = ***", &line[..line.len() - text.len()])),
        None => Some(line.to_owned()),
    });
    shown.collect::<Vec<_>>().join("\n")
}

/// The text of a line of the file, which the parser shows behind its number and a bar, or of the marks below it.
fn quoted(line: &str) -> Option<&str> {
    let (number, text) = line.split_once('|')?;
    let is_number = number.trim().chars().all(|one| one.is_ascii_digit());
    is_number.then(|| text.trim_start())
}

/// The bare key of `key = value`. Settings are written in small letters; what else stands before a `=` may be part of a text
/// that goes over several lines.
fn key(line: &str) -> Option<&str> {
    let (key, value) = line.split_once('=')?;
    let key = key.trim();
    let is_bare = |one: char| one.is_ascii_lowercase() || one.is_ascii_digit() || matches!(one, '_' | '-' | '.');
    let is_key =
        key.starts_with(|one: char| one.is_ascii_lowercase()) && key.len() <= MAX_KEY && key.chars().all(is_bare);
    (is_key && !value.trim_start_matches('=').trim().is_empty()).then_some(key)
}

const MAX_KEY: usize = 40;

#[cfg(test)]
mod tests {
    use figment::providers::{Format, Toml};
    use figment::{Figment, value::Dict};

    use super::without_values;

    fn said(text: &str) -> String {
        let error = Figment::from(Toml::string(text)).extract::<Dict>().unwrap_err();
        without_values(&error.kind.to_string())
    }

    #[test]
    fn the_place_the_key_and_the_reason_are_shown() {
        let said = said("[publisher]\nurl = 'hush\n");
        assert!(said.starts_with("TOML parse error at line 2, column 12\n"), "{said}");
        assert!(said.contains("\n2 | url = ***\n"), "{said}");
        assert!(said.contains("invalid literal string"), "{said}");
    }

    #[test]
    fn no_value_is_shown() {
        for lines in [
            "headers = { authorization = 'Bearer hush' x",
            "headers.authorization = 'Bearer hush",
            "x-api-key = hush",
            "connection={brokers=['a:1'],properties={'sasl.password'='hush'",
            "signing_secrets = [\n 'whsec_a',\n 'whsec_hush\n]",
            "pem = '''\na\nHush==\n''' x",
            "hush",
            "hush hush = 1",
            "'hush=1",
            "a = \"\"\"\nhush\n\"\"\" hush = 1",
            "a = 1\na = 'hush'",
            "a = 'b | hush",
        ] {
            let said = said(lines);
            assert!(!said.to_lowercase().contains("hush"), "{lines}\n{said}");
            assert!(said.contains("line "), "{said}");
        }
    }
}
