//! What spans cost: a backlog of traced messages through the engine, with and without a tracer provider.

use std::time::{Duration, Instant};

use anyhow::ensure;
use opentelemetry::global;
use opentelemetry::trace::noop::NoopTracerProvider;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use posthaste_postgres::PostgresStore;
use posthaste_relay::Relay;
use posthaste_testkit::NullPublisher;
use sqlx::{Connection, PgConnection};

use crate::extent::Extent;
use crate::micro::backlog::Keys;
use crate::micro::contest::config;
use crate::micro::contest::{Contest, TURN};
use crate::micro::database::Database;
use crate::micro::first_rows::FirstRows;
use crate::micro::report::{Figure, Target};

/// Spans are batched and handed to an exporter that takes them.
#[derive(Debug)]
struct NullExporter;

impl SpanExporter for NullExporter {
    async fn export(&self, _: Vec<SpanData>) -> OTelSdkResult {
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Contender {
    Untraced,
    Traced,
}

pub(crate) async fn run(database: &Database, extent: Extent) -> anyhow::Result<Vec<Figure>> {
    let mut bench = Bench {
        store: database.store(),
        conn: database.connect().await?,
        provider: SdkTracerProvider::builder().with_batch_exporter(NullExporter).build(),
    };
    // What fills the table leaves headers to their default.
    bench
        .default_headers(r#"{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}"#)
        .await?;
    // Each goes first as often as second: whoever comes later on a backlog has other conditions.
    let contenders = [
        Contender::Untraced,
        Contender::Traced,
        Contender::Traced,
        Contender::Untraced,
    ];
    let speeds = bench.compare(Keys::Even(1_000), &contenders, extent.pick(3, 10)).await;
    bench.default_headers("{}").await?;
    let speeds = speeds?;
    let (untraced, traced) = (both(&speeds[0], &speeds[3]), both(&speeds[1], &speeds[2]));
    bench.conn.close().await?;
    bench.store.pool().close().await;
    Ok(vec![
        Figure::new("trace: no tracer provider".to_owned(), "rows/s", &untraced),
        Figure::new("trace: a span for each message".to_owned(), "rows/s", &traced)
            .relative_to(&untraced)
            .target(Target::RatioAtLeast(0.98)),
    ])
}

/// The speed over two turns of equally many rows, for each repetition.
fn both(one: &[f64], other: &[f64]) -> Vec<f64> {
    one.iter()
        .zip(other)
        .map(|(one, other)| 2.0 / (1.0 / one + 1.0 / other))
        .collect()
}

struct Bench {
    store: PostgresStore,
    conn: PgConnection,
    provider: SdkTracerProvider,
}

impl Bench {
    async fn default_headers(&mut self, json: &str) -> sqlx::Result<()> {
        let sql = format!("alter table posthaste.outbox alter column headers set default '{json}'");
        sqlx::query(sqlx::AssertSqlSafe(sql))
            .execute(&mut self.conn)
            .await
            .map(drop)
    }
}

impl Contest for Bench {
    const NAME: &str = "trace";

    type Contender = Contender;

    fn conn(&mut self) -> &mut PgConnection {
        &mut self.conn
    }

    async fn turn(&mut self, contender: Contender) -> anyhow::Result<Duration> {
        match contender {
            Contender::Untraced => global::set_tracer_provider(NoopTracerProvider::new()),
            Contender::Traced => global::set_tracer_provider(self.provider.clone()),
        }
        let store = FirstRows::new(self.store.clone(), TURN);
        let started = Instant::now();
        let delivered = Relay::new(store, NullPublisher)
            .config(config(true))
            .drain()
            .await?
            .delivered;
        let elapsed = started.elapsed();
        ensure!(
            delivered == u64::from(TURN),
            "{delivered} of {TURN} rows were delivered"
        );
        Ok(elapsed)
    }
}
