//! The consumer's side: handling each delivery once.

use std::time::Duration;

use posthaste_core::inbox::stored_key;
use posthaste_core::{Inbox, InboxStore, Mark, StoreError};
use posthaste_sql::savepoint;
use posthaste_sql::table::Table;
use sqlx::{AssertSqlSafe, Executor, MySql, MySqlConnection, Transaction};

use crate::MySqlStore;
use crate::error::{number, store_error};
use crate::retry::retrying;
use crate::rows::millis;
use crate::statements::Needed;

/// The row is there already.
pub(crate) const DUPLICATE: u16 = 1062;

/// There is no such savepoint: the transaction in which it was set is over.
const NO_SAVEPOINT: u16 = 1305;

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

    fn check_table(&self) -> Result<(), StoreError> {
        if self.store.map.has(Table::Inbox) {
            return Ok(());
        }
        Err(self.store.map.needs_native_tables("inbox"))
    }

    async fn purge_once(&self, keep: Duration, limit: u32) -> sqlx::Result<u64> {
        let inbox = self.store.statements.inbox.needed()?;
        let mut tx = self.store.begin().await?;
        let values = [self.consumer.as_str().into(), millis(keep).into(), limit.into()];
        let removed = inbox.purge_inbox.execute(&mut tx, &values).await?;
        tx.commit().await?;
        Ok(removed)
    }
}

impl Inbox for MySqlInbox {
    type Connection = MySqlConnection;

    async fn record(&self, tx: &mut MySqlConnection, key: &str) -> Result<bool, StoreError> {
        self.check_table()?;
        let key = stored_key(key);
        let values = [self.consumer.as_str().into(), key.as_ref().into()];
        let inbox = self.store.statements.inbox.needed().map_err(store_error)?;
        match inbox.record_inbox.execute(tx, &values).await {
            // The server undoes the statement alone; the transaction goes on.
            Err(error) if number(&error) == Some(DUPLICATE) => Ok(false),
            done => done.map(|rows| rows == 1).map_err(store_error),
        }
    }

    async fn mark(&self, tx: &mut MySqlConnection, mark: Mark) -> Result<(), StoreError> {
        let set = tx.execute(AssertSqlSafe(savepoint::set(mark)));
        set.await.map(drop).map_err(store_error)
    }

    /// After a deadlock the server has rolled everything back, and takes what follows as transactions of one statement
    /// each; `commit` would keep those and say nothing of the rest.
    async fn prove(&self, tx: &mut MySqlConnection, mark: Mark) -> Result<(), StoreError> {
        match tx.execute(AssertSqlSafe(savepoint::release(mark))).await {
            Ok(_) => Ok(()),
            Err(error) if number(&error) == Some(NO_SAVEPOINT) => Err(Mark::lost(error)),
            Err(error) => Err(store_error(error)),
        }
    }
}

impl InboxStore for MySqlInbox {
    type Transaction = Transaction<'static, MySql>;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        let mut tx = self.store.begin_transaction().await?;
        self.mark(&mut tx, Mark::BEGIN).await?;
        Ok(tx)
    }

    async fn commit(&self, mut tx: Self::Transaction) -> Result<(), StoreError> {
        self.prove(&mut tx, Mark::BEGIN).await?;
        tx.commit().await.map_err(store_error)
    }

    async fn purge(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        self.check_table()?;
        retrying!(self.purge_once(keep, limit)).map_err(store_error)
    }
}
