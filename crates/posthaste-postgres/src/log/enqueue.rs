//! The application's side: appending to the log in its own transactions.

use async_trait::async_trait;
use posthaste_core::enqueue::Prepared;
use posthaste_core::outbox::Front;
use posthaste_core::store::{ProducerStore, StoreErrorKind};
use posthaste_core::table::TopicRule;
use posthaste_core::wake::Doorbell;
use posthaste_core::{EnqueueError, Enqueued, IntoMessage, Message, OutboxOptions, StoreError};
use sqlx::{PgConnection, Postgres, Transaction};

use super::PostgresLogStore;
use crate::error::store_error;

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
        for row in &prepared.rows {
            self.store.refuse_what_has_no_place(&row.message)?;
        }
        let messages = || prepared.rows.iter().map(|row| &row.message);
        let text = |field: fn(&Message) -> Option<&str>| messages().map(field).collect::<Vec<_>>();
        sqlx::query(self.store.inner.statements.enqueue.sql())
            .bind(
                messages()
                    .map(|message| message.event_id().into_owned())
                    .collect::<Vec<_>>(),
            )
            .bind(text(|message| message.event_type.as_deref()))
            .bind(text(|message| message.source.as_deref()))
            .bind(text(|message| message.aggregate_type.as_deref()))
            .bind(text(|message| message.aggregate_id.as_deref()))
            .bind(text(|message| message.ordering_key.as_deref()))
            .bind(text(|message| message.tenant.as_deref()))
            .bind(messages().map(|message| message.payload.to_vec()).collect::<Vec<_>>())
            .bind(
                messages()
                    .map(|message| serde_json::json!(message.headers).to_string())
                    .collect::<Vec<_>>(),
            )
            .bind(text(|message| Some(&message.topic)))
            .bind(text(|message| Some(&message.content_type)))
            .execute(conn)
            .await
            .map_err(store_error)?;
        let stored: Vec<Enqueued> = messages().map(|message| Enqueued::Now(message.id)).collect();
        Ok(prepared.outcomes(&stored))
    }

    /// Commits the transaction, then rings the doorbell. A plain `tx.commit()` is just as safe.
    pub async fn commit(&self, tx: Transaction<'_, Postgres>) -> Result<(), StoreError> {
        tx.commit().await.map_err(store_error)?;
        self.front.ring();
        Ok(())
    }
}

impl PostgresLogStore {
    /// What the table has no column for would be lost without a word.
    fn refuse_what_has_no_place(&self, message: &Message) -> Result<(), StoreError> {
        let map = &self.inner.map;
        let refuse = |field: &str, remedy| {
            Err(StoreError {
                kind: StoreErrorKind::Other,
                message: format!("the log `{}` has no place for {field} of this message", map.name()),
                remedy: Some(remedy),
                source: None,
            })
        };
        if message.dedupe_key.is_some() {
            return refuse(
                "the dedupe key",
                "leave it out, or use a table that has a column for it",
            );
        }
        if message.not_before.is_some() {
            return refuse("the time", "leave out not_before; a log is delivered in order");
        }
        if !message.headers.is_empty() && !map.has("headers") {
            return refuse("the headers", "leave them out, or map a column for them");
        }
        if message.tenant.is_some() && !map.has("tenant") {
            return refuse("the tenant", "leave it out, or map a column for it");
        }
        let key_is_aggregate = message.ordering_key.is_none() || message.ordering_key == message.aggregate_id;
        if !key_is_aggregate
            && message.aggregate_id.is_some()
            && map.column("ordering_key") == map.column("aggregate_id")
        {
            return refuse(
                "the key",
                "the aggregate's id is the key in this table; leave out the key",
            );
        }
        if *map.topic_rule() != TopicRule::Column && message.event_type.is_none() {
            return refuse("the topic", "give it an event type; the topic follows from that");
        }
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
