//! Spans by the semantic conventions for messaging.

use std::sync::Arc;
use std::time::SystemTime;

use opentelemetry::global::{self, BoxedTracer};
use opentelemetry::trace::{Link, Span, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context, InstrumentationScope, KeyValue};
use posthaste_core::lifecycle::Verdict;
use posthaste_core::publisher::{ErrorKind, Outcome};

use crate::reported::Reported;

/// Makes the spans.
pub(crate) struct SendSpans {
    tracer: BoxedTracer,
    publisher: Arc<str>,
    namespace: Arc<str>,
}

impl SendSpans {
    /// By the tracer provider that the process has now.
    pub(crate) fn new(publisher: &str, namespace: &str) -> Self {
        let scope = InstrumentationScope::builder("posthaste")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build();
        Self {
            tracer: global::tracer_with_scope(scope),
            publisher: publisher.into(),
            namespace: namespace.into(),
        }
    }

    /// Makes the span of an attempt that is over; of a message that was not tried there is none.
    pub(crate) fn attempted(&self, reported: &Reported) {
        let message = &reported.message;
        let Some(origin) = &message.trace.origin else { return };
        if reported.outcome == Outcome::NotAttempted {
            return;
        }
        let begun = message.trace.begun.unwrap_or_else(SystemTime::now);
        let parent = Context::new().with_remote_span_context(origin.span.clone());
        let span = SpanBuilder::from_name(format!("send {}", message.topic))
            .with_kind(SpanKind::Producer)
            .with_start_time(begun)
            .with_links(vec![Link::with_context(origin.span.clone())]);
        let mut span = self.tracer.build_with_context(span, &parent);
        if !span.is_recording() {
            return;
        }
        let system = message.destination.as_ref().unwrap_or(&self.publisher);
        let waited = begun.duration_since(message.created_at.into()).unwrap_or_default();
        span.set_attributes([
            KeyValue::new("messaging.system", Arc::clone(system)),
            KeyValue::new("messaging.operation.type", "send"),
            KeyValue::new("messaging.operation.name", "send"),
            KeyValue::new("messaging.destination.name", message.topic.to_string()),
            KeyValue::new("messaging.message.id", origin.event_id.clone()),
            KeyValue::new(
                "messaging.message.body.size",
                i64::try_from(message.bytes).unwrap_or(i64::MAX),
            ),
            KeyValue::new("posthaste.outbox.namespace", Arc::clone(&self.namespace)),
            KeyValue::new("posthaste.outbox.attempt", i64::from(message.attempts)),
            KeyValue::new("posthaste.outbox.delay", waited.as_secs_f64()),
            KeyValue::new("posthaste.outbox.outcome", outcome(&reported.verdict)),
        ]);
        if let Some((kind, text)) = failure(&reported.outcome) {
            span.set_attribute(KeyValue::new("error.type", kind));
            span.set_status(Status::error(text.to_owned()));
        }
        span.end();
    }
}

/// What becomes of the message now.
fn outcome(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Delivered => "delivered",
        Verdict::Retry { .. } => "retry",
        Verdict::Dead { .. } => "dead",
        Verdict::Postponed { .. } => "postponed",
        Verdict::Released => "released",
    }
}

/// What sort of failure it was, and its text.
fn failure(outcome: &Outcome) -> Option<(&'static str, &str)> {
    match outcome {
        Outcome::Failed(error) => {
            let kind = match error.kind {
                ErrorKind::Transport => "transport",
                ErrorKind::Transient => "transient",
                ErrorKind::Permanent => "permanent",
                ErrorKind::Throttled { .. } => "throttled",
                _ => "_OTHER",
            };
            Some((kind, &error.message))
        }
        Outcome::Corrupt { error } => Some(("corrupt", error)),
        Outcome::Delivered(_) | Outcome::NotAttempted => None,
    }
}
