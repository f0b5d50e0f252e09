//! A message as a notification in Discord's format.

use bytes::Bytes;
use chrono::SecondsFormat;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use posthaste_core::publisher::Delivery;
use serde_json::{Value, json};

use super::content::Content;
use super::discord_options::{DiscordOptions, Style, Templates};
use crate::options::InvalidOption;
use crate::template::{cut, units};

/// Discord's limits.
const CONTENT: usize = 2_000;
const TITLE: usize = 256;
const DESCRIPTION: usize = 4_096;
const FIELD_NAME: usize = 256;
const FIELD_VALUE: usize = 1_024;
const FOOTER: usize = 2_048;
/// All texts of an embed together.
const EMBED: usize = 6_000;

/// What a notification says.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    style: Style,
    username: Option<String>,
    templates: Templates,
}

impl Notice {
    pub(super) fn new(options: &DiscordOptions) -> Result<Self, InvalidOption> {
        Ok(Self {
            style: options.style,
            username: options.username.clone(),
            templates: options.templates()?,
        })
    }

    pub(super) fn content(&self, delivery: &Delivery) -> Content {
        let json = HeaderValue::from_static("application/json");
        Content {
            headers: HeaderMap::from_iter([(CONTENT_TYPE, json)]),
            body: Bytes::from(self.body(delivery).to_string()),
        }
    }

    /// The body of the request.
    fn body(&self, delivery: &Delivery) -> Value {
        let mut body = match self.style {
            Style::Embed => json!({ "embeds": [self.embed(delivery)] }),
            Style::Text => json!({ "content": self.text(delivery) }),
        };
        if let Some(username) = &self.username {
            body["username"] = json!(username);
        }
        // Nothing that an application puts into a payload may call people.
        body["allowed_mentions"] = json!({ "parse": [] });
        body
    }

    fn text(&self, delivery: &Delivery) -> String {
        let title = self.title(delivery);
        let room = CONTENT - units(&title) - 1;
        match self.templates.text.render(delivery, room) {
            text if is_blank(&text) => title,
            text => format!("{title}\n{text}"),
        }
    }

    fn embed(&self, delivery: &Delivery) -> Value {
        let (title, footer) = (
            self.title(delivery),
            cut(&delivery.message.effective_event_id(), FOOTER),
        );
        let mut room = EMBED - units(&title) - units(&footer);
        let mut fields = Vec::new();
        for (name, value) in &self.templates.fields {
            let name = name.render(delivery, FIELD_NAME.min(room));
            let value = value.render(delivery, FIELD_VALUE.min(room.saturating_sub(units(&name))));
            // Blank ones would have the whole notification refused.
            if !is_blank(&name) && !is_blank(&value) {
                room -= units(&name) + units(&value);
                fields.push(json!({ "name": name, "value": value, "inline": true }));
            }
        }
        let description = self.templates.text.render(delivery, DESCRIPTION.min(room));
        let mut embed = json!({
            "title": title,
            "footer": { "text": footer },
            "timestamp": delivery.created_at.to_rfc3339_opts(SecondsFormat::Millis, true),
        });
        if !is_blank(&description) {
            embed["description"] = json!(description);
        }
        if !fields.is_empty() {
            embed["fields"] = json!(fields);
        }
        embed
    }

    /// The headline, never blank: a notification without any text is refused.
    fn title(&self, delivery: &Delivery) -> String {
        match self.templates.title.render(delivery, TITLE) {
            title if is_blank(&title) => cut(&delivery.message.effective_event_id(), TITLE),
            title => title,
        }
    }
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use posthaste_core::Message;

    use super::super::discord_options::Field;
    use super::*;

    fn delivery(message: Message) -> Delivery {
        Delivery::new(message, DateTime::UNIX_EPOCH)
    }

    fn notice(change: impl FnOnce(&mut DiscordOptions)) -> Notice {
        let mut options = DiscordOptions::default();
        change(&mut options);
        Notice::new(&options).unwrap()
    }

    fn field(name: &str, value: &str) -> Field {
        Field {
            name: name.to_owned(),
            value: value.to_owned(),
        }
    }

    #[test]
    fn a_card_has_the_type_the_payload_the_id_and_the_time() {
        let message = Message::new("donations", r#"{"amount":5}"#).event_type("DONATION_COMPLETED");
        let id = message.id.to_string();
        let notice = notice(|options| {
            options.username = Some("Coffee".to_owned());
            options.fields = vec![field("Amount", "{payload.amount}"), field("Tenant", "{tenant}")];
        });
        assert_eq!(
            notice.body(&delivery(message)),
            json!({
                "embeds": [{
                    "title": "DONATION_COMPLETED",
                    "description": "```json\n{\"amount\":5}\n```",
                    "fields": [{"name": "Amount", "value": "5", "inline": true}],
                    "footer": {"text": id},
                    "timestamp": "1970-01-01T00:00:00.000Z",
                }],
                "username": "Coffee",
                "allowed_mentions": {"parse": []},
            })
        );
    }

    #[test]
    fn plain_text_has_title_and_text_in_lines_and_calls_nobody() {
        let notice = notice(|options| {
            options.style = Style::Text;
            options.text = "{payload}".to_owned();
        });
        assert_eq!(
            notice.body(&delivery(Message::new("t", "@everyone look"))),
            json!({"content": "t\n@everyone look", "allowed_mentions": {"parse": []}})
        );
        assert_eq!(notice.body(&delivery(Message::new("t", "")))["content"], "t");
    }

    #[test]
    fn a_message_without_words_is_shown_by_its_id() {
        let message = Message::new("t", " ");
        let id = message.id.to_string();
        let notice = notice(|options| {
            options.title = "{tenant}".to_owned();
            options.text = "{payload}".to_owned();
        });
        let body = notice.body(&delivery(message));
        assert_eq!(body["embeds"][0]["title"], id);
        assert_eq!(body["embeds"][0].get("description"), None);
    }

    #[test]
    fn every_text_keeps_to_the_limits_of_the_receiver() {
        let long = "é🎁".repeat(20_000);
        let message = || delivery(Message::new(long.clone(), long.clone()).key(&*long));
        let card = notice(|options| {
            options.title = "{topic}{topic}".to_owned();
            options.fields = vec![field("{key}", "{payload}"); 25];
        });
        let embed = &card.body(&message())["embeds"][0];
        let length = |value: &Value| units(value.as_str().unwrap_or_default());
        assert_eq!(length(&embed["title"]), TITLE);
        let mut whole = length(&embed["title"]) + length(&embed["description"]) + length(&embed["footer"]["text"]);
        for field in embed["fields"].as_array().unwrap() {
            assert!(length(&field["name"]) <= FIELD_NAME && length(&field["value"]) <= FIELD_VALUE);
            assert!(length(&field["name"]) > 0 && length(&field["value"]) > 0);
            whole += length(&field["name"]) + length(&field["value"]);
        }
        assert!(whole <= EMBED, "{whole}");

        let alone = notice(|_| {});
        let description = &alone.body(&message())["embeds"][0]["description"];
        assert!((DESCRIPTION - 2..=DESCRIPTION).contains(&length(description)));
        let plain = notice(|options| options.style = Style::Text);
        let content = &plain.body(&message())["content"];
        assert!((CONTENT - 3..=CONTENT).contains(&length(content)));
    }
}
