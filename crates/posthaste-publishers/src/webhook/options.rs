//! The webhook publisher's settings.

use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

use super::template::Template;
use super::url::WebhookUrl;

/// Which webhook, and what a notification says.
///
/// Texts are templates. `{topic}`, `{event_type}`, `{id}`, `{key}`, `{tenant}`, `{source}`, `{aggregate_type}`,
/// `{aggregate_id}`, `{created_at}`, `{attempt}` and `{payload}` stand for the message's own; `{payload.order.id}` for a
/// value inside a JSON payload and `{header.name}` for a header. What a message lacks is empty. `{{` and `}}` are braces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookOptions {
    /// Where to post.
    pub url: WebhookUrl,
    /// How a notification looks. Defaults to `embed`.
    pub style: Style,
    /// The name under which notifications appear. Defaults to the one that the webhook has.
    pub username: Option<String>,
    /// The headline. Defaults to `{event_type}`, which is the topic where a message has no type.
    pub title: String,
    /// The text below it. Defaults to the payload as a block of code.
    pub text: String,
    /// Values shown beside each other below the text, 25 at most; those that turn out empty are left out. For `embed`.
    /// Defaults to none.
    pub fields: Vec<Field>,
    /// How many notifications are on their way at a time, never two of one key. Defaults to 4: receivers take a few a
    /// second.
    pub concurrency: usize,
    /// How long a notification may take, waiting for a rate limit included. Keep it below the relay's
    /// `publish_timeout`. Defaults to 20 s.
    pub answer_within: Duration,
}

/// How a notification looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// A card with title, text, fields, the event's id and its time.
    #[default]
    Embed,
    /// Title and text as plain lines. For receivers that know no embeds.
    Text,
}

/// One value of a card.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Field {
    /// Its name, a template.
    pub name: String,
    /// Its value, a template.
    pub value: String,
}

/// A setting that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field} = {value}: {remedy}")]
pub struct InvalidWebhookOptions {
    /// The field, with dots and, for fields of the card, the place in the list from 0.
    pub field: String,
    /// The value that was given.
    pub value: String,
    /// What to give instead.
    pub remedy: String,
}

const LONGEST_USERNAME: usize = 80;
const MOST_AT_ONCE: usize = 1_000;
const MOST_FIELDS: usize = 25;

impl WebhookOptions {
    /// The webhook at `url`, with the defaults.
    pub fn new(url: WebhookUrl) -> Self {
        Self {
            url,
            style: Style::default(),
            username: None,
            title: "{event_type}".to_owned(),
            text: "```json\n{payload}\n```".to_owned(),
            fields: Vec::new(),
            concurrency: 4,
            answer_within: Duration::from_secs(20),
        }
    }

    /// Checks the settings and reads the templates.
    pub(super) fn templates(&self) -> Result<Templates, InvalidWebhookOptions> {
        let refuse = |field: &str, value: String, remedy: &str| {
            Err(InvalidWebhookOptions {
                field: field.to_owned(),
                value,
                remedy: remedy.to_owned(),
            })
        };
        match self.username.as_deref() {
            Some(name) if name.trim().is_empty() || name.chars().count() > LONGEST_USERNAME => {
                return refuse("username", format!("{name:?}"), "must have 1 to 80 characters");
            }
            Some(name)
                if ["discord", "clyde", "```"]
                    .iter()
                    .any(|word| name.to_lowercase().contains(word)) =>
            {
                return refuse(
                    "username",
                    format!("{name:?}"),
                    "is refused by Discord; names must not contain `discord`, `clyde` or three backticks",
                );
            }
            _ => {}
        }
        if !(1..=MOST_AT_ONCE).contains(&self.concurrency) {
            return refuse("concurrency", self.concurrency.to_string(), "must be 1 to 1000");
        }
        if self.answer_within.is_zero() {
            return refuse("answer_within", "0s".to_owned(), "must be above 0");
        }
        if self.fields.len() > MOST_FIELDS {
            return refuse(
                "fields",
                format!("{} fields", self.fields.len()),
                "there may be 25 at most",
            );
        }
        if self.style == Style::Text && !self.fields.is_empty() {
            return refuse(
                "fields",
                format!("{} fields", self.fields.len()),
                "are for style = \"embed\"; put the values into `text`",
            );
        }
        let read = |field: String, text: &str| {
            Template::parse(text).map_err(|remedy| InvalidWebhookOptions {
                field,
                value: format!("{text:?}"),
                remedy,
            })
        };
        let mut fields = Vec::with_capacity(self.fields.len());
        for (place, field) in self.fields.iter().enumerate() {
            fields.push((
                read(format!("fields.{place}.name"), &field.name)?,
                read(format!("fields.{place}.value"), &field.value)?,
            ));
        }
        Ok(Templates {
            title: read("title".to_owned(), &self.title)?,
            text: read("text".to_owned(), &self.text)?,
            fields,
        })
    }

    /// Checks the settings.
    pub fn validate(&self) -> Result<(), InvalidWebhookOptions> {
        self.templates().map(drop)
    }
}

/// The texts, read.
#[derive(Clone, Debug)]
pub(super) struct Templates {
    pub(super) title: Template,
    pub(super) text: Template,
    pub(super) fields: Vec<(Template, Template)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_refused_by_field() {
        type Change = fn(&mut WebhookOptions);
        let field = |name: &str, value: &str| Field {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let cases: [(Change, &str); 6] = [
            (
                |to| to.username = Some(String::new()),
                "username = \"\": must have 1 to 80",
            ),
            (
                |to| to.username = Some("Clyde".to_owned()),
                "username = \"Clyde\": is refused",
            ),
            (|to| to.concurrency = 0, "concurrency = 0: must be 1 to 1000"),
            (
                |to| to.answer_within = Duration::ZERO,
                "answer_within = 0s: must be above 0",
            ),
            (
                |to| to.title = "{colour}".to_owned(),
                "title = \"{colour}\": `{colour}` is not known",
            ),
            (
                |to| to.text = "{payload".to_owned(),
                "text = \"{payload\": a `{` is not closed",
            ),
        ];
        let options = WebhookOptions::new("http://127.0.0.1/x".parse().unwrap());
        assert_eq!(options.validate(), Ok(()));
        for (change, expected) in cases {
            let mut wrong = options.clone();
            change(&mut wrong);
            let text = wrong.validate().unwrap_err().to_string();
            assert!(text.starts_with(expected), "{text}");
        }
        let with_fields = |style, fields| WebhookOptions {
            style,
            fields,
            ..options.clone()
        };
        for (style, fields, expected) in [
            (
                Style::Embed,
                vec![field("a", "}")],
                "fields.0.value = \"}\": a `}` stands alone",
            ),
            (
                Style::Embed,
                vec![field("a", "b"); 26],
                "fields = 26 fields: there may be 25",
            ),
            (
                Style::Text,
                vec![field("a", "b")],
                "fields = 1 fields: are for style = \"embed\"",
            ),
        ] {
            let text = with_fields(style, fields).validate().unwrap_err().to_string();
            assert!(text.starts_with(expected), "{text}");
        }
    }
}
