//! From an event's type to its handler, with the payload's type forgotten on the way.

use std::collections::HashMap;

use futures::FutureExt;
use futures::future::BoxFuture;
use posthaste_kafka::event::ReceivedEvent;

use crate::delivery::Delivery;
use crate::handler::{Handler, HandlerError};
use crate::once::{EffectKey, Once};
use crate::received::{Payload, Received};

/// A handler with its event, ready to be run in a transaction.
pub(crate) struct Prepared<C> {
    /// What the inbox remembers it by; nothing if it is idempotent by nature.
    pub(crate) effect: Option<EffectKey>,
    pub(crate) call: Call<C>,
}

type Call<C> = Box<dyn for<'tx> FnOnce(&'tx mut C) -> BoxFuture<'tx, Result<(), HandlerError>> + Send>;

type Route<C> = Box<dyn Fn(ReceivedEvent, &Delivery, u32) -> Result<Prepared<C>, HandlerError> + Send + Sync>;

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
    pub(crate) fn add<T, H>(&mut self, event_type: String, once: Option<Once<T>>, handler: H)
    where
        T: Payload,
        H: for<'tx> Handler<'tx, C, T> + Clone + Send + Sync + 'static,
    {
        let route: Route<C> = Box::new(move |event, delivery, attempt| {
            let event = Received::decode(event, delivery, attempt)?;
            let effect = once.as_ref().map(|once| once.key(&event)).transpose()?;
            let handler = handler.clone();
            Ok(Prepared {
                effect,
                call: Box::new(move |tx| async move { handler(tx, event).await }.boxed()),
            })
        });
        if self.by_type.insert(event_type.clone(), route).is_some() {
            self.repeated = Some(event_type);
        }
    }
}
