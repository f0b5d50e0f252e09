//! Two publishers in one relay: what the messages of one notice of the other's death.
//!
//! From commit to the receiver, at a load that leaves relay and server idle most of the time. All cases are measured in turns,
//! each with a relay of its own, so that a publisher is found to be dead within the time that is measured.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::bail;
use posthaste_core::{Message, OutboxOptions, Publisher};
use posthaste_postgres::PostgresStore;
use posthaste_publishers::http::{HttpOptions, HttpPublisher};
use posthaste_publishers::{Route, Routed};
use posthaste_relay::{Relay, RelayConfig};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use crate::extent::Extent;
use crate::micro::backlog::{self, Keys};
use crate::micro::database::Database;
use crate::micro::receivers::{Receiver, SilentReceiver, refusing_url};
use crate::micro::report::{Figure, Target, percentile, progress};

const UNIT: &str = "ms";
/// 100 transactions in a second, each with one message for either publisher.
const PERIOD: Duration = Duration::from_millis(10);
/// How long the last messages may take.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);
/// How much more of the healthy publisher's messages may take long beside a dead one.
const MAX_RATIO: f64 = 1.5;

/// What the other publisher is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Other {
    /// It gets no messages.
    Idle,
    Healthy,
    /// Its connections are refused.
    Refusing,
    /// It takes connections and never answers.
    Silent,
}

impl Other {
    const ALL: [Self; 4] = [Self::Idle, Self::Healthy, Self::Refusing, Self::Silent];

    fn is_dead(self) -> bool {
        matches!(self, Self::Refusing | Self::Silent)
    }

    fn title(self) -> &'static str {
        match self {
            Self::Idle => "alone",
            Self::Healthy => "beside a healthy one",
            Self::Refusing => "beside one that refuses connections",
            Self::Silent => "beside one that never answers",
        }
    }
}

pub(crate) async fn run(database: &Database, extent: Extent) -> anyhow::Result<Vec<Figure>> {
    let messages = extent.pick(800, 1_500);
    let mut medians = [const { Vec::new() }; Other::ALL.len()];
    let mut tails = [const { Vec::new() }; Other::ALL.len()];
    for _ in 0..extent.pick(3, 5) {
        for (place, other) in Other::ALL.into_iter().enumerate() {
            let waits = measure(database, other, messages).await?;
            let (median, tail) = (percentile(&waits, 50), percentile(&waits, 99));
            progress(&format!(
                "publishers, {}: p50 {median:.1} ms, p99 {tail:.1} ms",
                other.title()
            ));
            medians[place].push(median);
            tails[place].push(tail);
        }
    }
    let mut figures = Vec::new();
    for (place, other) in Other::ALL.into_iter().enumerate() {
        let figure = |percentile: &str, values: &[Vec<f64>]| {
            let name = format!("publishers: {}, {percentile}", other.title());
            let figure = Figure::new(name, UNIT, &values[place]);
            if other == Other::Idle {
                figure
            } else {
                figure.relative_to(&values[0])
            }
        };
        figures.push(figure("p50", &medians));
        let tail = figure("p99", &tails);
        figures.push(if other.is_dead() {
            tail.target(Target::RatioAtMost(MAX_RATIO))
        } else {
            tail
        });
    }
    Ok(figures)
}

/// Milliseconds from the end of each commit to the arrival at the healthy publisher's receiver.
async fn measure(database: &Database, other: Other, messages: u32) -> anyhow::Result<Vec<f64>> {
    backlog::fill(&mut database.connect().await?, 0, Keys::None).await?;
    let (receiver, healthy, silent) = (
        Receiver::start().await?,
        Receiver::start().await?,
        SilentReceiver::start().await?,
    );
    let other_url = match other {
        Other::Idle | Other::Healthy => healthy.url(),
        Other::Refusing => refusing_url().await?,
        Other::Silent => silent.url(),
    };
    let publisher = Routed::new(
        vec![
            ("other".to_owned(), http(&other_url)?),
            ("measured".to_owned(), http(&receiver.url())?),
        ],
        vec![Route::to("other").topic("other"), Route::to("measured")],
    )?;
    let shutdown = CancellationToken::new();
    let config = RelayConfig {
        // What a silent receiver has is not waited for.
        shutdown_grace: Duration::from_millis(100),
        ..RelayConfig::default()
    };
    let relay = Relay::new(database.store(), publisher).config(config);
    let relay = tokio::spawn(relay.run_until(shutdown.clone()));
    // The relay listens on a connection that it opens when it starts.
    sleep(Duration::from_secs(1)).await;

    let committed = produce(&database.store(), messages, other != Other::Idle).await?;
    let all_sent = Instant::now();
    while !committed.iter().all(|(id, _)| receiver.arrived(id).is_some()) {
        if all_sent.elapsed() > DELIVERY_TIMEOUT {
            bail!("messages of the healthy publisher are not delivered {}", other.title());
        }
        sleep(Duration::from_millis(20)).await;
    }
    shutdown.cancel();
    relay.await??;
    // A delivery that overtook the answer to the commit took no time at all.
    let wait = |(id, committed): &(String, Instant)| {
        let arrived = receiver.arrived(id)?;
        Some(arrived.saturating_duration_since(*committed).as_secs_f64() * 1_000.0)
    };
    Ok(committed.iter().filter_map(wait).collect())
}

fn http(url: &str) -> anyhow::Result<Arc<dyn Publisher>> {
    let url = url.parse().map_err(anyhow::Error::msg)?;
    Ok(Arc::new(HttpPublisher::new(HttpOptions::new(url))?))
}

/// Commits one message per period, and one for the other publisher with it; returns when each commit was answered.
async fn produce(store: &PostgresStore, messages: u32, for_both: bool) -> anyhow::Result<Vec<(String, Instant)>> {
    let outbox = store.outbox(OutboxOptions::default()).with_notifier(store.notifier());
    let mut committed = Vec::new();
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for n in 0..messages {
        ticks.tick().await;
        let to = |topic: &str| Message::new(topic, "{}").key(format!("key-{}", n % 100));
        let message = to("measured");
        let id = message.id.to_string();
        let mut tx = store.pool().begin().await?;
        outbox.enqueue(&mut tx, message).await?;
        if for_both {
            outbox.enqueue(&mut tx, to("other")).await?;
        }
        outbox.commit(tx).await?;
        committed.push((id, Instant::now()));
    }
    Ok(committed)
}
