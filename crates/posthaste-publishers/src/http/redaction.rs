//! What receivers say, without what nobody is to read.

use super::options::HttpOptions;
use super::secret::Secret;

/// What receivers may repeat of a request and nobody is to read: error pages like to show what was asked for.
#[derive(Clone, Debug)]
pub(super) struct Redaction(Vec<Secret>);

/// What is shorter is no secret, and may be part of any word.
const MIN_SECRET_LEN: usize = 6;

impl Redaction {
    pub(super) fn new(options: &HttpOptions) -> Self {
        let token = options.bearer_token.iter().map(Secret::reveal);
        // Of a header such as `Basic …` the word as well as the value may be repeated.
        let headers = options
            .headers
            .values()
            .flat_map(|value| value.reveal().split_whitespace());
        let all = options.url.secrets().chain(token).chain(headers);
        let mut secrets: Vec<&str> = all.filter(|secret| secret.len() >= MIN_SECRET_LEN).collect();
        // What is part of another comes after it.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self(secrets.into_iter().map(Secret::from).collect())
    }

    /// The text without them.
    pub(super) fn apply(&self, text: &str) -> String {
        self.0
            .iter()
            .fold(text.to_owned(), |text, secret| text.replace(secret.reveal(), "***"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_repeat_the_request_are_blotted() {
        let options = HttpOptions::new(
            "https://h/api/webhooks/123456789/hu-sh_h?thread_id=98765432"
                .parse()
                .unwrap(),
        )
        .bearer_token("tell-nobody")
        .header("X-Api-Key", "Key abcdefgh");
        let page = "/api/webhooks/123456789/hu-sh_h?thread_id=98765432 was not found by tell-nobody, abcdefgh";
        assert_eq!(
            Redaction::new(&options).apply(page),
            "/api/***/***/***?***=*** was not found by ***, ***"
        );
    }
}
