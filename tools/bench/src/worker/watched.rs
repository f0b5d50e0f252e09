//! Publishers that are looked at.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use posthaste_core::publisher::{Capabilities, LaneOrder, Place};
use posthaste_core::{Batch, Publisher, Report};
use tokio::sync::watch;

use crate::clock::now_micros;
use crate::tally::Tally;
use crate::workload::{WARM_UP, number_of};

/// Counts what it is given and throws it away.
pub(super) struct Counting(pub(super) Arc<Mutex<Tally>>);

#[async_trait]
impl Publisher for Counting {
    async fn publish(&self, batch: Batch, report: Report) {
        {
            let mut tally = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            for delivery in &batch.deliveries {
                tally.note(number_of(&delivery.message.payload));
            }
        }
        for delivery in &batch.deliveries {
            report.delivered(delivery.place);
        }
    }

    fn name(&self) -> &'static str {
        "counting"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(LaneOrder::Pipelined)
    }
}

/// Rows and when each was acknowledged, in microseconds of the system's clock.
#[derive(Clone, Default)]
pub(super) struct Acknowledged {
    rows: Arc<Mutex<Vec<(u32, u64)>>>,
}

impl Acknowledged {
    pub(super) fn take(&self) -> Vec<(u32, u64)> {
        std::mem::take(&mut self.rows.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, number: u32) {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if number != WARM_UP {
            rows.push((number, now_micros()));
        }
    }
}

/// How many rows were answered, and when the last of them was, in microseconds of the system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answered {
    pub(super) rows: u64,
    pub(super) at: u64,
}

/// Another publisher that tells how much of what it was given was answered, and notes when each message was if it is to.
pub(super) struct Watched<P> {
    pub(super) publisher: P,
    pub(super) answered: watch::Sender<Answered>,
    pub(super) acknowledged: Option<Acknowledged>,
}

#[async_trait]
impl<P: Publisher> Publisher for Watched<P> {
    async fn publish(&self, batch: Batch, report: Report) {
        let report = match &self.acknowledged {
            Some(acknowledged) => noting(&batch, report, acknowledged.clone()),
            None => report,
        };
        let rows = batch.deliveries.len() as u64;
        self.publisher.publish(batch, report).await;
        self.answered.send_modify(|answered| {
            answered.rows += rows;
            answered.at = now_micros();
        });
    }

    fn name(&self) -> &'static str {
        self.publisher.name()
    }

    fn capabilities(&self) -> Capabilities {
        self.publisher.capabilities()
    }
}

fn noting(batch: &Batch, report: Report, acknowledged: Acknowledged) -> Report {
    let deliveries = batch.deliveries.iter();
    let numbers: HashMap<Place, Option<u32>> = deliveries
        .map(|delivery| (delivery.place, number_of(&delivery.message.payload)))
        .collect();
    Report::new(move |place, outcome| {
        let is_delivered = outcome.is_delivered();
        report.outcome(place, outcome);
        if is_delivered && let Some(Some(number)) = numbers.get(&place) {
            acknowledged.note(*number);
        }
    })
}
