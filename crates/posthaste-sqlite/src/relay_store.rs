//! The relay's verbs.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use async_trait::async_trait;
use posthaste_core::lifecycle::Settlement;
use posthaste_core::store::{
    Claim, ClaimRequest, ExtendRequest, Extended, GAUGE_BOUND, LeadRequest, Leadership, OutboxStats, PurgeRequest,
    Purged, RecoverRequest, Recovered, RelayRegistry, RelayStore, SchemaStore, Scope, Settled, StoreErrorKind,
    StoreRequirements, TableGauges, TopicBacklog, WorkerId,
};
use posthaste_core::wake::Listener;
use posthaste_core::{MessageId, StoreError};
use posthaste_sql::RowChange;
use posthaste_sql::row_change::StatusLabel;
use posthaste_sql::table::{Role, Table};
use sqlx::sqlite::SqliteRow;
use sqlx::types::Json;
use sqlx::{Connection, Row, SqliteConnection};

use crate::begin::{BEGIN, acquire, begin};
use crate::log;
use crate::recover::Recover;
use crate::rows::{id, ids_in_order, kept_until, millis};
use crate::statements::Claims;
use crate::wake::Watcher;
use crate::{SqliteLogStore, SqliteStore};

/// A writer has locked the whole file.
const HOLDER: &str = "another connection is writing to the file, maybe of another process; SQLite does not say which";

/// Equal changes are written together.
type Changes<'s> = BTreeMap<RowChange, Vec<&'s Settlement>>;

#[async_trait]
impl RelayStore for SqliteStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.map.check_scope(&request.scope)?;
        self.map.check_ordering(&request.ordering)?;
        self.check_file()?;
        self.claim_if_any(request).await.map_err(|error| self.error(error))
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Settled, StoreError> {
        let settled = match self.settle_all(settlements).await.map_err(|error| self.error(error)) {
            Err(error) if error.kind == StoreErrorKind::Contention => return Ok(Settled::busy(settlements, HOLDER)),
            settled => settled?,
        };
        let ids = settlements.iter().map(|settlement| settlement.id);
        Ok(Settled::but(ids.filter(|id| !settled.contains(id)).collect()))
    }

    async fn extend(&self, request: ExtendRequest<'_>) -> Result<Extended, StoreError> {
        let ExtendRequest { token, ids, lease } = request;
        let held = sqlx::query(self.statements.rows.extend.sql())
            .bind(Json(ids))
            .bind(token.as_uuid().hyphenated())
            .bind(self.kept_until(Role::LockedUntil, lease))
            .fetch_all(&self.pool)
            .await
            .and_then(|rows| self.id_set(&rows))
            .map_err(|error| self.error(error));
        let held = match held {
            Err(error) if error.kind == StoreErrorKind::Contention => return Ok(Extended::busy(ids.to_vec())),
            held => held?,
        };
        // One writer at a time: there is no row that another transaction has locked.
        let held = ids.iter().copied().filter(|id| held.contains(id));
        Ok(Extended::all(held.collect()))
    }

    fn requirements(&self) -> StoreRequirements {
        self.map.requirements()
    }

    async fn recover(&self, request: &RecoverRequest) -> Result<Recovered, StoreError> {
        self.map.check_scope(&request.scope)?;
        match &self.statements.recovery {
            Some(recovery) => {
                let recover = Recover {
                    statement: &recovery.recover,
                    request,
                };
                self.recover_stalled(&recover).await.map_err(|error| self.error(error))
            }
            None => Ok(Recovered::default()),
        }
    }

    async fn sweep(&self, scope: &Scope, max_attempts: u32) -> Result<Vec<MessageId>, StoreError> {
        self.map.check_scope(scope)?;
        self.sweep_and_commit(scope, max_attempts)
            .await
            .map_err(|error| self.error(error))
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<Purged, StoreError> {
        if request.dead.is_some() && self.statements.dying.is_none() {
            return Err(StoreError::no_time_of_death(self.map.name()));
        }
        // A row that may not be removed is no reason to keep the others.
        let delivered = self.purge_delivered(request).await;
        let dead = self.purge_dead(request).await;
        let dedupe = self.purge_dedupe(request).await;
        Ok(Purged {
            delivered: delivered.map_err(|error| self.error(error))?,
            dead: dead.map_err(|error| self.error(error))?,
            dedupe: dedupe.map_err(|error| self.error(error))?,
            cursor: 0,
        })
    }

    async fn stats(&self, namespace: &str) -> Result<OutboxStats, StoreError> {
        self.count_to(namespace, i64::MAX).await
    }

    async fn table_gauges(&self, namespace: &str) -> Result<TableGauges, StoreError> {
        let stats = self.count_to(namespace, i64::from(GAUGE_BOUND) + 1).await?;
        let topics = self.topic_gauges(namespace).await;
        let topics = topics.map_err(|error| self.error(error))?;
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
        self.lock_janitor(request)
    }

    async fn resign_janitor(&self, worker: WorkerId) -> Result<(), StoreError> {
        self.unlock_janitor(worker);
        Ok(())
    }

    async fn left_in_log(&self) -> Result<OutboxStats, StoreError> {
        let outbox = self.map.table(Table::Outbox).map_or("", |table| table.name.as_str());
        let Some(prefix) = outbox.strip_suffix("outbox").filter(|_| self.map.is_native()) else {
            return Ok(OutboxStats::default());
        };
        if !self.applied().await?.contains(&log::FIRST_VERSION) {
            return Ok(OutboxStats::default());
        }
        let log = SqliteLogStore::with_prefix(self.pool.clone(), prefix).map_err(StoreError::other)?;
        log.left_unread().await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        let pool = &self.pool;
        if pool.num_idle() == 0 && pool.size() >= pool.options().get_max_connections() {
            return Ok(());
        }
        let answer = sqlx::raw_sql("select 1").execute(pool).await;
        answer.map(drop).map_err(|error| self.error(error))
    }

    fn registry(&self) -> Option<&dyn RelayRegistry> {
        self.statements.registry.is_some().then_some(self)
    }

    async fn listener(&self) -> Option<Box<dyn Listener>> {
        let options = self.pool.connect_options();
        // There is nothing to watch in a database that has no file.
        options
            .get_filename()
            .is_file()
            .then(|| Box::new(Watcher::new(&options)) as Box<dyn Listener>)
    }

    async fn check_for(&self, scope: &Scope) -> Result<(), StoreError> {
        self.map.check_scope(scope)?;
        self.check_columns().await?;
        self.stats("").await?;
        self.try_verdicts(scope).await
    }
}

impl SqliteStore {
    /// Whether the file is still the one that was opened.
    pub(crate) fn check_file(&self) -> Result<(), StoreError> {
        self.opened_file.check(self.pool.connect_options().get_filename())
    }

    async fn purge_delivered(&self, request: &PurgeRequest) -> sqlx::Result<u64> {
        let Some(keep) = request.delivered else { return Ok(0) };
        let old = sqlx::query(self.statements.rows.purge_delivered.sql())
            .bind(millis(keep))
            .bind(i64::from(request.limit))
            .bind(&request.namespace);
        Ok(old.execute(&self.pool).await?.rows_affected())
    }

    async fn purge_dead(&self, request: &PurgeRequest) -> sqlx::Result<Vec<MessageId>> {
        let (Some(keep), Some(dying)) = (request.dead, &self.statements.dying) else {
            return Ok(Vec::new());
        };
        let old = sqlx::query(dying.purge_dead.sql())
            .bind(millis(keep))
            .bind(i64::from(request.limit))
            .bind(&request.namespace);
        ids_in_order(old.fetch_all(&self.pool).await?, &self.map)
    }

    async fn purge_dedupe(&self, request: &PurgeRequest) -> sqlx::Result<u64> {
        let Some(keys) = self.statements.keys.as_ref().filter(|_| request.dedupe) else {
            return Ok(0);
        };
        let free = sqlx::query(keys.purge_dedupe.sql()).bind(i64::from(request.limit));
        Ok(free.execute(&self.pool).await?.rows_affected())
    }

    /// Counts at most so many rows of a kind.
    async fn count_to(&self, namespace: &str, bound: i64) -> Result<OutboxStats, StoreError> {
        let statement = match self.statements.claims() {
            Claims::Split(claims) => &claims.stats,
            Claims::InOrder(claims) => &claims.stats_in_order,
        };
        let row = sqlx::query(statement.sql())
            .bind(namespace.to_owned())
            .bind(bound)
            .fetch_one(&self.pool)
            .await
            .map_err(|error| self.error(error))?;
        let number = |name: &str| {
            let value: i64 = row.try_get(name).map_err(|error| self.error(error))?;
            Ok::<_, StoreError>(u64::try_from(value).unwrap_or(0))
        };
        Ok(OutboxStats {
            pending: number("pending")?,
            waiting: number("waiting")?,
            processing: number("processing")?,
            dead: number("dead")?,
            oldest_seconds: Duration::from_millis(number("oldest_ms")?).as_secs_f64(),
        })
    }

    async fn topic_gauges(&self, namespace: &str) -> sqlx::Result<Vec<TopicBacklog>> {
        let Some(topics) = &self.statements.topics else {
            return Ok(Vec::new());
        };
        let query = sqlx::query(topics.topic_gauges.sql())
            .bind(namespace.to_owned())
            .bind(i64::from(GAUGE_BOUND));
        let topic = |row: &SqliteRow| {
            let oldest = u64::try_from(row.try_get::<i64, _>("oldest_ms")?).unwrap_or(0);
            Ok(TopicBacklog {
                topic: row.try_get("topic")?,
                pending: row.try_get::<i64, _>("pending")?.cast_unsigned(),
                oldest_seconds: Duration::from_millis(oldest).as_secs_f64(),
            })
        };
        query.fetch_all(&self.pool).await?.iter().map(topic).collect()
    }

    async fn settle_all(&self, settlements: &[Settlement]) -> sqlx::Result<HashSet<MessageId>> {
        let changes = self.changes(settlements);
        if changes.len() <= 1 && !changes.keys().any(|change| change.dead_letter) {
            let mut conn = self.pool.acquire().await?;
            return self.apply(&mut conn, changes).await;
        }
        let mut tx = begin(&self.pool).await?;
        let settled = self.apply(&mut tx, changes).await?;
        tx.commit().await?;
        Ok(settled)
    }

    /// Settles in a transaction of the caller's.
    pub(crate) async fn settle_on(
        &self,
        conn: &mut SqliteConnection,
        settlements: &[Settlement],
    ) -> sqlx::Result<HashSet<MessageId>> {
        self.apply(conn, self.changes(settlements)).await
    }

    fn changes<'s>(&self, settlements: &'s [Settlement]) -> Changes<'s> {
        let mut changes = Changes::new();
        for settlement in settlements {
            let change = RowChange::settling(settlement, &self.map);
            changes.entry(change).or_default().push(settlement);
        }
        changes
    }

    /// One statement for each change; in a transaction where there are several, or dead letters.
    async fn apply(&self, conn: &mut SqliteConnection, changes: Changes<'_>) -> sqlx::Result<HashSet<MessageId>> {
        let mut settled = HashSet::new();
        for (change, settlements) in changes {
            let row = |one: &&Settlement| (one.id, one.token.as_uuid(), one.version);
            let settle = sqlx::query(self.statements.rows.settle.sql())
                .bind(Json(settlements.iter().map(row).collect::<Vec<_>>()))
                .bind(change.status.map(StatusLabel::name))
                .bind(change.attempts)
                .bind(change.delay.map(|delay| self.kept_until(Role::NextAttemptAt, delay)))
                .bind(change.error)
                .bind(change.delivered);
            let written = self.id_set(&settle.fetch_all(&mut *conn).await?)?;
            if change.dead_letter {
                self.insert_dead_letters(conn, &written.iter().copied().collect::<Vec<_>>())
                    .await?;
            }
            settled.extend(written);
        }
        Ok(settled)
    }

    async fn sweep_and_commit(&self, scope: &Scope, max_attempts: u32) -> sqlx::Result<Vec<MessageId>> {
        let mut conn = acquire(&self.pool).await?;
        if self.statements.dead_letters.is_none() {
            return self.sweep_on(&mut conn, scope, max_attempts).await;
        }
        let mut tx = conn.begin_with(BEGIN).await?;
        let died = self.sweep_on(&mut tx, scope, max_attempts).await?;
        tx.commit().await?;
        Ok(died)
    }

    /// A duration from now in milliseconds, for a column of some role.
    pub(crate) fn kept_until(&self, role: Role, duration: Duration) -> i64 {
        kept_until(&self.map, role, duration)
    }

    fn id_set(&self, rows: &[SqliteRow]) -> sqlx::Result<HashSet<MessageId>> {
        rows.iter().map(|row| id(row, "id", &self.map)).collect()
    }
}
