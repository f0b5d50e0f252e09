//! The named lock under which ordered claims of one outbox are made.

use posthaste_core::TableMap;
use sqlx::pool::PoolConnection;
use sqlx::{Executor, MySql, MySqlConnection, Row};

use crate::error::ClaimsLocked;
use crate::statement::Value;
use crate::statements::Statements;

/// A relay that is frozen in the middle of a claim must not hold the lock for ever: the server closes its connection after
/// ten seconds of silence, and with it goes the lock.
const SILENCE: &str = "set @posthaste_wait_timeout = @@session.wait_timeout, session wait_timeout = 10";
const AS_BEFORE: &str = "set session wait_timeout = @posthaste_wait_timeout";

/// A connection that holds the lock. The lock belongs to the connection and not to a transaction, so a connection that was
/// not released in order, because its claim was abandoned half-way, is closed and never goes back to the pool.
pub(crate) struct ClaimLock {
    connection: Option<PoolConnection<MySql>>,
    name: [Value; 3],
}

impl ClaimLock {
    pub(crate) async fn take(
        connection: PoolConnection<MySql>,
        statements: &Statements,
        map: &TableMap,
        namespace: &str,
    ) -> sqlx::Result<Self> {
        let table = map.table("outbox");
        let schema = table.and_then(|table| table.schema.as_ref());
        let name = [
            Value::optional(schema.map(|schema| schema.as_str())),
            Value::optional(table.map(|table| table.name.as_str())),
            namespace.into(),
        ];
        let mut lock = Self {
            connection: Some(connection),
            name,
        };
        let (connection, name) = lock.parts();
        connection.execute(SILENCE).await?;
        let locked: Option<i64> = statements
            .lock_claims
            .fetch_one(connection, name)
            .await?
            .try_get("locked")?;
        if locked == Some(1) {
            return Ok(lock);
        }
        lock.connection().execute(AS_BEFORE).await?;
        drop(lock.connection.take());
        Err(sqlx::Error::AnyDriverError(Box::new(ClaimsLocked)))
    }

    pub(crate) fn connection(&mut self) -> &mut MySqlConnection {
        self.parts().0
    }

    fn parts(&mut self) -> (&mut MySqlConnection, &[Value]) {
        let connection = self
            .connection
            .as_mut()
            .expect("it is there until the lock is released");
        (connection, &self.name)
    }

    /// Lets others claim.
    pub(crate) async fn release(mut self, statements: &Statements) -> sqlx::Result<()> {
        let (connection, name) = self.parts();
        statements.unlock_claims.execute(connection, name).await?;
        connection.execute(AS_BEFORE).await?;
        drop(self.connection.take());
        Ok(())
    }
}

impl Drop for ClaimLock {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.close_on_drop();
        }
    }
}
