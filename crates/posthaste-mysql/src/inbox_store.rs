//! The consumer's side: handling each delivery once.

use std::time::Duration;

use posthaste_core::{Inbox, InboxStore, StoreError};
use sqlx::{MySql, MySqlConnection, Transaction};

use crate::MySqlStore;
use crate::error::{number, store_error};
use crate::retry::retrying;
use crate::rows::millis;

/// The row is there already.
pub(crate) const DUPLICATE: u16 = 1062;

/// What one consumer has handled. Cheap to clone.
#[derive(Clone, Debug)]
pub struct MySqlInbox {
    store: MySqlStore,
    consumer: String,
}

impl MySqlInbox {
    pub(crate) fn new(store: MySqlStore, consumer: String) -> Self {
        Self { store, consumer }
    }

    async fn purge_once(&self, keep: Duration, limit: u32) -> sqlx::Result<u64> {
        let mut tx = self.store.begin().await?;
        let values = [self.consumer.as_str().into(), millis(keep).into(), limit.into()];
        let removed = self.store.statements.purge_inbox.execute(&mut tx, &values).await?;
        tx.commit().await?;
        Ok(removed)
    }
}

impl Inbox for MySqlInbox {
    type Connection = MySqlConnection;

    async fn record(&self, tx: &mut MySqlConnection, key: &str) -> Result<bool, StoreError> {
        let values = [self.consumer.as_str().into(), key.into()];
        match self.store.statements.record_inbox.execute(tx, &values).await {
            // The server undoes the statement alone; the transaction goes on.
            Err(error) if number(&error) == Some(DUPLICATE) => Ok(false),
            done => done.map(|rows| rows == 1).map_err(store_error),
        }
    }
}

impl InboxStore for MySqlInbox {
    type Transaction = Transaction<'static, MySql>;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        self.store.begin().await.map_err(store_error)
    }

    async fn commit(&self, tx: Self::Transaction) -> Result<(), StoreError> {
        tx.commit().await.map_err(store_error)
    }

    async fn purge(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        retrying!(self.purge_once(keep, limit)).map_err(store_error)
    }
}
