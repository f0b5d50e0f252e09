//! The relay's verbs.

use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::lifecycle::Settlement;
use posthaste_core::store::{
    Claim, ClaimRequest, ExtendRequest, Extended, OutboxStats, RecoverRequest, Recovered, RelayRegistry, RelayStore,
    Scope, Settled, StoreRequirements,
};
use posthaste_core::{MessageId, StoreError};
use posthaste_sql::table::Strategy;
use sqlx::Row;

use crate::MySqlStore;
use crate::claim::MAX_IDS;
use crate::error::{of_table, store_error};
use crate::retry::retrying;
use crate::rows::{ids, millis};
use crate::statement::Value;

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

    async fn purge(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        let delivered = retrying!(self.purge_delivered(keep, limit)).map_err(store_error);
        // A row that may not be removed is no reason to keep the keys.
        let keys = retrying!(self.purge_keys(limit)).map_err(store_error);
        Ok(delivered? + keys?)
    }

    async fn stats(&self, namespace: &str) -> Result<OutboxStats, StoreError> {
        self.count(namespace).await.map_err(store_error)
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

    async fn purge_delivered(&self, keep: Duration, limit: u32) -> sqlx::Result<u64> {
        let mut tx = self.begin().await?;
        let mut removed = 0;
        let wanted = [millis(keep).into(), limit.into()];
        let mut delivered = ids(
            &self
                .statements
                .common
                .find_delivered
                .fetch_all(&mut tx, &wanted)
                .await?,
            &self.map,
        )?;
        delivered.sort_unstable();
        for chunk in delivered.chunks(MAX_IDS) {
            let values = [Value::ids(chunk, &self.map)];
            removed += self.statements.common.purge_delivered.execute(&mut tx, &values).await?;
        }
        tx.commit().await?;
        Ok(removed)
    }

    async fn purge_keys(&self, limit: u32) -> sqlx::Result<u64> {
        let Some(dedupe) = &self.statements.dedupe else {
            return Ok(0);
        };
        let mut tx = self.begin().await?;
        let mut removed = 0;
        let free = dedupe.find_free_keys.fetch_all(&mut tx, &[limit.into()]).await?;
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

    async fn count(&self, namespace: &str) -> sqlx::Result<OutboxStats> {
        let mut tx = self.begin().await?;
        let row = self
            .statements
            .common
            .stats
            .fetch_one(&mut tx, &[namespace.into()])
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
