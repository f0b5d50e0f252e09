//! Lanes of which messages are in flight in several batches, because the publisher keeps their order by itself.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use chrono::Utc;
use posthaste_core::lifecycle::{LeaseToken, Settlement, Verdict};
use posthaste_core::publisher::{Capabilities, LaneOrder};
use posthaste_core::store::{
    Claim, ClaimRequest, ClaimedMessage, ExtendRequest, Extended, OutboxStats, PurgeRequest, Purged, Scope, Settled,
    StoreRequirements,
};
use posthaste_core::{
    Batch, Message, MessageId, Outcome, PublishError, Publisher, RelayStore, Report, StoreError, Text,
};
use posthaste_relay::{Relay, RelayConfig};
use tokio::sync::watch;
use tokio::time::timeout;

/// A log in memory: it hands out later rows of a lane while earlier ones are in flight, if it is asked to, but none past one
/// that failed, and none while a later one is in flight.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<Row>>>);

#[derive(Clone, Debug)]
struct Row {
    message: Message,
    attempts: u32,
    /// Claimed under this token.
    claimed: Option<LeaseToken>,
    delivered: bool,
}

impl Log {
    fn of(keys: &[&str]) -> Self {
        let row = |(number, key): (usize, &&str)| Row {
            message: Message::new("orders", format!("{key}{number}")).key(*key),
            attempts: 0,
            claimed: None,
            delivered: false,
        };
        Self(Arc::new(Mutex::new(keys.iter().enumerate().map(row).collect())))
    }

    fn rows(&self) -> MutexGuard<'_, Vec<Row>> {
        self.0.lock().unwrap()
    }
}

#[async_trait]
impl RelayStore for Log {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let mut rows = self.rows();
        let in_flight = |row: &&Row| row.claimed.is_some();
        let busy: HashSet<Text> = rows
            .iter()
            .filter(in_flight)
            .filter_map(|row| row.message.ordering_key.clone())
            .collect();
        let mut held = HashSet::new();
        let mut messages = Vec::new();
        for number in 0..rows.len() {
            let Some(key) = rows[number].message.ordering_key.clone() else {
                continue;
            };
            if rows[number].delivered || messages.len() == request.limit as usize {
                continue;
            }
            let later_in_flight = rows[number..]
                .iter()
                .any(|row| row.claimed.is_some() && row.message.ordering_key.as_ref() == Some(&key));
            if rows[number].claimed.is_some() {
                continue;
            }
            let alone = request.pipelined || !busy.contains(&key);
            if later_in_flight || !alone || held.contains(&key) {
                held.insert(key);
                continue;
            }
            let row = &mut rows[number];
            row.attempts += 1;
            row.claimed = Some(request.token);
            messages.push(ClaimedMessage {
                message: row.message.clone(),
                fault: None,
                sequence: None,
                created_at: Utc::now(),
                attempts: row.attempts,
                hash: None,
                version: None,
                max_attempts: None,
            });
        }
        Ok(Claim {
            messages,
            ..Claim::default()
        })
    }

    /// What is to be tried again is at once.
    async fn settle(&self, settlements: &[Settlement]) -> Result<Settled, StoreError> {
        let mut rows = self.rows();
        for settlement in settlements {
            let row = rows.iter_mut().find(|row| row.message.id == settlement.id).unwrap();
            assert_eq!(row.claimed.take(), Some(settlement.token));
            row.delivered = settlement.verdict == Verdict::Delivered;
        }
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

    async fn stats(&self, _: &str) -> Result<OutboxStats, StoreError> {
        Ok(OutboxStats::default())
    }

    async fn check_for(&self, _: &Scope) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Has so many calls under way before it answers any, and fails the first message once.
#[derive(Clone)]
struct Broker {
    calls: watch::Sender<usize>,
    line: Arc<tokio::sync::Mutex<()>>,
    wanted: usize,
    order: LaneOrder,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Broker {
    fn new(wanted: usize, order: LaneOrder) -> Self {
        Self {
            calls: watch::Sender::new(0),
            line: Arc::default(),
            wanted,
            order,
            seen: Arc::default(),
        }
    }

    /// What was sent of a lane, in order; what failed is marked.
    fn seen(&self, lane: &str) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.iter()
            .filter(|text| text.trim_start_matches('!').starts_with(lane))
            .cloned()
            .collect()
    }
}

#[async_trait]
impl Publisher for Broker {
    async fn publish(&self, batch: Batch, report: Report) {
        let mut call = 0;
        self.calls.send_modify(|calls| {
            *calls += 1;
            call = *calls;
        });
        // Messages are handed over in the order in which calls begin.
        let _turn = self.line.lock().await;
        // The first one fails when the others are there.
        let mut calls = self.calls.subscribe();
        calls.wait_for(|calls| *calls >= self.wanted).await.unwrap();
        let mut stopped = HashSet::new();
        for delivery in &batch.deliveries {
            let text = String::from_utf8(delivery.message.payload.to_vec()).unwrap();
            let key = &delivery.message.ordering_key;
            if stopped.contains(key) || !batch.may_send(delivery.place) {
                report.outcome(delivery.place, Outcome::NotAttempted);
            } else if call == 1 && text == "a0" {
                self.seen.lock().unwrap().push(format!("!{text}"));
                report.failed(delivery.place, PublishError::transient("not now"));
                stopped.insert(key);
            } else {
                self.seen.lock().unwrap().push(text);
                report.delivered(delivery.place);
            }
        }
    }

    fn name(&self) -> &'static str {
        "broker"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(self.order)
    }
}

fn config() -> RelayConfig {
    RelayConfig {
        batch_size: 2,
        max_in_flight: 100,
        ..RelayConfig::default()
    }
}

/// Proves pitfall 5.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failure_nothing_of_the_lane_is_sent_by_other_batches_and_other_lanes_go_on() {
    let keys = ["a", "b"].repeat(6);
    let (log, broker) = (Log::of(&keys), Broker::new(6, LaneOrder::Pipelined));
    let relay = Relay::new(log, broker.clone()).config(config());
    let drained = timeout(Duration::from_secs(30), relay.drain()).await.unwrap();
    assert_eq!(drained.unwrap().delivered, 12);
    assert_eq!(broker.seen("a"), ["!a0", "a0", "a2", "a4", "a6", "a8", "a10"]);
    assert_eq!(broker.seen("b"), ["b1", "b3", "b5", "b7", "b9", "b11"]);
    let first_b = broker.seen.lock().unwrap().iter().position(|text| text == "b11");
    let second_a = broker.seen.lock().unwrap().iter().position(|text| text == "a0");
    assert!(first_b < second_a, "b was in flight, and waited for nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_that_sends_one_at_a_time_is_given_one_batch_of_a_lane() {
    let (log, broker) = (Log::of(&["a"; 12]), Broker::new(1, LaneOrder::OneAtATime));
    let relay = Relay::new(log.clone(), broker.clone()).config(config());
    relay.drain().await.unwrap();
    assert_eq!(*broker.calls.borrow(), 7, "each after the one before, and one again");
    assert!(log.rows().iter().all(|row| row.delivered));
}

/// Takes note of the first message of each call before it waits for anything.
#[derive(Clone, Default)]
struct FirstOfEach(Arc<Mutex<Vec<usize>>>);

#[async_trait]
impl Publisher for FirstOfEach {
    async fn publish(&self, batch: Batch, report: Report) {
        let text = String::from_utf8(batch.deliveries[0].message.payload.to_vec()).unwrap();
        self.0.lock().unwrap().push(text[1..].parse().unwrap());
        tokio::task::yield_now().await;
        for delivery in &batch.deliveries {
            report.delivered(delivery.place);
        }
    }

    fn name(&self) -> &'static str {
        "first of each"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(LaneOrder::Pipelined)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_of_a_pipelined_publisher_begin_in_the_order_of_their_claims() {
    let (log, broker) = (Log::of(&vec!["a"; 2_000]), FirstOfEach::default());
    let config = RelayConfig {
        max_in_flight: 1_000,
        ..config()
    };
    Relay::new(log, broker.clone()).config(config).drain().await.unwrap();
    let begun = broker.0.lock().unwrap().clone();
    assert_eq!(begun.len(), 1_000);
    assert!(begun.is_sorted(), "{begun:?}");
}
