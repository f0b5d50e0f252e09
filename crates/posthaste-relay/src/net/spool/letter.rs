//! A dead letter as a line of JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use posthaste_core::integrity::ContentHash;
use posthaste_core::message::Headers;
use posthaste_core::store::DeadLetter;
use posthaste_core::{Message, MessageId, Text};
use serde::{Deserialize, Serialize};

/// A line of the spool. Lines are added and never changed, so what becomes of a letter is another line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    /// A message that died.
    Letter(Box<Letter>),
    /// The outbox has taken the verdict after all, or the message was delivered: the letter is no longer needed.
    Settled(Mark),
    /// The letter was brought back to the database.
    Imported(Mark),
}

/// Which letter a line speaks of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mark {
    /// Whose outbox.
    pub namespace: String,
    /// The row's id, as a text.
    pub id: String,
}

/// A dead letter with all that its row holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// Whose outbox.
    pub namespace: String,
    /// The row's id, as a text.
    pub id: String,
    /// Whether the id is a text, though it looks like a number or a UUID.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub id_is_text: bool,
    /// What the event is published under, if not its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<Text>,
    /// Where it was to go.
    pub topic: Text,
    /// Its ordering key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordering_key: Option<Text>,
    /// Its tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<Text>,
    /// Its dedupe key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedupe_key: Option<Text>,
    /// Its type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_type: Option<Text>,
    /// The service that spoke.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Text>,
    /// The kind of thing that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate_type: Option<Text>,
    /// Which one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate_id: Option<Text>,
    /// The payload's media type.
    pub content_type: Text,
    /// What travels beside the payload.
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    pub headers: Headers,
    /// The payload, if it is text: the text, not a JSON value, so that every byte of it survives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// The payload, if it is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// The hash that its row holds, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_hash: Option<String>,
    /// How often it was claimed.
    pub attempts: u32,
    /// What it died of.
    pub error: String,
    /// When it was enqueued.
    pub created_at: DateTime<Utc>,
    /// When it died.
    pub died_at: DateTime<Utc>,
}

impl Letter {
    /// A letter of an outbox with this namespace.
    pub fn new(namespace: &str, letter: &DeadLetter) -> Self {
        let message = &letter.message;
        let text = std::str::from_utf8(&message.payload).ok();
        Self {
            namespace: namespace.to_owned(),
            id: message.id.to_string(),
            id_is_text: MessageId::guess(&message.id.to_string()) != message.id,
            event_id: message.event_id.clone(),
            topic: message.topic.clone(),
            ordering_key: message.ordering_key.clone(),
            tenant: message.tenant.clone(),
            dedupe_key: message.dedupe_key.clone(),
            event_type: message.event_type.clone(),
            source: message.source.clone(),
            aggregate_type: message.aggregate_type.clone(),
            aggregate_id: message.aggregate_id.clone(),
            content_type: message.content_type.clone(),
            headers: message.headers.clone(),
            payload: text.map(ToOwned::to_owned),
            payload_base64: text.is_none().then(|| STANDARD.encode(&message.payload)),
            content_hash: letter.hash.map(|hash| hash.to_string()),
            attempts: letter.attempts,
            error: letter.error.clone(),
            created_at: letter.created_at,
            died_at: letter.died_at,
        }
    }

    /// Which letter it is.
    pub fn mark(&self) -> Mark {
        Mark {
            namespace: self.namespace.clone(),
            id: self.id.clone(),
        }
    }

    /// The row's id.
    pub fn message_id(&self) -> MessageId {
        if self.id_is_text {
            MessageId::text(&self.id)
        } else {
            MessageId::guess(&self.id)
        }
    }

    /// What the store takes; nothing if the payload or the hash is none, as in a line that was changed by hand.
    pub fn dead_letter(self) -> Option<DeadLetter> {
        let id = self.message_id();
        let payload = match (self.payload, self.payload_base64) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(base64)) => STANDARD.decode(base64).ok()?,
            _ => return None,
        };
        let hash: Option<ContentHash> = match self.content_hash {
            Some(hash) => Some(hash.parse().ok()?),
            None => None,
        };
        Some(DeadLetter {
            message: Message {
                id,
                event_id: self.event_id,
                namespace: Some(self.namespace.into()),
                topic: self.topic,
                ordering_key: self.ordering_key,
                tenant: self.tenant,
                dedupe_key: self.dedupe_key,
                event_type: self.event_type,
                source: self.source,
                aggregate_type: self.aggregate_type,
                aggregate_id: self.aggregate_id,
                content_type: self.content_type,
                payload: payload.into(),
                headers: self.headers,
                not_before: None,
            },
            hash,
            attempts: self.attempts,
            error: self.error,
            created_at: self.created_at,
            died_at: self.died_at,
        })
    }
}
