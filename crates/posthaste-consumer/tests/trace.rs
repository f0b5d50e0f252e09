//! One trace, from a request to the events that follow from it: HTTP, outbox, relay, Kafka, consumer, second outbox.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use opentelemetry::context::FutureExt;
use opentelemetry::trace::{SpanBuilder, SpanId, SpanKind, Status, TraceContextExt, TraceId, Tracer};
use opentelemetry::{Context, Value, global};
use opentelemetry_sdk::trace::{InMemorySpanExporter, InMemorySpanExporterBuilder, SdkTracerProvider, SpanData};
use posthaste_consumer::{Connection, HandlerError, Once, Received};
use posthaste_core::lifecycle::State as RowState;
use posthaste_core::message::Headers;
use posthaste_core::store::Filter;
use posthaste_core::trace::{TraceParent, remote_context};
use posthaste_core::{AdminStore, Backoff, OutboxOptions, RetryPolicy};
use posthaste_kafka::dlq::{DeadLetterTopic, Selection};
use posthaste_postgres::PostgresStore;
use posthaste_publishers::kafka::{KafkaOptions, KafkaPublisher};
use posthaste_relay::{Relay, RelayConfig};
use posthaste_testing::{Fault, FaultyPublisher, Rule};
use sqlx::PgConnection;
use support::{Running, SOLD, Sale, World, logs};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CLIENT_SPAN: &str = "b7ad6b7169203331";

/// A request in a span of its own, as instrumentation of the web framework makes it.
async fn place_order(State(world): State<World>, request: HeaderMap) -> StatusCode {
    let named = |name: &str| Some((name.to_owned(), request.get(name)?.to_str().ok()?.to_owned()));
    let parent = remote_context(&["traceparent", "baggage"].into_iter().filter_map(named).collect());
    let span = SpanBuilder::from_name("POST /orders").with_kind(SpanKind::Server);
    let span = global::tracer("shop").build_with_context(span, &parent);
    let work = async {
        let outbox = world.store.outbox(OutboxOptions::default());
        let mut tx = world.store.pool().begin().await.unwrap();
        outbox.enqueue(&mut *tx, world.sale("7", 3)).await.unwrap();
        tx.commit().await.unwrap();
    };
    work.with_context(parent.with_span(span)).await;
    StatusCode::CREATED
}

/// Asks the shop for an order, as a client that is traced.
async fn request(world: &World) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let shop = Router::new()
        .route("/orders", post(place_order))
        .with_state(world.clone());
    let server = tokio::spawn(async { axum::serve(listener, shop).await });
    let request = format!(
        "POST /orders HTTP/1.1\r\nhost: shop\r\nconnection: close\r\ncontent-length: 0\r\n\
         traceparent: 00-{TRACE}-{CLIENT_SPAN}-01\r\nbaggage: tenant=acme\r\n\r\n"
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    server.abort();
}

async fn deliver(world: &World, broker: &FaultyPublisher<KafkaPublisher>) {
    let retry = RetryPolicy {
        max_attempts: 5,
        backoff: Backoff::Schedule {
            delays: vec![Duration::from_millis(1)],
        },
    };
    let config = RelayConfig {
        retry,
        ..RelayConfig::default()
    };
    let relay = Relay::new(world.store.clone(), broker.clone()).config(config);
    relay.drain().await.unwrap();
}

async fn only_row(store: &PostgresStore) -> posthaste_core::store::Record {
    let mut rows = store.list(&Filter::default(), None, 10).await.unwrap();
    assert_eq!(rows.len(), 1);
    rows.remove(0)
}

fn origin(headers: &Headers) -> (TraceId, SpanId) {
    let parent = TraceParent::of(headers).expect("a trace");
    assert!(parent.is_sampled());
    (
        TraceId::from_hex(parent.trace_id).unwrap(),
        SpanId::from_hex(parent.span_id).unwrap(),
    )
}

/// The finished spans of a name, in the order in which they ended.
fn named(exporter: &InMemorySpanExporter, name: &str) -> Vec<SpanData> {
    let mut spans = exporter.get_finished_spans().unwrap();
    spans.retain(|span| span.name == name);
    spans
}

fn attributes(span: &SpanData) -> HashMap<&str, Value> {
    let attributes = span.attributes.iter();
    attributes.map(|pair| (pair.key.as_str(), pair.value.clone())).collect()
}

fn assert_caused_by(span: &SpanData, cause: &SpanData) {
    assert_eq!(span.span_context.trace_id(), TraceId::from_hex(TRACE).unwrap());
    assert_eq!(span.parent_span_id, cause.span_context.span_id());
    let linked: Vec<_> = span.links.iter().map(|link| link.span_context.span_id()).collect();
    assert_eq!(linked, [cause.span_context.span_id()]);
}

/// The relay retries, gives up and is told to replay; the consumer retries, gives up and is sent the dead letter again.
#[tokio::test(flavor = "multi_thread")]
async fn a_trace_goes_on_across_retries_dead_letters_and_replays() {
    let exporter = InMemorySpanExporterBuilder::new().build();
    let provider = SdkTracerProvider::builder()
        .with_simple_exporter(exporter.clone())
        .build();
    global::set_tracer_provider(provider);
    let Some(world) = World::new(1).await else { return };
    let second = World::on(&world.bootstrap).await.store;

    request(&world).await;
    let [server] = &named(&exporter, "POST /orders")[..] else {
        panic!("one request")
    };
    assert_eq!(server.parent_span_id, SpanId::from_hex(CLIENT_SPAN).unwrap());
    let row = only_row(&world.store).await;
    assert_eq!(
        origin(&row.message.headers),
        (server.span_context.trace_id(), server.span_context.span_id())
    );
    assert_eq!(row.message.headers["baggage"], "tenant=acme");

    let options = KafkaOptions::new(Connection::to(&world.bootstrap));
    let broker = FaultyPublisher::new(KafkaPublisher::new(options).unwrap());
    broker.inject(Rule::new(Fault::transient()).times(1));
    broker.inject(Rule::new(Fault::permanent()).times(1));
    let state = async || only_row(&world.store).await.state;
    while state().await != RowState::Dead {
        deliver(&world, &broker).await;
    }
    assert_eq!(world.store.replay(&Filter::default(), 10).await.unwrap().len(), 1);
    deliver(&world, &broker).await;
    assert_eq!(state().await, RowState::Delivered);
    sends(&exporter, &world, server, &row.message.effective_event_id());

    let failures = Arc::new(AtomicU32::new(0));
    let (follow_up, failed) = (second.outbox(OutboxOptions::default()), Arc::clone(&failures));
    let consumer = world.consumer().on(
        SOLD,
        Once::per_event(),
        async move |tx: &mut PgConnection, event: Received<Sale>| {
            global::tracer("shop").start("count the sale");
            tracing::info!(target: "posthaste_consumer", sale = event.payload.n, "counting {}", event.id);
            if failed.fetch_add(1, Ordering::Relaxed) < 3 {
                return Err(HandlerError::retry("not today"));
            }
            let message = posthaste_core::Message::new("statistics", "{}");
            follow_up.enqueue(tx, message).await.map_err(HandlerError::retry)?;
            Ok(())
        },
    );
    let running = Running::start(consumer);
    world.until_committed(0, 1).await;
    let connection = Connection::to(&world.bootstrap);
    let letters = DeadLetterTopic::open(&connection, &world.dead_letter_topic())
        .await
        .unwrap();
    let everything = Selection {
        open: true,
        ..Selection::default()
    };
    assert_eq!(letters.replay(&everything, |_| {}).await.unwrap().letters, 1);
    world.until_committed(0, 2).await;
    running.stop().await;
    processes(&exporter, &world, server, &row.message.effective_event_id());

    let process = named(&exporter, &format!("process {}", world.topic));
    let follow_up = only_row(&second).await.message;
    assert_eq!(
        origin(&follow_up.headers),
        (TraceId::from_hex(TRACE).unwrap(), process[3].span_context.span_id())
    );
    assert_eq!(follow_up.headers["baggage"], "tenant=acme");
    let own = named(&exporter, "count the sale");
    let parents: Vec<_> = own.iter().map(|span| span.parent_span_id).collect();
    let attempts: Vec<_> = process.iter().map(|span| span.span_context.span_id()).collect();
    assert_eq!(parents, attempts, "the span of an attempt is current in its handler");
    let id = row.message.effective_event_id().into_owned();
    let lines = logs::with(&["counting", &id, TRACE, "attempt=", "offset="]);
    assert_eq!(lines.len(), 4, "a handler's log lines tell the trace");
    assert!(!Context::current().has_active_span());
}

fn sends(exporter: &InMemorySpanExporter, world: &World, server: &SpanData, id: &str) {
    let sends = named(exporter, &format!("send {}", world.topic));
    let mut outcomes = Vec::new();
    for span in &sends {
        assert_caused_by(span, server);
        assert_eq!(span.span_kind, SpanKind::Producer);
        let found = attributes(span);
        assert_eq!(found["messaging.system"], "kafka".into());
        assert_eq!(found["messaging.operation.type"], "send".into());
        assert_eq!(found["messaging.operation.name"], "send".into());
        assert_eq!(found["messaging.destination.name"], world.topic.clone().into());
        assert_eq!(found["messaging.message.id"], id.to_owned().into());
        assert_eq!(found["messaging.message.body.size"], Value::I64(7));
        let Value::F64(delay) = found["posthaste.outbox.delay"] else {
            panic!("{found:?}")
        };
        assert!((0.0..60.0).contains(&delay), "{delay}");
        let error = found
            .get("error.type")
            .map_or("none".into(), Value::as_str)
            .into_owned();
        assert_eq!(matches!(span.status, Status::Error { .. }), error != "none");
        outcomes.push((
            found["posthaste.outbox.attempt"].clone(),
            found["posthaste.outbox.outcome"].as_str().into_owned(),
            error,
        ));
    }
    let expected = [
        (1, "retry", "transient"),
        (2, "dead", "permanent"),
        (1, "delivered", "none"),
    ];
    let expected =
        expected.map(|(attempt, outcome, error)| (Value::I64(attempt), outcome.to_owned(), error.to_owned()));
    assert_eq!(outcomes, expected);
}

fn processes(exporter: &InMemorySpanExporter, world: &World, server: &SpanData, id: &str) {
    let processes = named(exporter, &format!("process {}", world.topic));
    let mut attempts = Vec::new();
    for span in &processes {
        assert_caused_by(span, server);
        assert_eq!(span.span_kind, SpanKind::Consumer);
        let found = attributes(span);
        assert_eq!(found["messaging.system"], "kafka".into());
        assert_eq!(found["messaging.operation.type"], "process".into());
        assert_eq!(found["messaging.destination.name"], world.topic.clone().into());
        assert_eq!(found["messaging.destination.partition.id"], "0".into());
        assert_eq!(found["messaging.consumer.group.name"], world.group.clone().into());
        assert_eq!(found["messaging.message.id"], id.to_owned().into());
        assert_eq!(found["messaging.message.body.size"], Value::I64(7));
        let failed = found.get("error.type") == Some(&"handler".into());
        assert_eq!(matches!(span.status, Status::Error { .. }), failed);
        attempts.push((
            found["messaging.kafka.offset"].clone(),
            found["posthaste.consumer.attempt"].clone(),
            found["posthaste.consumer.outcome"].as_str().into_owned(),
        ));
    }
    let expected = [(0, 1, "failed"), (0, 2, "failed"), (0, 3, "failed"), (1, 1, "handled")];
    let expected =
        expected.map(|(offset, attempt, outcome)| (Value::I64(offset), Value::I64(attempt), outcome.to_owned()));
    assert_eq!(attempts, expected);
}
