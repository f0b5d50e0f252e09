//! The application's side: appending to the log in its own transactions.

use async_trait::async_trait;
use posthaste_core::enqueue::{NewRow, Prepared};
use posthaste_core::outbox::{Commit, EnqueueOn, Transactions};
use posthaste_core::store::ProducerStore;
use posthaste_core::{EnqueueError, Enqueued, Message, OutboxOptions, StoreError, StoreOutbox};
use posthaste_sql::table::Role;
use sqlx::{PgConnection, Postgres, Transaction};

use super::PostgresLogStore;
use crate::error::store_error;
use crate::runner::{InsertStatement, Runner, Texts};
use crate::{BEGIN, plain_insert, pooling};

/// Appends messages to a log in the caller's transactions.
pub type PostgresLogOutbox = StoreOutbox<PostgresLogStore>;

impl<C: Runner + ?Sized> EnqueueOn<C> for PostgresLogStore {
    async fn insert(
        &self,
        conn: &mut C,
        messages: &Prepared,
        _: &OutboxOptions,
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let map = &self.inner.map;
        map.fits(messages)?;
        let sessions = &self.inner.sessions;
        sessions.detect_in_background(&self.inner.pool);
        let append = InsertStatement::new(self.inner.statements.writing.enqueue.text(), sessions.keep_statements());
        let column = |text: &dyn Fn(&NewRow) -> Option<String>| messages.rows.iter().map(text).collect::<Texts>();
        let roles = Role::TEXTS.into_iter().filter(|role| *role != Role::DedupeKey);
        let mut columns: Vec<_> = roles
            .map(|role| column(&|row| plain_insert::text(map, row, role)))
            .collect();
        columns.push(column(&|row| Some(plain_insert::payload(map, row))));
        columns.push(column(&|row| Some(serde_json::json!(row.message.headers).to_string())));
        let appended = conn.fetch(append, columns).await?;
        let mut numbers: Vec<_> = appended.into_iter().map(|(number, _)| number).collect();
        // Ids go up in the order of the call.
        numbers.sort_unstable();
        // Where the table keeps no event id, the number is what the event is known by.
        let has_event_id = map.has(Role::EventId);
        let id = |(row, number): (&NewRow, &i64)| if has_event_id { row.message.id } else { (*number).into() };
        Ok(messages
            .rows
            .iter()
            .zip(&numbers)
            .map(id)
            .map(Enqueued::Inserted)
            .collect())
    }
}

impl Commit<Transaction<'_, Postgres>> for PostgresLogStore {
    async fn commit(&self, tx: Transaction<'_, Postgres>) -> Result<(), StoreError> {
        tx.commit().await.map_err(store_error)
    }
}

impl Transactions for PostgresLogStore {
    type Connection = PgConnection;
    type Transaction = Transaction<'static, Postgres>;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        pooling::begin(&self.inner.pool, BEGIN).await.map_err(store_error)
    }

    async fn rollback(&self, tx: Self::Transaction) -> Result<(), StoreError> {
        tx.rollback().await.map_err(store_error)
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
