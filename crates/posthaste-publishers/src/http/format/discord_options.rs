//! What a notification in Discord's format says.

use serde::{Deserialize, Serialize};

use crate::options::InvalidOption;
use crate::template::Template;

/// What a notification says, for [`HttpFormat::Discord`](super::HttpFormat::Discord).
///
/// Texts are templates. `{topic}`, `{event_type}`, `{id}`, `{key}`, `{tenant}`, `{source}`, `{aggregate_type}`,
/// `{aggregate_id}`, `{created_at}`, `{attempt}` and `{payload}` stand for the message's own; `{payload.order.id}` for a
/// value inside a JSON payload and `{header.name}` for a header. What a message lacks is empty. `{{` and `}}` are braces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct DiscordOptions {
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
}

impl Default for DiscordOptions {
    fn default() -> Self {
        Self {
            style: Style::default(),
            username: None,
            title: "{event_type}".to_owned(),
            text: "```json\n{payload}\n```".to_owned(),
            fields: Vec::new(),
        }
    }
}

/// How a notification looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Style {
    /// A card with title, text, fields, the event's id and its time.
    #[default]
    Embed,
    /// Title and text as plain lines. For receivers that know no embeds.
    Text,
}

/// One value of a card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Field {
    /// Its name, a template.
    pub name: String,
    /// Its value, a template.
    pub value: String,
}

const MAX_USERNAME_CHARS: usize = 80;
const MAX_FIELDS: usize = 25;

/// What Discord refuses in a name.
const REFUSED_IN_USERNAMES: [&str; 3] = ["discord", "clyde", "```"];

impl DiscordOptions {
    /// How a notification looks.
    #[must_use]
    pub fn style(mut self, style: Style) -> Self {
        self.style = style;
        self
    }

    /// The name under which notifications appear.
    #[must_use]
    pub fn username(mut self, name: impl Into<String>) -> Self {
        self.username = Some(name.into());
        self
    }

    /// The headline, a template.
    #[must_use]
    pub fn title(mut self, template: impl Into<String>) -> Self {
        self.title = template.into();
        self
    }

    /// The text, a template.
    #[must_use]
    pub fn text(mut self, template: impl Into<String>) -> Self {
        self.text = template.into();
        self
    }

    /// One more value below the text; both are templates.
    #[must_use]
    pub fn field(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.fields.push(Field {
            name: name.into(),
            value: value.into(),
        });
        self
    }

    /// Checks the settings and reads the templates.
    pub(super) fn templates(&self) -> Result<Templates, InvalidOption> {
        let refuse = |field: &str, value: String, remedy: &str| {
            Err(InvalidOption::new(format!("discord.{field}"), value, remedy))
        };
        if let Some(name) = self.username.as_deref() {
            if name.trim().is_empty() || name.chars().count() > MAX_USERNAME_CHARS {
                return refuse("username", format!("{name:?}"), "must have 1 to 80 characters");
            }
            let lowered = name.to_lowercase();
            if REFUSED_IN_USERNAMES.iter().any(|word| lowered.contains(word)) {
                let remedy = "is refused by Discord; names must not contain `discord`, `clyde` or three backticks";
                return refuse("username", format!("{name:?}"), remedy);
            }
        }
        let count = || format!("{} fields", self.fields.len());
        if self.fields.len() > MAX_FIELDS {
            return refuse("fields", count(), "there may be 25 at most");
        }
        if self.style == Style::Text && !self.fields.is_empty() {
            let remedy = "are for style = \"embed\"; put the values into `text`";
            return refuse("fields", count(), remedy);
        }
        let read = |field: String, text: &str| {
            let parsed = Template::parse(text);
            parsed.map_err(|remedy| InvalidOption::new(format!("discord.{field}"), format!("{text:?}"), remedy))
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
}

/// The texts, read.
#[derive(Clone, Debug)]
pub(super) struct Templates {
    pub(super) title: Template,
    pub(super) text: Template,
    pub(super) fields: Vec<(Template, Template)>,
}
