//! Publishers that are looked at.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use posthaste_core::publisher::{Capabilities, LaneOrder};
use posthaste_core::{Batch, MessageId, Publisher, Report};

use crate::clock::now_micros;
use crate::tally::Tally;
use crate::workload::number_of;

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
            report.delivered(delivery.message.id);
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
pub(super) type Acknowledged = Arc<Mutex<Vec<(u32, u64)>>>;

/// Another publisher that is not closed between the warm-up and the work, and notes when messages are acknowledged if it
/// is to.
pub(super) struct Watched<P> {
    pub(super) publisher: P,
    pub(super) acknowledged: Option<Acknowledged>,
}

#[async_trait]
impl<P: Publisher> Publisher for Watched<P> {
    async fn publish(&self, batch: Batch, report: Report) {
        let report = match &self.acknowledged {
            Some(acknowledged) => noting(&batch, report, Arc::clone(acknowledged)),
            None => report,
        };
        self.publisher.publish(batch, report).await;
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
    let numbers: HashMap<MessageId, Option<u32>> = deliveries
        .map(|delivery| (delivery.message.id, number_of(&delivery.message.payload)))
        .collect();
    Report::new(move |id, outcome| {
        if outcome.is_delivered()
            && let Some(Some(number)) = numbers.get(&id)
        {
            let mut acknowledged = acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
            acknowledged.push((*number, now_micros()));
        }
        report.outcome(id, outcome);
    })
}
