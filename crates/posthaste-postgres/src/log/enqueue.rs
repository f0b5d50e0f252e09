//! The application's side: appending to the log in its own transactions.

use async_trait::async_trait;
use posthaste_core::enqueue::{NewRow, Prepared};
use posthaste_core::outbox::Front;
use posthaste_core::store::ProducerStore;
use posthaste_core::wake::Doorbell;
use posthaste_core::{EnqueueError, Enqueued, IntoMessage, Message, OutboxOptions, StoreError};
use posthaste_sql::table::Role;
use sqlx::{PgConnection, Postgres, Transaction};

use super::PostgresLogStore;
use crate::error::store_error;
use crate::plain_insert;

/// Appends messages to a log in the caller's transactions. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PostgresLogOutbox {
    store: PostgresLogStore,
    front: Front,
}

impl PostgresLogOutbox {
    pub(super) fn new(store: PostgresLogStore, options: OutboxOptions) -> Self {
        Self {
            store,
            front: Front::new(options),
        }
    }

    /// Rings this doorbell after every [`PostgresLogOutbox::commit`].
    #[must_use]
    pub fn with_doorbell(mut self, doorbell: impl Doorbell) -> Self {
        self.front.set_doorbell(doorbell);
        self
    }

    /// Appends one message or event on the caller's connection. A refused message runs no SQL, so the transaction stays
    /// usable.
    pub async fn enqueue(&self, conn: &mut PgConnection, message: impl IntoMessage) -> Result<Enqueued, EnqueueError> {
        let outcomes = self.enqueue_all(conn, [message]).await?;
        Ok(outcomes[0])
    }

    /// Appends many with one statement; all are written or, if one is refused, none.
    pub async fn enqueue_all<M: IntoMessage>(
        &self,
        conn: &mut PgConnection,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let prepared = Prepared::new(messages, self.front.options())?;
        if prepared.is_empty() {
            return Ok(Vec::new());
        }
        let map = &self.store.inner.map;
        map.fits(&prepared)?;
        let sessions = &self.store.inner.sessions;
        sessions.detect_in_background(&self.store.inner.pool);
        let mut statement =
            sqlx::query_scalar(self.store.inner.statements.enqueue.sql()).persistent(sessions.keep_statements());
        for role in Role::TEXTS.into_iter().filter(|role| *role != Role::DedupeKey) {
            let text = |row: &NewRow| plain_insert::text(map, row, role);
            statement = statement.bind(prepared.rows.iter().map(text).collect::<Vec<_>>());
        }
        let payload = |row: &NewRow| plain_insert::payload(map, row);
        let headers = |row: &NewRow| serde_json::json!(row.message.headers).to_string();
        let mut numbers: Vec<i64> = statement
            .bind(prepared.rows.iter().map(payload).collect::<Vec<_>>())
            .bind(prepared.rows.iter().map(headers).collect::<Vec<_>>())
            .fetch_all(conn)
            .await
            .map_err(store_error)?;
        // Ids go up in the order of the call.
        numbers.sort_unstable();
        // Where the table keeps no event id, the number is what the event is known by.
        let has_event_id = map.has(Role::EventId);
        let id = |(row, number): (&NewRow, &i64)| if has_event_id { row.message.id } else { (*number).into() };
        let stored: Vec<Enqueued> = prepared.rows.iter().zip(&numbers).map(id).map(Enqueued::Now).collect();
        Ok(prepared.outcomes(&stored))
    }

    /// Commits the transaction, then rings the doorbell. A plain `tx.commit()` is just as safe.
    pub async fn commit(&self, tx: Transaction<'_, Postgres>) -> Result<(), StoreError> {
        tx.commit().await.map_err(store_error)?;
        self.front.ring();
        Ok(())
    }
}

#[async_trait]
impl ProducerStore for PostgresLogStore {
    async fn enqueue_and_commit(
        &self,
        options: &OutboxOptions,
        messages: Vec<Message>,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let mut tx = self.inner.pool.begin().await.map_err(store_error)?;
        let outcomes = self.outbox(options.clone()).enqueue_all(&mut tx, messages).await?;
        tx.commit().await.map_err(store_error)?;
        Ok(outcomes)
    }
}
