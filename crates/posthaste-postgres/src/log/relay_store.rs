//! The relay's verbs.

use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::lifecycle::Settlement;
use posthaste_core::message::DEFAULT_NAMESPACE;
use posthaste_core::store::{
    AdminStore, Claim, ClaimRequest, ExtendRequest, Extended, GAUGE_BOUND, LeadRequest, Leadership, OutboxStats,
    PurgeRequest, Purged, Reading, RefusedVerdict, RelayRegistry, RelayStore, Scope, Settled, StoreErrorKind,
    StoreRequirements, TableGauges, TopicBacklog,
};
use posthaste_core::wake::Listener;
use posthaste_core::{MessageId, StoreError};
use posthaste_sql::log::Ranges;
use posthaste_sql::table::{Role, Table};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::known::Known;
use super::{PostgresLogStore, seats};
use crate::error::store_error;
use crate::pooling;
use crate::rows::millis;

#[async_trait]
impl RelayStore for PostgresLogStore {
    fn requirements(&self) -> StoreRequirements {
        self.log.map.requirements()
    }

    /// Nothing while others read the log; the next claim asks again.
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        refuse_parts(&request.scope)?;
        self.readers.balance(request.worker, request.lease).await?;
        self.readers.claim(request).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Settled, StoreError> {
        self.readers.settle(settlements).await
    }

    async fn extend(&self, request: ExtendRequest<'_>) -> Result<Extended, StoreError> {
        self.readers.extend(request).await
    }

    /// At failed rows, and at shards that may be read by now.
    async fn rescan(&self) {
        self.readers.rescan().await;
    }

    async fn sweep(&self, _scope: &Scope, max_attempts: u32) -> Result<Vec<MessageId>, StoreError> {
        let native = self.log.is_native();
        let allowed = if native {
            max_attempts
        } else {
            max_attempts.saturating_sub(1)
        };
        if !native && allowed >= self.log.options.max_retries {
            return Ok(Vec::new());
        }
        let mut given_up = Vec::new();
        for reader in self.readers.all() {
            given_up.extend(reader.sweep(allowed).await?);
        }
        Ok(given_up)
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<Purged, StoreError> {
        let log = &*self.log;
        let mut removed = Purged::default();
        if let Some(keep) = request.dead {
            removed.dead = self.purge_dead(keep, request.limit).await?;
        }
        if let Some(beside) = &log.beside {
            // What was redirected is in the queue as delivered.
            let queue = PurgeRequest {
                dead: None,
                cursor: None,
                ..request.clone()
            };
            let beside = beside.purge(&queue).await?;
            removed.dedupe = beside.dedupe;
            removed.delivered = beside.delivered;
        }
        if let Some(tables) = log.tables.as_ref().filter(|_| request.dead.is_none()) {
            removed.delivered += tables.tend_segments(request.delivered).await?.rows;
        }
        let Some(statements) = &log.statements.cursors else {
            return Ok(removed);
        };
        if let Some(keep) = request.cursor
            && log.map.has((Table::Cursor, Role::CreatedAt))
        {
            let old = sqlx::query(statements.purge_cursor.sql())
                .bind(millis(keep))
                .bind(i64::from(request.limit));
            removed.cursor = log.execute_bounded(old).await.map_err(store_error)?;
        }
        if let Some(keep) = request.delivered
            && log.options.purge_log
        {
            let old = sqlx::query(statements.purge_log.sql())
                .bind(millis(keep))
                .bind(i64::from(request.limit))
                .bind(self.stored_cursor().await?);
            removed.delivered = log.execute_bounded(old).await.map_err(store_error)?;
        }
        Ok(removed)
    }

    /// The one that reads the log, or the first of its shards, looks after it.
    async fn elect_janitor(&self, request: &LeadRequest) -> Result<Leadership, StoreError> {
        if self.readers.reads_the_first().await {
            return Ok(Leadership::Held);
        }
        let (worker, left) = (Uuid::nil(), request.lease);
        Ok(Leadership::HeldBy { worker, left })
    }

    async fn stats(&self, _namespace: &str) -> Result<OutboxStats, StoreError> {
        let stats = self.count(&self.known().await?, None).await?;
        Ok(stats.with_queue(&self.left_in_queue().await?))
    }

    async fn table_gauges(&self, _namespace: &str) -> Result<TableGauges, StoreError> {
        let known = self.known().await?;
        let stats = self.count(&known, Some(GAUGE_BOUND)).await?;
        let stats = stats.with_queue(&self.left_in_queue().await?);
        let topics = self.topic_gauges(&known).await?;
        let shards = self.shards().await?;
        Ok(TableGauges { stats, topics, shards })
    }

    fn registry(&self) -> Option<&dyn RelayRegistry> {
        self.log.beside.as_ref()?.registry()
    }

    async fn listener(&self) -> Option<Box<dyn Listener>> {
        self.log.beside.as_ref()?.listener().await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        pooling::ping(&self.log.pool).await.map_err(store_error)
    }

    /// A reader that has nothing to do, such as one whose circuit is open, must let the server hear that it lives.
    async fn keep_alive(&self) -> Result<(), StoreError> {
        self.readers.keep_alive().await
    }

    fn reading(&self) -> Reading {
        self.readers.reading()
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.readers.close().await
    }

    /// Counted up to a bound, as for gauges. A role that may not look there has no queue to care for.
    async fn left_in_queue(&self) -> Result<OutboxStats, StoreError> {
        let Some(queue) = &self.log.beside else {
            return Ok(OutboxStats::default());
        };
        match queue.table_gauges(DEFAULT_NAMESPACE).await {
            Err(error) if error.kind == StoreErrorKind::Access => Ok(OutboxStats::default()),
            gauges => Ok(gauges?.stats),
        }
    }

    async fn check_for(&self, scope: &Scope) -> Result<(), StoreError> {
        refuse_parts(scope)?;
        if self.log.beside.is_some() && scope.namespace != DEFAULT_NAMESPACE {
            return Err(StoreError::no_namespaces(&scope.namespace));
        }
        StoreError::refuse_left_in_queue(&self.left_in_queue().await?)?;
        self.log.check_session().await?;
        self.check_ids().await?;
        self.check_lengths().await?;
        // Whether it can be done: how many there are does not matter, so few are counted.
        self.count(&self.known().await?, Some(GAUGE_BOUND)).await?;
        self.shards().await?;
        self.try_writes().await
    }
}

/// Says what the database refuses where no verdict's answer can.
pub(super) fn say_refused(refused: &[RefusedVerdict]) {
    for RefusedVerdict { id, error } in refused {
        tracing::error!(row = %id, %error, "a verdict was refused");
    }
}

impl PostgresLogStore {
    /// Counts what is in the log; of the rows that were not handed out up to a number, and more by the numbers they have.
    async fn count(&self, known: &Known, bound: Option<u32>) -> Result<OutboxStats, StoreError> {
        let (first, last) = bounds(&known.waiting);
        let mut tx = seats::begin_look(&self.log.pool).await?;
        let segment = self.log.ask_first_segment(&mut tx, true).await.map_err(store_error)?;
        let query = sqlx::query(self.log.statements.upkeep.stats.sql())
            .persistent(false)
            .bind(first)
            .bind(last)
            .bind(i64::from(self.log.options.max_retries))
            .bind(known.retried.iter().copied().collect::<Vec<_>>())
            .bind(bound.map(i64::from));
        let query = if self.log.is_native() {
            query.bind(segment)
        } else {
            query
        };
        let row = query.fetch_one(&mut *tx).await.map_err(store_error)?;
        tx.rollback().await.map_err(store_error)?;
        let count = |name: &str| row.try_get::<i64, _>(name).map(i64::cast_unsigned).map_err(store_error);
        let (dead, failed): (Vec<_>, Vec<_>) = known.failures.values().partition(|failure| failure.dead);
        let waiting = failed.iter().filter(|failure| !failure.delay.is_zero()).count() + known.postponed;
        Ok(OutboxStats {
            pending: count("pending")? + failed.len() as u64,
            waiting: count("waiting")? + waiting as u64,
            processing: (known.in_flight.len() + known.retried.len()) as u64,
            dead: count("dead")? + dead.len() as u64,
            oldest_seconds: row.try_get::<f64, _>("oldest_seconds").map_err(store_error)?.max(0.0),
        })
    }

    /// None of an existing log, where topics stand in no column.
    async fn topic_gauges(&self, known: &Known) -> Result<Vec<TopicBacklog>, StoreError> {
        let Some(sharding) = &self.log.statements.sharding else {
            return Ok(Vec::new());
        };
        let (first, last) = bounds(&known.waiting);
        let mut tx = seats::begin_look(&self.log.pool).await?;
        let segment = self.log.ask_first_segment(&mut tx, true).await.map_err(store_error)?;
        let rows = sqlx::query(sharding.topic_gauges.sql())
            .bind(first)
            .bind(last)
            .bind(i64::from(GAUGE_BOUND))
            .bind(known.retried.iter().copied().collect::<Vec<_>>())
            .bind(segment)
            .fetch_all(&mut *tx)
            .await
            .map_err(store_error)?;
        tx.rollback().await.map_err(store_error)?;
        let topic = |row: &PgRow| {
            Ok(TopicBacklog {
                topic: row.try_get("topic")?,
                pending: row.try_get::<i64, _>("pending")?.cast_unsigned(),
                oldest_seconds: row.try_get::<f64, _>("oldest_seconds")?.max(0.0),
            })
        };
        rows.iter().map(topic).collect::<sqlx::Result<_>>().map_err(store_error)
    }

    /// The cursor as it is stored.
    pub(super) async fn stored_cursor(&self) -> Result<i64, StoreError> {
        let first = self.readers.onlooker(0);
        first.stored_cursor(&self.log.pool).await.map_err(store_error)
    }

    /// Removes what was given up long ago.
    async fn purge_dead(&self, keep: Duration, limit: u32) -> Result<Vec<MessageId>, StoreError> {
        let log = &*self.log;
        let dying = log.statements.dying.as_ref();
        let dying = dying.ok_or_else(|| StoreError::no_time_of_death(log.map.name()))?;
        let removed = async {
            let mut tx = log.begin_bounded().await?;
            let query = sqlx::query_scalar(dying.purge_dead.sql())
                .bind(millis(keep))
                .bind(i64::from(limit));
            let removed: Vec<String> = query.fetch_all(&mut *tx).await?;
            tx.commit().await?;
            Ok(removed)
        };
        let removed = removed.await.map_err(store_error)?;
        // Named as their consumers would have known them: the rows are gone.
        Ok(removed.iter().map(|id| MessageId::guess(id)).collect())
    }
}

/// First and last of ranges, as statements take them.
fn bounds(ranges: &Ranges) -> (Vec<i64>, Vec<i64>) {
    ranges.iter().map(|range| (*range.start(), *range.end())).unzip()
}

/// There is one cursor, so a relay that passed over other topics would lose them.
fn refuse_parts(scope: &Scope) -> Result<(), StoreError> {
    if scope.topics.is_empty() && scope.tenant.is_none() {
        return Ok(());
    }
    Err(StoreError::unsupported(
        "a log has one cursor, so a relay cannot serve a part of it",
        Some("leave out scope.topics and scope.tenant"),
    ))
}
