//! The domain's side: events that know nothing of topics, type names or bytes.

use serde::Serialize;
use serde::de::DeserializeOwned;
/// Why an event could not be turned into bytes. Here so that an implementation need not depend on `serde_json`.
pub use serde_json::Error as EncodeError;
use thiserror::Error;

use crate::message::Message;
use crate::type_name::TypeName;

/// An event of an application, ready to be put into an outbox.
///
/// # Examples
/// Derive it on the enum that lists your events; the events themselves stay plain types of your domain:
///
/// ```ignore
/// #[derive(Event)]
/// enum ShopEvent {
///     #[event(type = "acme.order.created.v1", aggregate = "Order", id = order_id)]
///     OrderCreated(OrderCreated),
/// }
/// ```
///
/// Without the derive macro it is a few lines more:
///
/// ```
/// use posthaste_core::event::EncodeError;
/// use posthaste_core::{Event, IntoMessage};
///
/// struct OrderCreated {
///     order_id: u32,
/// }
///
/// impl Event for OrderCreated {
///     fn type_name(&self) -> &'static str {
///         "acme.order.created.v1"
///     }
///
///     fn aggregate_type(&self) -> &'static str {
///         "Order"
///     }
///
///     fn aggregate_id(&self) -> String {
///         self.order_id.to_string()
///     }
///
///     fn payload(&self) -> Result<Vec<u8>, EncodeError> {
///         Ok(format!(r#"{{"orderId":{}}}"#, self.order_id).into_bytes())
///     }
/// }
///
/// let message = OrderCreated { order_id: 42 }.into_message()?;
/// assert_eq!(message.lane(), Some(("order-events", "42")));
/// # Ok::<(), EncodeError>(())
/// ```
///
/// A variant without a type name, a malformed name, or two variants with the same name do not compile.
pub trait Event {
    /// `{company}.{domain}.{action}.v{n}`.
    fn type_name(&self) -> &'static str;

    /// Kind of thing the event is about.
    fn aggregate_type(&self) -> &'static str;

    /// Which one of them; events with equal ids are delivered in order.
    fn aggregate_id(&self) -> String;

    /// The payload.
    ///
    /// # Errors
    /// If the event cannot be turned into bytes; it is not enqueued then.
    fn payload(&self) -> Result<Vec<u8>, serde_json::Error>;

    /// Media type of the payload.
    fn content_type(&self) -> &'static str {
        "application/json"
    }

    /// Where it goes. Defaults to `{domain}-events`.
    fn topic(&self) -> String {
        let name = self.type_name();
        TypeName::parse(name).map_or_else(|_| name.to_owned(), |name| name.default_topic())
    }
}

/// An event that can be read back, so that a consumer can register a handler by its type alone.
///
/// `#[derive(Event)]` implements it where the wrapped types implement `serde::Deserialize` and no event has a `payload`
/// of another form.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read back from an event's payload",
    note = "derive `Event` on it, and `serde::Deserialize` on it or, for an enum, on the types that it wraps",
    note = "events with `#[event(payload = ...)]` are written in another form; register a handler by the type name instead"
)]
pub trait DecodeEvent: Sized {
    /// The events, each with the topic to which it goes.
    const EVENTS: &'static [EventName];

    /// The event of this type name with this payload.
    ///
    /// # Errors
    /// If the payload does not have the form of the event.
    fn decode(type_name: &str, payload: &[u8]) -> Result<Self, DecodeError>;
}

/// Under which name an event travels, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventName {
    /// `{company}.{domain}.{action}.v{n}`.
    pub type_name: &'static str,
    /// Where it goes, unless the relay routes it elsewhere.
    pub topic: &'static str,
}

/// Why an event cannot be read back.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// It is none of the events of this type.
    #[error("there is no event with the type name {0}")]
    UnknownType(String),
    /// The payload has another form.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Anything that can be enqueued: a [`Message`], or an [`Event`].
pub trait IntoMessage {
    /// The message to enqueue.
    ///
    /// # Errors
    /// If the event cannot be turned into bytes.
    fn into_message(self) -> Result<Message, serde_json::Error>;
}

impl IntoMessage for Message {
    fn into_message(self) -> Result<Message, serde_json::Error> {
        Ok(self)
    }
}

impl<E: Event> IntoMessage for E {
    fn into_message(self) -> Result<Message, serde_json::Error> {
        let id = self.aggregate_id();
        Ok(Message::new(self.topic(), self.payload()?)
            .event_type(self.type_name())
            .content_type(self.content_type())
            .aggregate(self.aggregate_type(), id.as_str())
            .key(id))
    }
}

/// Turns a value into JSON bytes; used by the derive macro.
#[doc(hidden)]
pub fn json(value: &impl Serialize) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(value)
}

/// Reads a value from JSON bytes; used by the derive macro.
#[doc(hidden)]
pub fn from_json<T: DeserializeOwned>(payload: &[u8]) -> Result<T, DecodeError> {
    Ok(serde_json::from_slice(payload)?)
}

/// What a derived implementation needs of `serde`, which the application need not depend on under that name.
#[doc(hidden)]
pub use serde::Deserialize as __Deserialize;
