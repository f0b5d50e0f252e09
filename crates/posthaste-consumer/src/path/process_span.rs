//! The span of each attempt to handle an event, in the trace of the span that enqueued it.

use posthaste_core::Handled;
use posthaste_core::envelope::ReceivedEvent;

use super::attempt::Failure;
use crate::source::Record;

/// Without the feature `otel` there are no spans.
#[cfg(not(feature = "otel"))]
pub(crate) async fn around(
    work: impl Future<Output = Result<Handled, Failure>>,
    _: &str,
    _: &impl Record,
    _: &ReceivedEvent,
    _: u32,
) -> Result<Handled, Failure> {
    work.await
}

/// Makes the span current while the attempt is made, so that what its handler does belongs to it: its own spans, and events
/// that it enqueues.
#[cfg(feature = "otel")]
pub(crate) async fn around(
    work: impl Future<Output = Result<Handled, Failure>>,
    group: &str,
    record: &impl Record,
    event: &ReceivedEvent,
    attempt: u32,
) -> Result<Handled, Failure> {
    use opentelemetry::context::FutureExt;

    let context = otel::begin(group, record, event, attempt);
    let done = work.with_context(context.clone()).await;
    otel::end(&context, &done);
    done
}

#[cfg(feature = "otel")]
mod otel {
    use opentelemetry::trace::{Link, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer};
    use opentelemetry::{Context, InstrumentationScope, KeyValue, global};
    use posthaste_core::Handled;
    use posthaste_core::envelope::ReceivedEvent;
    use posthaste_core::trace::remote_context;

    use crate::path::attempt::Failure;
    use crate::source::Record;

    /// The conventions want a link; that the event's span is the parent too keeps all that follows from it in one trace.
    pub(super) fn begin(group: &str, record: &impl Record, event: &ReceivedEvent, attempt: u32) -> Context {
        let scope = InstrumentationScope::builder("posthaste")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build();
        let parent = remote_context(&event.headers);
        let origin = parent.span().span_context().clone();
        let links = origin.is_valid().then(|| Link::with_context(origin));
        let span = SpanBuilder::from_name(format!("process {}", record.topic()))
            .with_kind(SpanKind::Consumer)
            .with_links(links.into_iter().collect());
        let span = global::tracer_with_scope(scope).build_with_context(span, &parent);
        let context = parent.with_span(span);
        let span = context.span();
        if span.is_recording() {
            span.set_attributes([
                KeyValue::new("messaging.system", record.system()),
                KeyValue::new("messaging.operation.type", "process"),
                KeyValue::new("messaging.operation.name", "process"),
                KeyValue::new("messaging.destination.name", record.topic().to_owned()),
                KeyValue::new("messaging.destination.partition.id", record.partition().to_string()),
                KeyValue::new("messaging.consumer.group.name", group.to_owned()),
                KeyValue::new("messaging.message.id", event.id.clone()),
                KeyValue::new(
                    "messaging.message.body.size",
                    i64::try_from(event.payload.len()).unwrap_or(i64::MAX),
                ),
                KeyValue::new("posthaste.consumer.attempt", i64::from(attempt)),
                KeyValue::new("posthaste.event.type", event.event_type.clone()),
            ]);
            if record.system() == "kafka" {
                span.set_attribute(KeyValue::new("messaging.kafka.offset", record.offset()));
            }
        }
        context
    }

    pub(super) fn end(context: &Context, done: &Result<Handled, Failure>) {
        let span = context.span();
        let outcome = match done {
            Ok(Handled::Applied(())) => "handled",
            Ok(Handled::Duplicate) => "duplicate",
            Err(_) => "failed",
        };
        span.set_attribute(KeyValue::new("posthaste.consumer.outcome", outcome));
        if let Err(failure) = done {
            let (kind, text) = match failure {
                Failure::Database(error) => ("database", error.to_string()),
                Failure::Event(error) => ("handler", error.to_string()),
                Failure::Commit(error) => ("commit", error.to_string()),
                Failure::Overdue(error) => ("timeout", error.to_string()),
            };
            span.set_attribute(KeyValue::new("error.type", kind));
            span.set_status(Status::error(text));
        }
        span.end();
    }
}
