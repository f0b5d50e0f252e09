//! Gives up, counts and removes what is old, at an interval.

use std::sync::Arc;
use std::time::Duration;

use posthaste_core::message::DEFAULT_NAMESPACE;
use posthaste_core::store::{OutboxStats, PurgeRequest};
use posthaste_core::{MessageId, StoreError};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::owner::Owner;
use super::sweep::sweep_once;
use super::topics::ShownTopics;
use crate::engine::Engine;
use crate::upkeep::retry_logger::RetryLogger;
use crate::upkeep::{instrument, shards};

/// Rows removed by one statement; small enough not to hold locks for long.
const PURGE_BATCH: u32 = 1_000;

/// Sweeps at an interval, and counts and purges where this relay is the one that does.
pub(crate) async fn clean(engine: Arc<Engine>, stop: CancellationToken) {
    let mut retry_logger = RetryLogger::aside("cleaning up", &engine.health);
    let mut janitor = Janitor::new(&engine);
    let mut ticks = interval(engine.config.janitor_interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        // Not cut short by the end: a lease that is granted after the deregistration would keep the others waiting.
        let asked = janitor.owner.ask(&engine).await;
        let Some(cleaned) = stop.run_until_cancelled(janitor.clean_once()).await else {
            break;
        };
        match asked.and(cleaned) {
            Ok(()) => retry_logger.recovered(),
            Err(error) => drop(retry_logger.failed(&error)),
        }
    }
    janitor.show_nothing();
}

/// How long keys past their window are left alone at most, if there was none to remove. To find that out all of them are
/// looked at, and where rows are kept there may be millions.
const LONGEST_KEY_WAIT: Duration = Duration::from_hours(1);

struct Janitor<'e> {
    engine: &'e Arc<Engine>,
    owner: Owner,
    topics: ShownTopics,
    /// When keys past their window are looked for again, and how long that was waited for.
    keys_due: Instant,
    key_wait: Duration,
    /// Messages were found in a queue, or in a log, that is not served.
    has_others: bool,
}

impl<'e> Janitor<'e> {
    fn new(engine: &'e Arc<Engine>) -> Self {
        Self {
            engine,
            owner: Owner::new(engine.config.janitor_interval),
            topics: ShownTopics::default(),
            keys_due: Instant::now(),
            key_wait: Duration::ZERO,
            has_others: false,
        }
    }

    /// Takes note of how many keys were removed: those behind them come soon, and none for a while longer each time.
    fn removed_keys(&mut self, keys: u64) {
        let next = self.key_wait.saturating_mul(2).max(self.engine.config.janitor_interval);
        self.key_wait = if keys > 0 {
            Duration::ZERO
        } else {
            next.min(LONGEST_KEY_WAIT)
        };
        self.keys_due = Instant::now() + self.key_wait;
    }

    async fn clean_once(&mut self) -> Result<(), StoreError> {
        // A death that the table refuses is no reason not to count and purge. Every relay gives up what is in its scope.
        let swept = sweep_once(self.engine).await;
        if !self.owner.counts() {
            self.show_nothing();
            return swept.map(drop);
        }
        let is_owner = self.owner.is_held();
        instrument::upkeep_owner(self.namespace(), is_owner);
        // Before the purge, which may take long when there is much to remove.
        let counted = self.count().await;
        if !is_owner {
            return swept.map(drop).and(counted);
        }
        // Even if they could not be counted: it may be the rows to be removed that make counting slow.
        let purged = self.purge().await?;
        let swept = swept?;
        counted?;
        tracing::debug!(swept, purged, "cleaned up");
        Ok(())
    }

    fn namespace(&self) -> &str {
        &self.engine.config.scope.namespace
    }

    async fn count(&mut self) -> Result<(), StoreError> {
        let mut gauges = self.engine.store.table_gauges(self.namespace()).await?;
        let in_log = self.look_beside().await;
        if let Ok(in_log) = &in_log {
            gauges.stats = gauges.stats.with_queue(in_log);
        }
        instrument::counted(self.namespace(), &gauges.stats);
        shards::counted(self.namespace(), &gauges.shards);
        self.topics.update(&gauges.topics);
        self.show_topics();
        in_log.map(drop)
    }

    /// Producers that were not told of the log may still write to the queue, where no relay of the log looks, and others to the log
    /// beside a queue. Returns what is there.
    async fn look_beside(&mut self) -> Result<OutboxStats, StoreError> {
        let store = &self.engine.store;
        let queue = store.left_in_queue().await?;
        // A log has no namespaces.
        let in_log = if self.namespace() == DEFAULT_NAMESPACE {
            store.left_in_log().await?
        } else {
            OutboxStats::default()
        };
        let found = StoreError::refuse_left_in_queue(&queue).and(StoreError::refuse_left_in_log(&in_log));
        match &found {
            Err(error) if !self.has_others => tracing::error!(%error, "messages are not delivered"),
            _ => {}
        }
        self.has_others = found.is_err();
        Ok(in_log)
    }

    /// Another relay shows the figures of the table, or will.
    fn show_nothing(&mut self) {
        instrument::upkeep_owner(self.namespace(), false);
        instrument::counted(self.namespace(), &OutboxStats::default());
        self.topics.clear();
        self.show_topics();
    }

    fn show_topics(&self) {
        for (topic, backlog) in self.topics.iter() {
            instrument::topic_counted(self.namespace(), topic, backlog.pending, backlog.oldest_seconds);
        }
    }

    /// Removes until nothing is left to remove: so many rows per round would fall behind a busy producer forever. But after an
    /// interval it is time to sweep and count again.
    async fn purge(&mut self) -> Result<u64, StoreError> {
        let config = &self.engine.config;
        let mut request = PurgeRequest {
            namespace: Some(config.scope.namespace.clone()),
            delivered: config.retention.age(),
            dead: None,
            cursor: Some(config.cursor_retention),
            dedupe: self.keys_due <= Instant::now(),
            limit: PURGE_BATCH,
        };
        let dead = config.dead_retention.age().map(|age| PurgeRequest {
            delivered: None,
            dead: Some(age),
            cursor: None,
            dedupe: false,
            ..request.clone()
        });
        let (mut rows, start) = (0, Instant::now());
        loop {
            let removed = self.engine.store.purge(&request).await;
            // A row that may not be removed is no reason to keep these.
            let removed_dead = match &dead {
                Some(dead) => purge_dead(self.engine, dead.clone()).await,
                None => Ok(Vec::new()),
            };
            let mut removed = removed?;
            instrument::purged(self.namespace(), &removed);
            if std::mem::take(&mut request.dedupe) {
                self.removed_keys(removed.dedupe);
                request.dedupe = removed.dedupe > 0;
            }
            removed.dead = removed_dead?;
            rows += removed.rows();
            if removed.most() < u64::from(PURGE_BATCH) {
                return Ok(rows);
            }
            if start.elapsed() > config.janitor_interval {
                tracing::info!(rows, "removed old rows; there are more, and the next round goes on");
                return Ok(rows);
            }
            if !self.owner.renew(self.engine).await? {
                return Ok(rows);
            }
        }
    }
}

/// That events are gone that nobody got is said and counted, whatever else cannot be removed, and also if the relay stops in
/// this moment: so in a call and a task of its own.
async fn purge_dead(engine: &Arc<Engine>, request: PurgeRequest) -> Result<Vec<MessageId>, StoreError> {
    let engine = Arc::clone(engine);
    let purge = async move {
        let removed = engine.store.purge(&request).await?;
        instrument::purged(&engine.config.scope.namespace, &removed);
        for id in &removed.dead {
            engine.net.settled_row(*id);
        }
        Ok(removed.dead)
    };
    match tokio::spawn(purge).await {
        Ok(removed) => removed,
        Err(panic) => Err(StoreError::other(panic)),
    }
}
