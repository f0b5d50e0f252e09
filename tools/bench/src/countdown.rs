//! A publisher that says when enough was delivered.

use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use posthaste_core::{Batch, Publisher, Report};
use tokio_util::sync::CancellationToken;

/// Reports every message delivered at once, and fires the token when `left` were.
pub(crate) struct Countdown {
    left: AtomicU32,
    done: CancellationToken,
}

impl Countdown {
    pub(crate) fn new(left: u32, done: CancellationToken) -> Self {
        Self {
            left: AtomicU32::new(left),
            done,
        }
    }
}

#[async_trait]
impl Publisher for Countdown {
    async fn publish(&self, batch: Batch, report: Report) {
        for delivery in &batch.deliveries {
            report.delivered(delivery.place);
            if self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
                self.done.cancel();
            }
        }
    }

    fn name(&self) -> &'static str {
        "countdown"
    }
}
