//! A connection that holds more than a transaction: the named lock under which ordered claims are made.

use std::time::Duration;

use posthaste_sql::table::{Identifier, Table};
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Executor, MySql, MySqlConnection, Row};

use crate::statement::Value;
use crate::statements::Statements;
use crate::{BOUND, MySqlStore, UNBOUND};

/// A connection whose state must not reach the pool. A named lock, for instance, belongs to the connection and not to a
/// transaction. Unless it is closed in order, because its work was done, the connection is cut, and the server
/// undoes and unlocks all.
pub(crate) struct Session {
    connection: Option<PoolConnection<MySql>>,
    lock: Option<[Value; 3]>,
}

impl Session {
    /// Who is frozen must not hold locks forever: the server ends a connection that is silent for longer than this.
    pub(crate) async fn open(connection: PoolConnection<MySql>, silence: Duration) -> sqlx::Result<Self> {
        let mut session = Self {
            connection: Some(connection),
            lock: None,
        };
        let seconds = silence.as_secs() + 1;
        let limit = format!("{BOUND}; set session wait_timeout = {seconds}");
        session.connection().execute(AssertSqlSafe(limit)).await?;
        Ok(session)
    }

    pub(crate) fn connection(&mut self) -> &mut MySqlConnection {
        self.connection
            .as_mut()
            .expect("it is there until the session is closed")
    }

    /// Whether the lock was had within `timeout`. It is held until the session is closed.
    pub(crate) async fn lock(
        &mut self,
        statements: &Statements,
        name: [Value; 3],
        timeout: Duration,
    ) -> sqlx::Result<bool> {
        let mut wanted = name.to_vec();
        wanted.push(Value::Number(i64::try_from(timeout.as_secs()).ok()));
        let row = statements
            .common
            .lock_claims
            .fetch_one(self.connection(), &wanted)
            .await?;
        let locked = row.try_get::<Option<i64>, _>("locked")? == Some(1);
        self.lock = locked.then_some(name);
        Ok(locked)
    }

    /// Unlocks, and gives the connection back as it was.
    pub(crate) async fn close(mut self, statements: &Statements) -> sqlx::Result<()> {
        if let Some(name) = self.lock.take() {
            statements
                .common
                .unlock_claims
                .execute(self.connection(), &name)
                .await?;
        }
        self.connection().execute(UNBOUND).await?;
        drop(self.connection.take());
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(connection) = &mut self.connection {
            connection.close_on_drop();
        }
    }
}

impl MySqlStore {
    /// What the lock for ordered claims is named after.
    pub(crate) fn claims_of(&self, namespace: &str) -> [Value; 3] {
        let table = self.map.table(Table::Outbox);
        let schema = table.and_then(|table| table.schema.as_ref());
        [
            Value::optional(schema.map(Identifier::as_str)),
            Value::optional(table.map(|table| table.name.as_str())),
            namespace.into(),
        ]
    }
}
