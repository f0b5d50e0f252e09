//! A log with cursor and failed tables, on the commerce system's own DDL.

mod application;
mod gaps;
mod lanes;
mod locked;
mod order;
mod plans;
mod reader_lock;
mod statements;
mod tail;
mod upkeep;

use std::time::{Duration, Instant};

use posthaste_testkit::RecordingPublisher;
use tokio::time::sleep;

const DEADLINE: Duration = Duration::from_mins(1);

fn events(broker: &RecordingPublisher) -> Vec<String> {
    let event = |delivery: &posthaste_core::publisher::Delivery| delivery.message.effective_event_id().into_owned();
    broker.deliveries().iter().map(event).collect()
}

async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        sleep(Duration::from_millis(20)).await;
    }
}
