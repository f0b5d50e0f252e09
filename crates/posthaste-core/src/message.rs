//! What an application asks to have delivered.

mod id;
mod id_text;

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use serde::Serialize;
/// A text that is cloned without an allocation: short ones are kept in place, long ones are shared.
pub use smol_str::SmolStr as Text;

pub use id::{BadId, MessageId};
pub use id_text::{INLINE_ID_BYTES, IdText};

/// Names and values that travel beside the payload, such as `traceparent`.
pub type Headers = BTreeMap<String, String>;

/// The namespace of an outbox that was not given one.
pub const DEFAULT_NAMESPACE: &str = "default";

/// One event on its way from a transaction to a broker.
///
/// # Examples
/// ```
/// use posthaste_core::Message;
///
/// let message = Message::json("order-events", &serde_json::json!({"orderId": 42}))
///     .expect("a JSON value always serialises")
///     .key("42")
///     .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
/// assert_eq!(message.ordering_key.as_deref(), Some("42"));
/// ```
///
/// Bytes of any kind, at most once within the dedupe window, and not at once:
///
/// ```
/// use posthaste_core::Message;
///
/// let message = Message::new("invoices", vec![0x25, 0x50, 0x44, 0x46])
///     .content_type("application/pdf")
///     .dedupe_key("invoice/2026-0042")
///     .not_before("2026-12-01T00:00:00Z".parse().expect("a time"));
/// assert_eq!(message.effective_event_id(), message.id.to_string());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Identity of the row, and of the event unless `event_id` says otherwise.
    pub id: MessageId,
    /// Identity of the event where its table keeps one apart from the row's.
    pub event_id: Option<Text>,
    /// Whose outbox this is within a shared table; a relay serves exactly one namespace. Without one the outbox's own
    /// is used.
    pub namespace: Option<Text>,
    /// Where the message goes: a Kafka topic, a NATS subject, a routing key.
    pub topic: Text,
    /// Messages of one topic with equal keys are delivered in the order in which they were enqueued.
    /// Without a key a message waits for no other.
    pub ordering_key: Option<Text>,
    /// For routing and filtering by tenant. If a `dedupe_key` is given too, it must begin with `{tenant}/`.
    pub tenant: Option<Text>,
    /// A second enqueue with the same namespace, topic and key is answered with the first message's id.
    pub dedupe_key: Option<Text>,
    /// `{company}.{domain}.{action}.v{n}`. Without one the envelope's type is the topic.
    pub event_type: Option<Text>,
    /// The service that speaks. Without one the outbox's own `source` is used, else the namespace.
    pub source: Option<Text>,
    /// Kind of thing the event is about, such as `Order`.
    pub aggregate_type: Option<Text>,
    /// Which one of them.
    pub aggregate_id: Option<Text>,
    /// Media type of the payload. Defaults to `application/json`.
    pub content_type: Text,
    /// The body, stored and delivered byte for byte.
    pub payload: Bytes,
    /// Carried to the broker beside the payload.
    pub headers: Headers,
    /// Not delivered before this time. Later messages of the same key wait for it.
    pub not_before: Option<DateTime<Utc>>,
}

impl Message {
    /// A message with opaque bytes; set `content_type` to what they are.
    pub fn new(topic: impl Into<Text>, payload: impl Into<Bytes>) -> Self {
        Self {
            id: MessageId::new(),
            event_id: None,
            namespace: None,
            topic: topic.into(),
            ordering_key: None,
            tenant: None,
            dedupe_key: None,
            event_type: None,
            source: None,
            aggregate_type: None,
            aggregate_id: None,
            content_type: Text::new_static("application/json"),
            payload: payload.into(),
            headers: Headers::new(),
            not_before: None,
        }
    }

    /// A message whose payload is `body` as JSON.
    ///
    /// # Errors
    /// If the body cannot be JSON: a map whose keys are no texts, or a `Serialize` that fails.
    pub fn json(topic: impl Into<Text>, body: &impl Serialize) -> Result<Self, serde_json::Error> {
        Ok(Self::new(topic, serde_json::to_vec(body)?))
    }

    /// Sets the namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<Text>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Sets the ordering key.
    #[must_use]
    pub fn key(mut self, key: impl Into<Text>) -> Self {
        self.ordering_key = Some(key.into());
        self
    }

    /// Sets the tenant.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<Text>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// Sets the dedupe key.
    #[must_use]
    pub fn dedupe_key(mut self, key: impl Into<Text>) -> Self {
        self.dedupe_key = Some(key.into());
        self
    }

    /// Sets the event type.
    #[must_use]
    pub fn event_type(mut self, name: impl Into<Text>) -> Self {
        self.event_type = Some(name.into());
        self
    }

    /// Sets the source.
    #[must_use]
    pub fn source(mut self, source: impl Into<Text>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Sets what the event is about. The ordering key stays as it is.
    #[must_use]
    pub fn aggregate(mut self, kind: impl Into<Text>, id: impl Into<Text>) -> Self {
        self.aggregate_type = Some(kind.into());
        self.aggregate_id = Some(id.into());
        self
    }

    /// Sets the media type of the payload.
    #[must_use]
    pub fn content_type(mut self, media_type: impl Into<Text>) -> Self {
        self.content_type = media_type.into();
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Holds the message back until `time`.
    #[must_use]
    pub fn not_before(mut self, time: DateTime<Utc>) -> Self {
        self.not_before = Some(time);
        self
    }

    /// What the event is published under, the same at every delivery; consumers deduplicate on it.
    pub fn effective_event_id(&self) -> Cow<'_, str> {
        match &self.event_id {
            Some(id) => Cow::Borrowed(id),
            None => Cow::Owned(self.id.to_string()),
        }
    }

    /// The lane in which order holds, if the message has one.
    pub fn lane(&self) -> Option<(&str, &str)> {
        self.ordering_key.as_deref().map(|key| (self.topic.as_str(), key))
    }
}
