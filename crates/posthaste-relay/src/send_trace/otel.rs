//! Where a message comes from, and when its attempt began.

use std::sync::Arc;
use std::time::SystemTime;

use opentelemetry::trace::SpanContext;
use posthaste_core::Message;
use posthaste_core::trace::span_context;

/// What is remembered of a message's trace while the publisher has it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SendTrace {
    pub(crate) origin: Option<Arc<Origin>>,
    pub(crate) begun: Option<SystemTime>,
}

#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) span: SpanContext,
    /// What consumers know the message by.
    pub(crate) event_id: String,
}

impl SendTrace {
    pub(crate) fn of(message: &Message) -> Self {
        let origin = span_context(&message.headers).map(|span| {
            Arc::new(Origin {
                span,
                event_id: message.effective_event_id().into_owned(),
            })
        });
        Self { origin, begun: None }
    }

    /// The publisher has the message, perhaps behind others.
    pub(crate) fn attempt_begins(&mut self) {
        if self.origin.is_some() {
            self.begun = Some(SystemTime::now());
        }
    }

    /// Whether it belongs to a trace.
    pub(crate) fn is_traced(&self) -> bool {
        self.origin.is_some()
    }

    /// Its turn came at this time.
    pub(crate) fn sent_at(&mut self, time: SystemTime) {
        self.begun = Some(time);
    }
}
