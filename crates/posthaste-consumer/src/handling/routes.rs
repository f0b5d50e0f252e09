//! From an event's type to its handler, with the payload's type forgotten on the way.

use std::collections::HashMap;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use posthaste_core::envelope::ReceivedEvent;
use posthaste_core::event::DecodeEvent;

use super::error::HandlerError;
use super::handler::Handler;
use super::once::{EffectKey, Once};
use super::received::{Origin, Payload, Received};

/// A handler with its event, ready to be run in a transaction.
pub(crate) struct Prepared<C> {
    /// What the inbox remembers it by; nothing if it is idempotent by nature.
    pub(crate) effect: Option<EffectKey>,
    pub(crate) call: Call<C>,
}

/// The handler, with its event.
pub(crate) type Call<C> = Box<dyn for<'tx> FnOnce(&'tx mut C) -> BoxFuture<'tx, Result<(), HandlerError>> + Send>;

type Route<C> = Box<dyn Fn(ReceivedEvent, Origin, u32) -> Result<Prepared<C>, HandlerError> + Send + Sync>;

/// The handlers by event type.
pub(crate) struct Routes<C> {
    by_type: HashMap<String, Route<C>>,
    /// A type that was registered twice.
    pub(crate) repeated: Option<String>,
}

impl<C: Send + 'static> Routes<C> {
    pub(crate) fn new() -> Self {
        Self {
            by_type: HashMap::new(),
            repeated: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_type.is_empty()
    }

    pub(crate) fn types(&self) -> impl Iterator<Item = &str> {
        self.by_type.keys().map(String::as_str)
    }

    pub(crate) fn get(&self, event_type: &str) -> Option<&Route<C>> {
        self.by_type.get(event_type)
    }

    /// Registers a handler; without `once` it is idempotent by nature.
    pub(crate) fn add<T, H>(&mut self, event_type: &str, decode: Decode<T>, once: Option<Arc<Once<T>>>, handler: H)
    where
        T: Send + 'static,
        H: for<'tx> Handler<'tx, C, T> + Clone + Send + Sync + 'static,
    {
        let route: Route<C> = Box::new(move |event, origin, attempt| {
            let payload = decode(&event)?;
            let event = Received::new(event, payload, origin, attempt);
            let effect = once.as_ref().map(|once| once.key(&event)).transpose()?;
            let handler = handler.clone();
            Ok(Prepared {
                effect,
                call: Box::new(move |tx| async move { handler(tx, event).await }.boxed()),
            })
        });
        if self.by_type.insert(event_type.to_owned(), route).is_some() {
            self.repeated = Some(event_type.to_owned());
        }
    }
}

/// How an event's payload is read.
type Decode<T> = fn(&ReceivedEvent) -> Result<T, HandlerError>;

/// Reads the payload as the application asked for it.
pub(crate) fn decode_payload<T: Payload>(event: &ReceivedEvent) -> Result<T, HandlerError> {
    let decoded = T::decode(event.content_type.as_deref(), &event.payload);
    decoded.map_err(|error| undecodable(event, error.as_ref()))
}

/// Reads the payload as the type name says.
pub(crate) fn decode_event<E: DecodeEvent>(event: &ReceivedEvent) -> Result<E, HandlerError> {
    E::decode(&event.event_type, &event.payload).map_err(|error| {
        let name = std::any::type_name::<E>().rsplit("::").next().unwrap_or_default();
        undecodable(
            event,
            format!("no {name} of the type {}: {error}", event.event_type).as_str(),
        )
    })
}

fn undecodable(event: &ReceivedEvent, error: impl std::fmt::Display) -> HandlerError {
    let said = event.content_type.as_deref().unwrap_or("no content type");
    HandlerError::permanent(format!("the payload ({said}) cannot be decoded: {error}"))
}
