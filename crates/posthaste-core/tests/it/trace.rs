//! What a message takes along of the span that it is enqueued in.

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, TraceContextExt, Tracer, TracerProvider};
use opentelemetry_sdk::trace::SdkTracerProvider;
use posthaste_core::enqueue::{OutboxOptions, Prepared};
use posthaste_core::message::{Headers, Message};
use posthaste_core::trace::{span_context, trace_id};
use tracing_subscriber::layer::SubscriberExt;

fn enqueued(message: Message) -> Headers {
    let prepared = Prepared::new([message], &OutboxOptions::default()).unwrap();
    prepared.rows[0].message.headers.clone()
}

fn assert_from(headers: &Headers, span: &SpanContext) {
    let found = span_context(headers).expect("it belongs to a trace");
    assert_eq!((found.trace_id(), found.span_id()), (span.trace_id(), span.span_id()));
    assert_eq!(found.is_sampled(), span.is_sampled());
    assert!(found.is_remote());
    assert_eq!(trace_id(headers), Some(span.trace_id().to_string().as_str()));
}

#[test]
fn a_message_belongs_to_the_active_span_of_open_telemetry() {
    let provider = SdkTracerProvider::builder().build();
    let context = Context::new().with_span(provider.tracer("test").start("request"));
    let span = context.span().span_context().clone();
    let _active = context.attach();
    assert_from(&enqueued(Message::new("t", "x")), &span);
    let own = Message::new("t", "x").header("traceparent", "mine");
    assert_eq!(enqueued(own)["traceparent"], "mine");
}

#[test]
fn a_message_belongs_to_the_tracing_span_that_is_entered() {
    let provider = SdkTracerProvider::builder().build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        assert_eq!(enqueued(Message::new("t", "x")), Headers::new(), "there is none yet");
        let (outer, inner) = (tracing::info_span!("outer"), tracing::info_span!("inner"));
        let of_outer = outer.in_scope(|| enqueued(Message::new("t", "x")));
        let (headers, span) = inner.in_scope(|| {
            let current = Context::current().span().span_context().clone();
            (enqueued(Message::new("t", "x")), current)
        });
        assert!(span.is_valid());
        assert_from(&headers, &span);
        assert_ne!(of_outer["traceparent"], headers["traceparent"]);
    });
}
