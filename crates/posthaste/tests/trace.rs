//! Every way to enqueue takes the current trace along.
#![cfg(feature = "otel")]
#![expect(clippy::unwrap_used, reason = "the whole file is a test")]

use opentelemetry::Context;
use opentelemetry::context::FutureExt;
use opentelemetry::trace::{SpanId, TraceContextExt, Tracer, TracerProvider};
use opentelemetry_sdk::trace::SdkTracerProvider;
use posthaste::core::outbox::AnyOutbox;
use posthaste::core::trace::TraceParent;
use posthaste::testing::{MemoryStore, enqueued};
use posthaste::{Message, Outbox, OutboxOptions};

fn span(name: &'static str) -> Context {
    let provider = SdkTracerProvider::builder().build();
    Context::new().with_span(provider.tracer("test").start(name))
}

async fn origins(store: &MemoryStore) -> Vec<SpanId> {
    let rows = enqueued(store).await;
    let parent = |headers| TraceParent::of(headers).unwrap().span_id.to_owned();
    let parents = rows.iter().map(|row| parent(&row.message.headers));
    parents.map(|id| SpanId::from_hex(&id).unwrap()).collect()
}

/// A future may be made in one span and run in another one, which is where the message is enqueued.
async fn the_span_that_the_future_runs_in_counts(store: &MemoryStore, outbox: &impl Outbox) {
    let (outer, inner) = (span("outer"), span("inner"));
    let expected = [&inner, &inner, &inner, &outer].map(|context| context.span().span_context().span_id());
    let mut tx = outbox.begin().await.unwrap();
    let messages = || [Message::new("t", "1"), Message::new("t", "2")];
    {
        let enqueueing = {
            let _outer = outer.clone().attach();
            outbox.enqueue_all(&mut tx, messages())
        };
        enqueueing.with_context(inner.clone()).await.unwrap();
    }
    let enqueueing = outbox.enqueue(&mut tx, Message::new("t", "3"));
    enqueueing.with_context(inner).await.unwrap();
    let enqueueing = outbox.enqueue(&mut tx, Message::new("t", "4"));
    enqueueing.with_context(outer).await.unwrap();
    outbox.commit(tx).await.unwrap();
    assert_eq!(origins(store).await, expected);
}

#[tokio::test]
async fn the_span_that_enqueues_counts_with_a_typed_outbox() {
    let store = MemoryStore::new();
    let outbox = store.outbox(OutboxOptions::default());
    the_span_that_the_future_runs_in_counts(&store, &outbox).await;
}

#[tokio::test]
async fn the_span_that_enqueues_counts_with_any_outbox() {
    let store = MemoryStore::new();
    let outbox = AnyOutbox::new(store.outbox(OutboxOptions::default()));
    the_span_that_the_future_runs_in_counts(&store, &outbox).await;
}

/// What was current when the call was made is better than nothing.
#[tokio::test]
async fn a_future_that_runs_in_no_span_keeps_that_of_its_call() {
    let store = MemoryStore::new();
    let outbox = store.outbox(OutboxOptions::default());
    let outer = span("outer");
    let mut tx = Outbox::begin(&outbox).await.unwrap();
    let enqueueing = {
        let _outer = outer.clone().attach();
        Outbox::enqueue_all(&outbox, &mut tx, [Message::new("t", "1")])
    };
    enqueueing.await.unwrap();
    Outbox::commit(&outbox, tx).await.unwrap();
    assert_eq!(origins(&store).await, [outer.span().span_context().span_id()]);
}
