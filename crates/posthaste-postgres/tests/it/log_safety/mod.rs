//! What a log's reader does when writers, tables, connections or ids are not as they should be.

mod connection;
mod crashes;
mod enqueueing;
mod failed_ids;
mod ids;
mod late;
mod lines;
mod payloads;
mod pooler;
mod refusals;
mod restarts;
mod watermark;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use posthaste_core::{Batch, Outcome, PublishError, Publisher, Report};

const DEADLINE: Duration = Duration::from_mins(1);

async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Writes down every attempt; refuses the events of some aggregates for good.
#[derive(Clone, Default)]
struct Receiver {
    attempts: Arc<Mutex<Vec<String>>>,
    refused: Arc<Mutex<Vec<&'static str>>>,
}

impl Receiver {
    fn refusing(aggregate: &'static str) -> Self {
        let receiver = Self::default();
        receiver.refused.lock().unwrap().push(aggregate);
        receiver
    }

    fn attempts(&self) -> Vec<String> {
        self.attempts.lock().unwrap().clone()
    }

    fn attempts_of(&self, event: &str) -> usize {
        self.attempts().iter().filter(|attempt| *attempt == event).count()
    }
}

#[async_trait]
impl Publisher for Receiver {
    async fn publish(&self, batch: Batch, report: Report) {
        let mut stopped = Vec::new();
        for delivery in &batch.deliveries {
            let message = &delivery.message;
            let key = message.ordering_key.clone().unwrap_or_default();
            if stopped.contains(&key) || !batch.may_send(delivery.place) {
                report.outcome(delivery.place, Outcome::NotAttempted);
                continue;
            }
            self.attempts
                .lock()
                .unwrap()
                .push(message.effective_event_id().into_owned());
            if self.refused.lock().unwrap().iter().any(|refused| *refused == key) {
                report.outcome(delivery.place, Outcome::Failed(PublishError::permanent("400")));
                stopped.push(key);
            } else {
                report.outcome(delivery.place, Outcome::DELIVERED);
            }
        }
    }

    fn name(&self) -> &'static str {
        "receiver"
    }
}
