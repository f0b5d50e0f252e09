//! Removes old records of the inbox.

use std::sync::Arc;

use posthaste_core::{InboxStore, StoreError};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::instrument;
use crate::config::ConsumerConfig;
use crate::guard::RetryLogger;

/// Records removed by one statement; small enough not to hold locks for long.
const PURGE_BATCH_SIZE: u32 = 1_000;

/// Removes old records of the inbox at an interval.
pub(crate) async fn purge(inbox: Arc<impl InboxStore>, config: ConsumerConfig, stop: CancellationToken) {
    let outage = RetryLogger::new("cleaning up the inbox");
    let mut ticks = interval(config.janitor_interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        match stop.run_until_cancelled(purge_once(&*inbox, &config)).await {
            Some(Ok(removed)) => {
                outage.recovered();
                tracing::debug!(removed, "cleaned up the inbox");
            }
            Some(Err(error)) => drop(outage.failed(error)),
            None => return,
        }
    }
}

/// Removes old records, a batch at a time, and returns how many.
async fn purge_once(inbox: &impl InboxStore, config: &ConsumerConfig) -> Result<u64, StoreError> {
    let (mut removed, start) = (0, Instant::now());
    // Until none is left: a cleanup that removes a fixed number per round falls behind a busy topic and stays behind. But not
    // for longer than an interval, after which the next round goes on.
    loop {
        let batch = inbox.purge(config.inbox_retention, PURGE_BATCH_SIZE).await?;
        instrument::purged(batch);
        removed += batch;
        if batch < u64::from(PURGE_BATCH_SIZE) || start.elapsed() > config.janitor_interval {
            return Ok(removed);
        }
    }
}
