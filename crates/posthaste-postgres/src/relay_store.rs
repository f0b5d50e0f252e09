//! The relay's verbs.

use async_trait::async_trait;
use posthaste_core::lifecycle::Settlement;
use posthaste_core::store::{
    Claim, ClaimRequest, ExtendRequest, Extended, GAUGE_BOUND, LeadRequest, Leadership, OutboxStats, PurgeRequest,
    Purged, RecoverRequest, Recovered, RelayRegistry, RelayStore, SchemaStore, Scope, Settled, StoreErrorKind,
    StoreRequirements, TableGauges, TopicBacklog, WorkerId,
};
use posthaste_core::wake::Listener;
use posthaste_core::{MessageId, StoreError};
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::PostgresStore;
use crate::error::store_error;
use crate::log;
use crate::notifier::ChannelListener;
use crate::pooling;
use crate::recover::Recover;
use crate::rows::{ids, millis};

/// So many rows of a kind are counted for operators; of more, the number is an estimate.
const MAX_COUNTED: i64 = 100_000;

/// To prepare a statement is to wait for locks on its table.
const BEGIN_PREPARE: &str = "begin isolation level read committed; set local lock_timeout = '1s'";

#[async_trait]
impl RelayStore for PostgresStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.map.check_scope(&request.scope)?;
        self.map.check_ordering(&request.ordering)?;
        self.sessions.detect(&self.pool).await;
        let claim = if self.statements.leases.is_some() {
            self.claim_under_lease(request).await
        } else {
            self.claim_by_locks(request).await
        };
        match claim {
            Ok(claim) => Ok(claim),
            Err(error) => Err(self.explain(error).await),
        }
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<Settled, StoreError> {
        let Some(leases) = &self.statements.leases else {
            return Ok(self.settle_by_locks(settlements).await);
        };
        self.settle_under_lease(leases, settlements).await.map_err(store_error)
    }

    async fn extend(&self, request: ExtendRequest<'_>) -> Result<Extended, StoreError> {
        let ExtendRequest { token, ids, lease } = request;
        let Some(leases) = &self.statements.leases else {
            return Ok(Extended::all(self.extend_by_locks(token, ids, lease).await));
        };
        let extended = self.extend_under_lease(leases, token, ids, lease).await;
        extended.map_err(store_error)
    }

    fn requirements(&self) -> StoreRequirements {
        self.map.requirements()
    }

    async fn recover(&self, request: &RecoverRequest) -> Result<Recovered, StoreError> {
        let Some(since) = &self.statements.since else {
            return Ok(Recovered::default());
        };
        self.map.check_scope(&request.scope)?;
        let recover = Recover {
            statement: &since.recover,
            request,
        };
        match self.recover_stalled(&recover).await {
            Ok(recovered) => Ok(recovered),
            Err(error) => Err(self.explain(error).await),
        }
    }

    async fn sweep(&self, scope: &Scope, max_attempts: u32) -> Result<Vec<MessageId>, StoreError> {
        self.map.check_scope(scope)?;
        let swept = async {
            let mut tx = self.begin().await?;
            let died = self.sweep_on(&mut tx, scope, max_attempts).await?;
            tx.commit().await?;
            Ok(died)
        };
        match swept.await {
            Ok(died) => Ok(died),
            Err(error) => Err(self.explain(error).await),
        }
    }

    async fn purge(&self, request: &PurgeRequest) -> Result<Purged, StoreError> {
        // A row that may not be removed is no reason to keep the others.
        let delivered = self.purge_delivered(request).await;
        let dead = self.purge_dead(request).await;
        let dedupe = self.purge_dedupe(request).await;
        Ok(Purged {
            delivered: delivered?,
            dead: dead?,
            dedupe: dedupe?,
            cursor: 0,
        })
    }

    async fn stats(&self, namespace: &str) -> Result<OutboxStats, StoreError> {
        self.count_to(
            namespace,
            if self.map.is_native() {
                MAX_COUNTED
            } else {
                i64::MAX - 1
            },
        )
        .await
    }

    async fn table_gauges(&self, namespace: &str) -> Result<TableGauges, StoreError> {
        let stats = self.count_to(namespace, i64::from(GAUGE_BOUND)).await?;
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

    async fn left_in_log(&self) -> Result<OutboxStats, StoreError> {
        let Some(schema) = self.map.schema().filter(|_| self.map.is_native()) else {
            return Ok(OutboxStats::default());
        };
        let unread = async {
            if self.applied().await?.contains(&log::FIRST_MIGRATION) {
                log::unread(&self.pool, schema).await
            } else {
                Ok(OutboxStats::default())
            }
        };
        match unread.await {
            // Whoever may not look at the log has none to serve.
            Err(error) if error.kind == StoreErrorKind::Access => Ok(OutboxStats::default()),
            unread => unread,
        }
    }

    async fn ping(&self) -> Result<(), StoreError> {
        pooling::ping(&self.pool).await.map_err(store_error)
    }

    fn registry(&self) -> Option<&dyn RelayRegistry> {
        self.statements.registry.is_some().then_some(self)
    }

    async fn listener(&self) -> Option<Box<dyn Listener>> {
        ChannelListener::new(self)
            .await
            .map(|listener| Box::new(listener) as Box<dyn Listener>)
    }

    async fn check_for(&self, scope: &Scope) -> Result<(), StoreError> {
        self.map.check_scope(scope)?;
        self.check_tables().await.map_err(|error| self.with_remedy(error))?;
        self.stats("").await?;
        self.try_verdicts(scope).await
    }
}

impl PostgresStore {
    async fn purge_delivered(&self, request: &PurgeRequest) -> Result<u64, StoreError> {
        let Some(keep) = request.delivered else { return Ok(0) };
        let statement = &self.statements.common.purge_delivered;
        let query = statement.query().bind(millis(keep)).bind(i64::from(request.limit));
        self.execute(query.bind(&request.namespace)).await.map_err(store_error)
    }

    async fn purge_dead(&self, request: &PurgeRequest) -> Result<Vec<MessageId>, StoreError> {
        let Some(keep) = request.dead else {
            return Ok(Vec::new());
        };
        let dying = self.statements.dying.as_ref();
        let dying = dying.ok_or_else(|| StoreError::no_time_of_death(self.map.name()))?;
        let query = dying
            .purge_dead
            .query()
            .bind(millis(keep))
            .bind(i64::from(request.limit));
        let rows = self.fetch_all(query.bind(&request.namespace)).await;
        rows.and_then(|rows| ids(&rows, &self.map)).map_err(store_error)
    }

    pub(crate) async fn purge_dedupe(&self, request: &PurgeRequest) -> Result<u64, StoreError> {
        let Some(dedupe) = self.statements.dedupe.as_ref().filter(|_| request.dedupe) else {
            return Ok(0);
        };
        let query = dedupe.purge_dedupe.query().bind(i64::from(request.limit));
        self.execute(query).await.map_err(store_error)
    }

    /// Counts at most so many rows of a kind.
    async fn count_to(&self, namespace: &str, bound: i64) -> Result<OutboxStats, StoreError> {
        let query = self.statements.common.stats.query().bind(namespace).bind(bound);
        let row = match self.fetch_one(query).await {
            Ok(row) => row,
            Err(error) => return Err(self.explain(error).await),
        };
        let count = |name: &str| row.try_get::<i64, _>(name).map(i64::cast_unsigned).map_err(store_error);
        Ok(OutboxStats {
            pending: count("pending")?,
            waiting: count("waiting")?,
            processing: count("processing")?,
            dead: count("dead")?,
            oldest_seconds: row.try_get::<f64, _>("oldest_seconds").map_err(store_error)?.max(0.0),
        })
    }

    async fn topic_gauges(&self, namespace: &str) -> sqlx::Result<Vec<TopicBacklog>> {
        let Some(topics) = &self.statements.topics else {
            return Ok(Vec::new());
        };
        let query = topics.topic_gauges.query().bind(namespace).bind(i64::from(GAUGE_BOUND));
        let topic = |row: &PgRow| {
            Ok(TopicBacklog {
                topic: row.try_get("topic")?,
                pending: row.try_get::<i64, _>("pending")?.cast_unsigned(),
                oldest_seconds: row.try_get::<f64, _>("oldest_seconds")?.max(0.0),
            })
        };
        self.fetch_all(query).await?.iter().map(topic).collect()
    }

    /// Has the server look at every table and column that is named, before the first claim does.
    async fn check_tables(&self) -> Result<(), StoreError> {
        let dead_letter = self.statements.dead_letter.as_ref();
        let checks = std::iter::once(&self.statements.common.check);
        for check in checks.chain(dead_letter.map(|side| &side.check_dead_letter)) {
            // As a simple query: its columns are of any type, and a driver that has to ask for one loses an unnamed statement.
            let looked = async {
                let mut tx = self.begin().await?;
                sqlx::raw_sql(check.sql()).execute(&mut *tx).await?;
                tx.commit().await
            };
            looked.await.map_err(store_error)?;
        }
        if self.map.is_native() {
            return Ok(());
        }
        for (name, statement) in self.statements.for_relays() {
            let Err(error) = self.prepare_once(statement.text()).await else {
                continue;
            };
            let mut error = store_error(error);
            if error.kind == StoreErrorKind::Contention {
                // The table is being changed; claims wait for it, and a check need not.
                break;
            }
            error.message = format!("{} (in the statement `{name}`)", error.message);
            return Err(error);
        }
        Ok(())
    }

    /// Has the server look at a statement. By SQL and under a name of its own, so that nothing stays behind in a session
    /// that others may use.
    async fn prepare_once(&self, statement: &str) -> sqlx::Result<()> {
        let name = format!("posthaste_check_{}", uuid::Uuid::new_v4().simple());
        let mut tx = pooling::begin(&self.pool, BEGIN_PREPARE).await?;
        for sql in [format!("prepare {name} as {statement}"), format!("deallocate {name}")] {
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut *tx).await?;
        }
        tx.commit().await
    }

    /// Tables that are not Posthaste's own are not changed by its migrations.
    fn with_remedy(&self, mut error: StoreError) -> StoreError {
        let mapped = matches!(error.kind, StoreErrorKind::SchemaMissing | StoreErrorKind::Other);
        if mapped && !self.map.is_native() {
            error.message = format!("the table map `{}` does not fit: {}", self.map.name(), error.message);
            error.remedy = Some("compare it with the table: `posthaste maps check` says what is missing");
        }
        error
    }
}
