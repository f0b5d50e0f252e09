//! Work beside the events: forgetting what is old, and checking that it is not forgotten too soon.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::{InboxStore, StoreError};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use crate::attempt::within;
use crate::engine::Engine;
use crate::instrument;
use crate::outage::Outage;
use crate::retention::{RetentionGap, retention_gaps};

/// Records removed by one statement; small enough not to hold locks for long.
const PURGE_BATCH: u32 = 1_000;

const CHECK_INTERVAL: Duration = Duration::from_hours(1);

/// The wait after a check that brokers did not answer.
const CHECK_AGAIN: Duration = Duration::from_mins(1);

/// Removes old records of the inbox at an interval.
pub(crate) async fn purge<I: InboxStore>(engine: Arc<Engine<I>>, stop: CancellationToken) {
    let outage = Outage::new("cleaning up the inbox");
    let mut ticks = interval(engine.config.janitor_interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        match stop.run_until_cancelled(purge_once(&engine)).await {
            Some(Ok(removed)) => {
                outage.over();
                instrument::purged(removed);
                tracing::debug!(removed, "cleaned up the inbox");
            }
            Some(Err(error)) => drop(outage.failed(error)),
            None => return,
        }
    }
}

/// Removes all old records, a batch at a time, and returns how many.
pub(crate) async fn purge_once<I: InboxStore>(engine: &Engine<I>) -> Result<u64, StoreError> {
    let mut removed = 0;
    // Until empty: a cleanup that removes a fixed number per round falls behind a busy topic for ever.
    loop {
        let purging = engine.inbox.purge(engine.config.inbox_retention, PURGE_BATCH);
        let batch = within(engine.config.inbox_timeout, "clean up the inbox", purging).await?;
        removed += batch;
        if batch < u64::from(PURGE_BATCH) {
            return Ok(removed);
        }
    }
}

/// Says, at the start and whenever it changes, where brokers can replay what the inbox has forgotten.
pub(crate) async fn watch_retention<I: InboxStore>(engine: Arc<Engine<I>>, stop: CancellationToken) {
    let config = &engine.config;
    let mut known: Vec<RetentionGap> = Vec::new();
    loop {
        let asking = retention_gaps(&config.connection, &config.topics, config.inbox_retention);
        let wait = match stop.run_until_cancelled(asking).await {
            Some(Ok(gaps)) => {
                gaps.iter().filter(|gap| !known.contains(gap)).for_each(report);
                known = gaps;
                CHECK_INTERVAL
            }
            Some(Err(error)) => {
                // Brokers that are away are reported elsewhere; a missing right is no reason to disturb anybody.
                tracing::debug!(error, "the topics' retention could not be compared with the inbox's");
                CHECK_AGAIN
            }
            None => return,
        };
        if stop.run_until_cancelled(sleep(wait)).await.is_none() {
            return;
        }
    }
}

fn report(gap: &RetentionGap) {
    // Dead letters come again only when an operator asks for it.
    if gap.is_dead_letters() {
        tracing::info!(topic = gap.topic, "{gap}");
    } else {
        tracing::warn!(topic = gap.topic, "{gap}");
    }
}
