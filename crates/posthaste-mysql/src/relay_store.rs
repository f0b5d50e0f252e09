//! The relay's verbs.

use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::lifecycle::Settlement;
use posthaste_core::store::{
    Claim, ClaimRequest, ExtendRequest, Extended, GAUGE_BOUND, LeadRequest, Leadership, OutboxStats, PurgeRequest,
    Purged, RecoverRequest, Recovered, RelayRegistry, RelayStore, Scope, Settled, StoreRequirements, TableGauges,
    TopicBacklog, WorkerId,
};
use posthaste_core::{MessageId, StoreError};
use posthaste_sql::table::Strategy;
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use crate::MySqlStore;
use crate::claim::MAX_IDS;
use crate::error::{of_table, store_error};
use crate::retry::retrying;
use crate::rows::{ids, millis};
use crate::statement::Value;
use crate::statements::Needed;

#[async_trait]
impl RelayStore for MySqlStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.map.check_scope(&request.scope)?;
        self.map.check_ordering(&request.ordering)?;
        match self.map.strategy() {
            Strategy::RowLocks => retrying!(self.claim_by_locks(request)).map_err(store_error),
            _ => retrying!(self.claim_once(request)).map_err(store_error),
        }
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Settled, StoreError> {
        if settlements.is_empty() {
            return Ok(Settled::default());
        }
        if self.keeps_rows_locked() {
            return self.settle_locked(settlements).await.map_err(store_error);
        }
        self.settle_under_lease(settlements).await.map_err(store_error)
    }

    async fn extend(&self, request: ExtendRequest<'_>) -> Result<Extended, StoreError> {
        let ExtendRequest { token, ids, lease } = request;
        let extended = if self.keeps_rows_locked() {
            self.extend_locked(token, ids, lease).await.map(Extended::all)
        } else {
            self.extend_under_lease(token, ids, lease).await
        };
        extended.map_err(store_error)
    }

    fn requirements(&self) -> StoreRequirements {
        self.map.requirements()
    }

    async fn recover(&self, request: &RecoverRequest) -> Result<Recovered, StoreError> {
        self.map.check_scope(&request.scope)?;
        retrying!(self.recover_once(request)).map_err(store_error)
    }

    async fn sweep(&self, scope: &Scope, max_attempts: u32) -> Result<Vec<MessageId>, StoreError> {
        self.map.check_scope(scope)?;
        retrying!(self.sweep_once(scope, max_attempts)).map_err(store_error)
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<Purged, StoreError> {
        if request.dead.is_some() && self.statements.dying.is_none() {
            return Err(StoreError::no_time_of_death(self.map.name()));
        }
        // A row that may not be removed is no reason to keep the others.
        let delivered = retrying!(self.purge_delivered(request)).map_err(store_error);
        let dead = retrying!(self.purge_dead(request)).map_err(store_error);
        let dedupe = retrying!(self.purge_keys(request)).map_err(store_error);
        Ok(Purged {
            delivered: delivered?,
            dead: dead?,
            dedupe: dedupe?,
            cursor: 0,
        })
    }

    async fn stats(&self, namespace: &str) -> Result<OutboxStats, StoreError> {
        self.count_to(namespace, i64::MAX).await.map_err(store_error)
    }

    async fn table_gauges(&self, namespace: &str) -> Result<TableGauges, StoreError> {
        let bound = i64::from(GAUGE_BOUND) + 1;
        let stats = self.count_to(namespace, bound).await.map_err(store_error)?;
        let topics = self.topic_gauges(namespace).await.map_err(store_error)?;
        Ok(TableGauges {
            stats,
            topics,
            shards: Vec::new(),
        })
    }

    async fn elect_janitor(&self, request: &LeadRequest) -> Result<Leadership, StoreError> {
        if self.statements.registry.is_some() {
            return self.elect_leader(request).await;
        }
        self.lock_janitor(request).await.map_err(store_error)
    }

    async fn resign_janitor(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.unlock_janitor(worker).await.map_err(store_error)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        let pool = &self.pool;
        if pool.num_idle() == 0 && pool.size() >= pool.options().get_max_connections() {
            return Ok(());
        }
        let answer = sqlx::raw_sql("select 1").execute(pool).await;
        answer.map(drop).map_err(store_error)
    }

    fn registry(&self) -> Option<&dyn RelayRegistry> {
        self.statements.registry.is_some().then_some(self)
    }

    async fn check_for(&self, wanted: &Scope) -> Result<(), StoreError> {
        self.map.check_scope(wanted)?;
        self.look_at_every_column().await.map_err(store_error)?;
        self.try_every_verdict(wanted).await
    }
}

impl MySqlStore {
    async fn look_at_every_column(&self) -> sqlx::Result<()> {
        let mut tx = self.begin().await?;
        self.statements
            .common
            .check
            .fetch_all(&mut tx, &[])
            .await
            .map_err(of_table)?;
        if let Some(letters) = &self.statements.dead_letter {
            letters
                .check_dead_letter
                .fetch_all(&mut tx, &[])
                .await
                .map_err(of_table)?;
        }
        tx.commit().await
    }

    fn keeps_rows_locked(&self) -> bool {
        self.map.strategy() == Strategy::RowLocks
    }

    async fn sweep_once(&self, scope: &Scope, max_attempts: u32) -> sqlx::Result<Vec<MessageId>> {
        let mut tx = self.begin().await?;
        let died = self.sweep_on(&mut tx, scope, max_attempts).await?;
        tx.commit().await?;
        Ok(died)
    }

    async fn purge_delivered(&self, request: &PurgeRequest) -> sqlx::Result<u64> {
        let Some(keep) = request.delivered else { return Ok(0) };
        let common = &self.statements.common;
        let mut tx = self.begin().await?;
        let mut removed = 0;
        let found = common.find_delivered.fetch_all(&mut tx, &old(keep, request)).await?;
        let mut delivered = ids(&found, &self.map)?;
        delivered.sort_unstable();
        for chunk in delivered.chunks(MAX_IDS) {
            let values = [Value::ids(chunk, &self.map)];
            removed += common.purge_delivered.execute(&mut tx, &values).await?;
        }
        tx.commit().await?;
        Ok(removed)
    }

    async fn purge_dead(&self, request: &PurgeRequest) -> sqlx::Result<Vec<MessageId>> {
        let Some(keep) = request.dead else {
            return Ok(Vec::new());
        };
        let dying = self.statements.dying.needed()?;
        let mut tx = self.begin().await?;
        let found = dying.find_old_dead.fetch_all(&mut tx, &old(keep, request)).await?;
        let mut dead = ids(&found, &self.map)?;
        dead.sort_unstable();
        for chunk in dead.chunks(MAX_IDS) {
            let values = [Value::ids(chunk, &self.map)];
            self.statements.common.discard.execute(&mut tx, &values).await?;
        }
        tx.commit().await?;
        Ok(dead)
    }

    async fn purge_keys(&self, request: &PurgeRequest) -> sqlx::Result<u64> {
        let Some(dedupe) = self.statements.dedupe.as_ref().filter(|_| request.dedupe) else {
            return Ok(0);
        };
        let mut tx = self.begin().await?;
        let mut removed = 0;
        let free = dedupe
            .find_free_keys
            .fetch_all(&mut tx, &[request.limit.into()])
            .await?;
        for row in free {
            let key = |column: &str| row.try_get(column).map(Value::Bytes);
            let values = [
                key("namespace")?,
                key("topic")?,
                key("dedupe_key")?,
                row.try_get::<String, _>("held_by")?.into(),
            ];
            removed += dedupe.purge_dedupe.execute(&mut tx, &values).await?;
        }
        tx.commit().await?;
        Ok(removed)
    }

    async fn topic_gauges(&self, namespace: &str) -> sqlx::Result<Vec<TopicBacklog>> {
        let Some(topics) = &self.statements.topics else {
            return Ok(Vec::new());
        };
        let mut tx = self.begin().await?;
        let values = [namespace.into(), GAUGE_BOUND.into()];
        let rows = topics.topic_gauges.fetch_all(&mut tx, &values).await?;
        tx.commit().await?;
        let topic = |row: &MySqlRow| {
            let oldest = u64::try_from(row.try_get::<i64, _>("oldest_us")?).unwrap_or(0);
            Ok(TopicBacklog {
                topic: row.try_get("topic")?,
                pending: row.try_get::<i64, _>("pending")?.cast_unsigned(),
                oldest_seconds: Duration::from_micros(oldest).as_secs_f64(),
            })
        };
        rows.iter().map(topic).collect()
    }

    /// Counts at most so many rows of a kind.
    async fn count_to(&self, namespace: &str, bound: i64) -> sqlx::Result<OutboxStats> {
        let mut tx = self.begin().await?;
        let row = self
            .statements
            .common
            .stats
            .fetch_one(&mut tx, &[namespace.into(), bound.into()])
            .await;
        let row = row.map_err(of_table)?;
        tx.commit().await?;
        let number = |name: &str| Ok::<_, sqlx::Error>(u64::try_from(row.try_get::<i64, _>(name)?).unwrap_or(0));
        Ok(OutboxStats {
            pending: number("pending")?,
            waiting: number("waiting")?,
            processing: number("processing")?,
            dead: number("dead")?,
            oldest_seconds: Duration::from_micros(number("oldest_us")?).as_secs_f64(),
        })
    }
}

/// What is old of a kind.
fn old(keep: Duration, request: &PurgeRequest) -> [Value; 3] {
    let namespace = Value::optional(request.namespace.as_deref());
    [millis(keep).into(), request.limit.into(), namespace]
}
