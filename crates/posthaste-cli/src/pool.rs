//! Pools of connections that a silent server cannot use up.

use std::io;
use std::time::Duration;

use sqlx::pool::PoolOptions;
use sqlx::{Connection, Database as Driver};
use tokio::time::timeout;

use crate::config::Database;

/// How long a connection may take until it can be used again.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// As the settings say.
pub fn options<D: Driver>(database: &Database) -> PoolOptions<D> {
    PoolOptions::new()
        .max_connections(database.max_connections)
        .acquire_timeout(database.acquire_timeout)
        .after_release(|connection, _| Box::pin(answers(connection)))
}

/// What is left of a call that was given up is read before its connection is used again, by sqlx for as long as that takes. If
/// the server, or the way to it, is silent for good, neither the connection would come back nor its place in the pool.
async fn answers(connection: &mut impl Connection) -> sqlx::Result<bool> {
    match timeout(RELEASE_TIMEOUT, connection.ping()).await {
        Ok(answer) => answer.map(|()| true),
        // It is closed without a word to the server.
        Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
    }
}
