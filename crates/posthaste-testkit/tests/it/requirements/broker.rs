//! A broker that answers as told, lane by lane, and remembers when it was asked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use posthaste_core::publisher::Delivery;
use posthaste_core::{Batch, Outcome, PublishError, Publisher, Report};
use tokio::time::{Instant, sleep};

/// What it says to a payload at an attempt, and after how long.
type Script = dyn Fn(&str, u32) -> (Duration, Outcome) + Send + Sync;

#[derive(Clone)]
pub struct Broker {
    start: Instant,
    script: Arc<Script>,
    tried: Arc<Mutex<Vec<(u128, String, u32)>>>,
}

impl Broker {
    pub fn new(script: impl Fn(&str, u32) -> Outcome + Send + Sync + 'static) -> Self {
        Self::slow(move |payload, attempt| (Duration::ZERO, script(payload, attempt)))
    }

    pub fn slow(script: impl Fn(&str, u32) -> (Duration, Outcome) + Send + Sync + 'static) -> Self {
        Self {
            start: Instant::now(),
            script: Arc::new(script),
            tried: Arc::default(),
        }
    }

    /// One that takes everything.
    pub fn willing() -> Self {
        Self::new(|_, _| Outcome::DELIVERED)
    }

    /// When a payload was tried, in milliseconds from the start, and which attempt that was.
    pub fn attempts_of(&self, payload: &str) -> Vec<(u128, u32)> {
        let tried = self.tried.lock().unwrap();
        let of = tried.iter().filter(|(_, tried, _)| tried == payload);
        of.map(|(at, _, attempt)| (*at, *attempt)).collect()
    }

    /// Everything that was tried, in order.
    pub fn tried(&self) -> Vec<String> {
        let tried = self.tried.lock().unwrap();
        tried.iter().map(|(_, payload, _)| payload.clone()).collect()
    }

    async fn publish_lane(&self, batch: &Batch, lane: Vec<&Delivery>, report: &Report) {
        let mut stopped = false;
        for delivery in lane {
            let place = delivery.place;
            if stopped || !batch.may_send(place) {
                stopped = true;
                report.outcome(place, Outcome::NotAttempted);
                continue;
            }
            let payload = String::from_utf8(delivery.message.payload.to_vec()).unwrap();
            let at = self.start.elapsed().as_millis();
            let (delay, outcome) = (self.script)(&payload, delivery.attempt);
            self.tried.lock().unwrap().push((at, payload, delivery.attempt));
            sleep(delay).await;
            stopped = !outcome.is_delivered();
            report.outcome(place, outcome);
        }
    }
}

#[async_trait]
impl Publisher for Broker {
    async fn publish(&self, batch: Batch, report: Report) {
        let mut lanes: Vec<Vec<&Delivery>> = Vec::new();
        for delivery in &batch.deliveries {
            let lane = delivery.message.lane();
            let same = |others: &&mut Vec<&Delivery>| lane.is_some() && others[0].message.lane() == lane;
            match lanes.iter_mut().find(same) {
                Some(others) => others.push(delivery),
                None => lanes.push(vec![delivery]),
            }
        }
        join_all(lanes.into_iter().map(|lane| self.publish_lane(&batch, lane, &report))).await;
    }

    fn name(&self) -> &'static str {
        "scripted"
    }
}

pub fn busy() -> Outcome {
    Outcome::Failed(PublishError::transient("the topic is busy"))
}
