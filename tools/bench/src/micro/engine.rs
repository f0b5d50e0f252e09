//! The engine alone: claims that are made beforehand, a store that writes nothing and a publisher that sends nothing.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::ensure;
use async_trait::async_trait;
use chrono::Utc;
use nix::time::{ClockId, clock_gettime};
use posthaste_core::lifecycle::Settlement;
use posthaste_core::publisher::{Batch, Capabilities, LaneOrder, Outcome, Report};
use posthaste_core::store::{
    Claim, ClaimRequest, ClaimedMessage, ExtendRequest, Extended, OutboxStats, PurgeRequest, Purged, Scope, Settled,
    StoreRequirements,
};
use posthaste_core::{Message, MessageId, Publisher, RelayStore, StoreError};
use posthaste_relay::{Relay, RelayConfig};

use super::report::{self, Figure, Target};
use crate::extent::Extent;

/// The windows that are compared: those of a fast log, and those of a queue.
const WINDOWS: [(u32, u32); 2] = [(2_000, 16_000), (500, 2_000)];

/// Microseconds of CPU that a message may cost.
const MAX_CPU: f64 = 1.5;

pub(crate) async fn run(extent: Extent) -> anyhow::Result<Vec<Figure>> {
    let (messages, turns) = extent.pick((100_000, 3), (300_000, 5));
    let mut figures = Vec::new();
    for (batch_size, max_in_flight) in WINDOWS {
        let (mut cpu, mut speeds) = (Vec::new(), Vec::new());
        for turn in 1..=turns {
            report::progress(&format!("engine: batches of {batch_size}, turn {turn} of {turns}"));
            let measured = measure(messages, batch_size, max_in_flight).await?;
            cpu.push(measured.cpu_micros);
            speeds.push(measured.rate);
        }
        let name = format!("engine alone, batches of {batch_size}");
        figures.push(Figure::new(format!("{name}: CPU"), "µs/message", &cpu).target(Target::ValueBelow(MAX_CPU)));
        figures.push(Figure::new(format!("{name}: speed"), "messages/s", &speeds));
    }
    Ok(figures)
}

struct Measured {
    cpu_micros: f64,
    rate: f64,
}

/// Delivers so many messages of 1,000 keys through the engine.
#[expect(clippy::cast_precision_loss, reason = "few enough messages")]
async fn measure(messages: usize, batch_size: u32, max_in_flight: u32) -> anyhow::Result<Measured> {
    let store = Prepared::new(messages, batch_size as usize);
    let config = RelayConfig {
        batch_size,
        max_in_flight,
        ..RelayConfig::default()
    };
    let (cpu, started) = (cpu_time(), Instant::now());
    let delivered = Relay::new(store, Null).config(config).drain().await?.delivered;
    let (cpu, elapsed) = (cpu_time().saturating_sub(cpu), started.elapsed());
    ensure!(
        delivered == messages as u64,
        "{delivered} of {messages} messages were delivered"
    );
    Ok(Measured {
        cpu_micros: cpu.as_secs_f64() * 1e6 / messages as f64,
        rate: messages as f64 / elapsed.as_secs_f64(),
    })
}

fn cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)
        .map(Duration::from)
        .unwrap_or_default()
}

/// Hands out what it has and forgets it.
struct Prepared(Mutex<VecDeque<Vec<ClaimedMessage>>>);

impl Prepared {
    fn new(messages: usize, batch_size: usize) -> Self {
        let payload = vec![b'x'; 300];
        let claimed = |n: usize| ClaimedMessage {
            message: Message::new("orders", payload.clone())
                .key(format!("key-{}", n % 1_000))
                .event_type("acme.orders.created.v1"),
            fault: None,
            sequence: i64::try_from(n).ok(),
            created_at: Utc::now(),
            attempts: 1,
            hash: None,
            version: None,
            max_attempts: None,
        };
        let all: Vec<usize> = (0..messages).collect();
        Self(Mutex::new(
            all.chunks(batch_size)
                .map(|chunk| chunk.iter().map(|n| claimed(*n)).collect())
                .collect(),
        ))
    }
}

#[async_trait]
impl RelayStore for Prepared {
    async fn claim(&self, _: &ClaimRequest) -> Result<Claim, StoreError> {
        let messages = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front()
            .unwrap_or_default();
        Ok(Claim {
            messages,
            ..Claim::default()
        })
    }

    async fn settle(&self, _: &[Settlement]) -> Result<Settled, StoreError> {
        Ok(Settled::default())
    }

    async fn extend(&self, request: ExtendRequest<'_>) -> Result<Extended, StoreError> {
        Ok(Extended::all(request.ids.to_vec()))
    }

    fn requirements(&self) -> StoreRequirements {
        StoreRequirements {
            append_only: true,
            ..StoreRequirements::default()
        }
    }

    async fn sweep(&self, _: &Scope, _: u32) -> Result<Vec<MessageId>, StoreError> {
        Ok(Vec::new())
    }

    async fn purge(&self, _: &PurgeRequest) -> Result<Purged, StoreError> {
        Ok(Purged::default())
    }

    async fn check_for(&self, _: &Scope) -> Result<(), StoreError> {
        Ok(())
    }

    async fn stats(&self, _: &str) -> Result<OutboxStats, StoreError> {
        Ok(OutboxStats::default())
    }
}

/// Sends nothing, and asks and answers for each message as a publisher does.
struct Null;

#[async_trait]
impl Publisher for Null {
    async fn publish(&self, batch: Batch, report: Report) {
        for delivery in &batch.deliveries {
            if batch.may_send(delivery.place) {
                report.delivered(delivery.place);
            } else {
                report.outcome(delivery.place, Outcome::NotAttempted);
            }
        }
    }

    fn name(&self) -> &'static str {
        "null"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(LaneOrder::Pipelined)
    }
}
